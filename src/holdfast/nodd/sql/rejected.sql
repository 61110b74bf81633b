-- Statements for rejected messages.

-- name: mark_rejected
UPDATE nodd_rejected SET replayed_at = :at, fate = :fate WHERE sha256 = :sha256 RETURNING sha256;

-- name: list_rejected
SELECT r.sha256, r.body, r.code, r.message, r.times, r.first_at, r.last_at, r.replayed_at, r.fate
  FROM nodd_rejected r WHERE (CAST(:code AS text) IS NULL OR r.code = :code) ORDER BY r.last_at DESC, r.sha256 LIMIT :n;

-- name: list_ignored
SELECT i.reason, i.shape, i.example, i.times, i.first_at, i.last_at
  FROM nodd_ignored i WHERE (CAST(:reason AS text) IS NULL OR i.reason = :reason) ORDER BY i.last_at DESC, i.shape LIMIT :n;
