-- Statements of the seals: what may be sealed, what is, and the journal as it was sealed.

-- name: sealed_rows
SELECT coalesce(sum(rows), 0)::bigint FROM holdfast_seals WHERE seal_id BETWEEN 1 AND :upto;

-- name: journal_begins
-- The first number that the journal has room for: whole partitions leave it.
SELECT coalesce(min(b.first), 0)
  FROM (SELECT coalesce((regexp_match(pg_get_expr(c.relpartbound, c.oid), 'FROM \(''?(\d+)'))[1], '0')::bigint AS first
          FROM pg_inherits i JOIN pg_class c ON c.oid = i.inhrelid
         WHERE i.inhparent = to_regclass('holdfast_journal')) b;

-- name: sealing_bounds
SELECT pg_snapshot_xmin(s)::text::bigint, pg_snapshot_xmax(s)::text::bigint,
  (SELECT CASE WHEN q.is_called THEN q.last_value ELSE 0 END FROM holdfast_journal_seq q)
  FROM pg_current_snapshot() s;

-- name: horizon
-- Ids grow from seal to seal. A sealer that was late may have a lower number than the seal before: that is as true.
-- No hash covers a horizon: one that no sealer can have written is passed over.
SELECT s.horizon_seq FROM holdfast_seals s
 WHERE s.epoch = :epoch AND s.horizon_xid <= :bound AND s.horizon_xid > s.last_xid
   AND s.horizon_seq >= s.high_seq AND s.horizon_seq < :below
 ORDER BY s.seal_id DESC LIMIT 1;

-- name: is_horizon
SELECT 1 FROM holdfast_seals s
 WHERE s.epoch = :epoch AND s.horizon_seq = :number AND s.horizon_xid <= :bound AND s.horizon_xid > s.last_xid
   AND s.horizon_seq >= s.high_seq
 ORDER BY s.seal_id DESC LIMIT 1;

-- name: lock_seals
LOCK TABLE holdfast_seals IN SHARE ROW EXCLUSIVE MODE;

-- name: insert_seal
INSERT INTO holdfast_seals (seal_id, format, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous, hash,
  sealed_at, horizon_xid, horizon_seq)
VALUES (:seal_id, :format, :epoch, :last_xid, :last_seq, :low_seq, :high_seq, :rows, :digest, :previous, :hash, :sealed_at,
  pg_current_xact_id()::text::bigint, :horizon_seq)
RETURNING horizon_xid;
