-- Statements about the ledger itself: its settings, operations, queues, journal, counts and the door.

-- name: get_meta
SELECT name, value FROM holdfast_meta;

-- name: set_meta
INSERT INTO holdfast_meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: known_operations
SELECT operation, version, defaults FROM holdfast_operations ORDER BY operation;

-- name: journal_of
SELECT {journal_columns} FROM holdfast_edges g
 WHERE g.record IN (:subject, :record) AND g.subject = :subject AND g.machine = :machine ORDER BY g.version, g.seq;

-- name: read_counts
-- Deltas are added up first: where no worker folds them there are many, of few kinds.
WITH d AS (SELECT operation, queue, source, target, sum(n) AS n FROM holdfast_count_deltas
            GROUP BY operation, queue, source, target)
SELECT operation, queue, state, CAST(sum(n) AS bigint) AS n
  FROM (SELECT operation, queue, state, n FROM holdfast_counts
        UNION ALL SELECT operation, queue, target, n FROM d
        UNION ALL SELECT operation, queue, source, -n FROM d WHERE source IS NOT NULL) c
 GROUP BY operation, queue, state HAVING sum(n) <> 0 ORDER BY operation, queue, state;

-- name: open_door
INSERT INTO holdfast_maintenance (who, why, grant_id, opened_at) VALUES (:who, :why, :grant_id, {now})
RETURNING maintenance_id;

-- name: shut_door
DELETE FROM holdfast_maintenance WHERE maintenance_id = :maintenance_id RETURNING maintenance_id;

-- name: note_maintenance
INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, reason, attempt,
  move_id, grant_id, maintenance_id, at)
SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target, :event, g.actor, :note, g.attempt,
  g.move_id, g.grant_id, g.maintenance_id, g.at
  FROM holdfast_journal g WHERE g.machine = 'MAINTENANCE' AND g.subject = :maintenance_id
 ORDER BY g.version DESC LIMIT 1;

-- name: take_duty
INSERT INTO holdfast_meta (name, value) VALUES (:name, :now)
ON CONFLICT (name) DO UPDATE SET value = excluded.value WHERE holdfast_meta.value <= :due
RETURNING name;

-- name: tell_repair
INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, status_from, status_to, event,
  actor, reason, attempt, move_id, grant_id, maintenance_id, at)
SELECT g.epoch, g.xid, :machine, :subject, :version, :source, :target, :status_from, :status_to, :event,
  g.actor, :reason, :attempt, :move_id, NULL, g.maintenance_id, :at
  FROM holdfast_journal g WHERE g.machine = 'MAINTENANCE' AND g.subject = :maintenance_id AND g.version = 1;

-- name: uncount_job
-- For a job that is deleted under maintenance; one that is inserted is counted by its trigger.
INSERT INTO holdfast_count_deltas (operation, queue, source, target, n) VALUES (:operation, :queue, NULL, :state, -1);

-- name: recount
DELETE FROM holdfast_count_deltas;
DELETE FROM holdfast_counts;
INSERT INTO holdfast_counts (operation, queue, state, n)
SELECT operation, queue, state, count(*) FROM holdfast_jobs GROUP BY operation, queue, state;
