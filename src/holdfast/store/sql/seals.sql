-- Statements of the seals: what may be sealed, what is, and the journal as it was sealed.

-- name: last_seal
SELECT {seal_columns} FROM holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;

-- name: list_seals
SELECT {seal_columns} FROM holdfast_seals s WHERE s.seal_id > :after AND s.seal_id <= :upto
 ORDER BY s.seal_id LIMIT :n;

-- name: seal_over
SELECT s.seal_id FROM holdfast_seals s
 WHERE s.seal_id > 0 AND (s.epoch, s.last_xid, s.last_seq) >= (:epoch, :xid, :seq) ORDER BY s.seal_id LIMIT 1;

-- name: list_archives
SELECT {archive_columns} FROM holdfast_archives a ORDER BY a.archive_id;

-- name: journal_chunk
-- The values of a row in the order in which they are hashed.
SELECT g.seq, g.epoch, g.xid, g.machine, g.subject, g.version, g.source, g.target, g.event, g.actor, g.reason,
  g.attempt, g.move_id, g.grant_id, g.maintenance_id, {at_text}, g.status_from, g.status_to
  FROM holdfast_journal g WHERE g.seq > :after AND g.seq <= :upto ORDER BY g.seq LIMIT :n;

-- name: next_row
SELECT min(seq) FROM holdfast_journal WHERE seq > :after;

-- name: journal_block
SELECT g.seq, g.epoch, g.xid, g.machine, g.subject, g.version, g.source, g.target, g.event, g.actor, g.reason,
  g.attempt, g.move_id, g.grant_id, g.maintenance_id, {at_text}, g.status_from, g.status_to
  FROM holdfast_journal g
 WHERE g.seq > :after AND g.seq <= :upto
   AND (g.epoch, g.xid, g.seq) > (:from_epoch, :from_xid, :from_seq)
   AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)
 ORDER BY g.seq LIMIT :n;

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
