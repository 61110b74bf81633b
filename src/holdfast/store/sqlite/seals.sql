-- Statements of the seals: what may be sealed, what is, and the journal as it was sealed.

-- name: sealed_rows
SELECT coalesce(sum(rows), 0) FROM holdfast_seals WHERE seal_id BETWEEN 1 AND :upto;

-- name: journal_begins
-- The first number that the journal has room for: whole partitions leave it.
SELECT 0;

-- name: sealing_bounds
-- Writers take turns, and a number is given out and committed in one turn: what is visible is all there is.
SELECT 1, 1, coalesce(max(seq), 0) FROM holdfast_journal;

-- name: horizon
-- Numbers follow the commits: the highest sealed one says it, and that is hashed.
SELECT s.high_seq FROM holdfast_seals s
 WHERE s.epoch = :epoch AND s.last_xid <= :bound AND s.high_seq <= :below
 ORDER BY s.seal_id DESC LIMIT 1;

-- name: is_horizon
SELECT 1 FROM holdfast_seals s
 WHERE s.epoch = :epoch AND s.high_seq = :number AND s.last_xid <= :bound
 ORDER BY s.seal_id DESC LIMIT 1;

-- name: lock_seals
SELECT 1;

-- name: insert_seal
INSERT INTO holdfast_seals (seal_id, format, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous, hash,
  sealed_at, horizon_xid, horizon_seq)
VALUES (:seal_id, :format, :epoch, :last_xid, :last_seq, :low_seq, :high_seq, :rows, :digest, :previous, :hash, :sealed_at,
  0, :horizon_seq)
RETURNING horizon_xid;
