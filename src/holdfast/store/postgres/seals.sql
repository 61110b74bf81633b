-- Statements of the seals: what may be sealed, what is, and the journal as it was sealed.

-- name: last_seal
SELECT {seal_columns} FROM holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;

-- name: list_seals
SELECT {seal_columns} FROM holdfast_seals s WHERE s.seal_id > :after AND s.seal_id <= :upto
 ORDER BY s.seal_id LIMIT :n;

-- name: sealed_rows
SELECT coalesce(sum(rows), 0)::bigint FROM holdfast_seals WHERE seal_id BETWEEN 1 AND :upto;

-- name: seal_over
SELECT s.seal_id FROM holdfast_seals s
 WHERE s.seal_id > 0 AND (s.epoch, s.last_xid, s.last_seq) >= (:epoch, :xid, :seq) ORDER BY s.seal_id LIMIT 1;

-- name: list_archives
SELECT {archive_columns} FROM holdfast_archives a ORDER BY a.archive_id;

-- name: journal_chunk
-- The values of a row in the order in which they are hashed.
SELECT g.seq, g.epoch, g.xid, g.machine, g.subject, g.version, g.source, g.target, g.event, g.actor, g.reason,
  g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
  FROM holdfast_journal g WHERE g.seq > :after AND g.seq <= :upto ORDER BY g.seq LIMIT :n;

-- name: next_row
SELECT min(seq) FROM holdfast_journal WHERE seq > :after;

-- name: journal_block
SELECT g.seq, g.epoch, g.xid, g.machine, g.subject, g.version, g.source, g.target, g.event, g.actor, g.reason,
  g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
  FROM holdfast_journal g
 WHERE g.seq > :after AND g.seq <= :upto
   AND (g.epoch, g.xid, g.seq) > (:from_epoch, :from_xid, :from_seq)
   AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)
 ORDER BY g.seq LIMIT :n;

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

-- name: ahead_of_time
SELECT g.xid FROM holdfast_journal g WHERE g.seq > :floor AND g.epoch = :epoch AND g.xid >= :next_xid LIMIT 1;

-- name: first_unsealed
SELECT g.seq FROM holdfast_journal g
 WHERE g.seq > :floor AND g.seq <= :upto AND (g.epoch, g.xid, g.seq) > (:from_epoch, :from_xid, :from_seq)
 ORDER BY g.seq LIMIT 1;

-- name: least_beyond
SELECT g.epoch, g.xid, g.seq FROM holdfast_journal g
 WHERE g.seq > :after AND g.seq <= :upto AND (g.epoch, g.xid, g.seq) > (:from_epoch, :from_xid, :from_seq)
 ORDER BY g.epoch, g.xid, g.seq LIMIT 1;

-- name: unsealed_blocks
-- Rows in the order of their keys, cut every n rows, where an epoch ends, and at the end.
SELECT r.epoch, max(r.xid), max(r.seq) FILTER (WHERE r.n = r.n / :n * :n OR r.next_seq IS NULL), min(r.seq), max(r.seq),
  count(*)
  FROM (SELECT g.epoch, g.xid, g.seq, row_number() OVER keys AS n, lead(g.seq) OVER keys AS next_seq
          FROM holdfast_journal g
         WHERE g.seq > :floor AND g.seq <= :upto
           AND (g.epoch, g.xid, g.seq) > (:from_epoch, :from_xid, :from_seq)
           AND (g.epoch, g.xid, g.seq) < (:epoch, :xid, :seq)
        WINDOW keys AS (PARTITION BY g.epoch ORDER BY g.xid, g.seq)) r
 GROUP BY r.epoch, (r.n - 1) / :n ORDER BY r.epoch, (r.n - 1) / :n;

-- name: lock_seals
LOCK TABLE holdfast_seals IN SHARE ROW EXCLUSIVE MODE;

-- name: insert_seal
INSERT INTO holdfast_seals (seal_id, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous, hash,
  sealed_at, horizon_xid, horizon_seq)
VALUES (:seal_id, :epoch, :last_xid, :last_seq, :low_seq, :high_seq, :rows, :digest, :previous, :hash, :sealed_at,
  pg_current_xact_id()::text::bigint, :horizon_seq)
RETURNING horizon_xid;
