-- Statements about the ledger itself: its settings, operations, queues, journal, counts and the door.

-- name: get_meta
SELECT name, value FROM holdfast_meta;

-- name: set_meta
INSERT INTO holdfast_meta (name, value) VALUES (:name, :value) ON CONFLICT (name) DO UPDATE SET value = excluded.value;

-- name: declare_operations
-- Written over only if it is still the version that the caller has compared its own with.
INSERT INTO holdfast_operations (operation, version, defaults, declared_at)
SELECT r ->> 0, r ->> 1, r ->> 2, coalesce(:now, statement_timestamp()) FROM json_array_elements(:rows) r
ON CONFLICT (operation) DO UPDATE SET version = excluded.version, defaults = excluded.defaults
 WHERE holdfast_operations.version =
       (SELECT r ->> 3 FROM json_array_elements(:rows) r WHERE r ->> 0 = excluded.operation)
RETURNING operation;

-- name: known_operations
SELECT operation, version, defaults FROM holdfast_operations ORDER BY operation;

-- name: journal_of
SELECT {journal_columns} FROM holdfast_journal g WHERE g.machine = :machine AND g.subject = :subject ORDER BY g.version;

-- name: journal_of_executions
SELECT {journal_columns}
  FROM holdfast_executions e JOIN holdfast_journal g ON g.machine = 'EXECUTION' AND g.subject = e.exec_id
 WHERE e.job_id = :job_id ORDER BY g.seq;

-- name: read_counts
SELECT operation, queue, state, sum(n)::bigint AS n
  FROM (SELECT operation, queue, state, n FROM holdfast_counts
        UNION ALL SELECT operation, queue, target, n FROM holdfast_count_deltas
        UNION ALL SELECT operation, queue, source, -n FROM holdfast_count_deltas WHERE source IS NOT NULL) c
 GROUP BY operation, queue, state HAVING sum(n) <> 0 ORDER BY operation, queue, state;

-- name: fold_counts
-- Two keepers may fold at once: each takes the deltas that it can lock, and writes the counts in one order.
WITH gone AS (
  DELETE FROM holdfast_count_deltas
   WHERE delta_id IN (SELECT delta_id FROM holdfast_count_deltas FOR UPDATE SKIP LOCKED)
  RETURNING operation, queue, source, target, n)
INSERT INTO holdfast_counts (operation, queue, state, n)
SELECT operation, queue, state, sum(n)
  FROM (SELECT operation, queue, target AS state, n FROM gone
        UNION ALL SELECT operation, queue, source, -n FROM gone WHERE source IS NOT NULL) d
 GROUP BY operation, queue, state ORDER BY operation, queue, state
ON CONFLICT (operation, queue, state) DO UPDATE SET n = holdfast_counts.n + excluded.n;

-- name: open_door
INSERT INTO holdfast_maintenance (who, why, grant_id, opened_at) VALUES (:who, :why, :grant_id, coalesce(:now, statement_timestamp()))
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
INSERT INTO holdfast_journal (epoch, xid, machine, subject, version, source, target, event, actor, reason, attempt,
  move_id, grant_id, maintenance_id, at)
SELECT g.epoch, g.xid, :machine, :subject, :version, :source, :target, :event, g.actor, :reason, :attempt, :move_id,
  NULL, g.maintenance_id, :at
  FROM holdfast_journal g WHERE g.machine = 'MAINTENANCE' AND g.subject = :maintenance_id AND g.version = 1;

-- name: recount
DELETE FROM holdfast_count_deltas;
DELETE FROM holdfast_counts;
INSERT INTO holdfast_counts (operation, queue, state, n)
SELECT operation, queue, state, count(*) FROM holdfast_jobs GROUP BY operation, queue, state;

-- name: forget_journal_rows
DELETE FROM holdfast_journal WHERE seq = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: lock_records
-- Rows that somebody wrote with numbers of their own must not stand in the way of the next ones.
LOCK TABLE holdfast_jobs, holdfast_executions, holdfast_grants, holdfast_procedures, holdfast_steps,
  holdfast_values, holdfast_switches
  IN SHARE ROW EXCLUSIVE MODE;
SELECT setval('holdfast_journal_seq', greatest(nextval('holdfast_journal_seq'), (SELECT max(seq) FROM holdfast_journal)));
SELECT setval(s.id, greatest(nextval(s.id), (SELECT max(job_id) FROM holdfast_jobs)))
  FROM (SELECT pg_get_serial_sequence('holdfast_jobs', 'job_id')::regclass AS id) s;
SELECT setval(s.id, greatest(nextval(s.id), (SELECT max(exec_id) FROM holdfast_executions)))
  FROM (SELECT pg_get_serial_sequence('holdfast_executions', 'exec_id')::regclass AS id) s;
