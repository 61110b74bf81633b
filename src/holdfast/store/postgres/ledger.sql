-- Statements about the ledger itself: its settings, operations, queues, journal, counts and the door.

-- name: declare_operations
-- Written over only if it is still the version that the caller has compared its own with.
INSERT INTO holdfast_operations (operation, version, defaults, declared_at)
SELECT r ->> 0, r ->> 1, r ->> 2, coalesce(:now, statement_timestamp()) FROM json_array_elements(:rows) r
ON CONFLICT (operation) DO UPDATE SET version = excluded.version, defaults = excluded.defaults
 WHERE holdfast_operations.version =
       (SELECT r ->> 3 FROM json_array_elements(:rows) r WHERE r ->> 0 = excluded.operation)
RETURNING operation;

-- name: fold_counts
-- One transaction folds at a time, and no other one waits for it: it may be a user's that submits, whose trigger does the
-- same, except for the last statement (see functions.py). Minutes are kept for two days before the last move.
WITH gone AS (
  DELETE FROM holdfast_count_deltas
   WHERE (SELECT pg_try_advisory_xact_lock(4604, ('holdfast_counts'::regclass)::oid::integer))
  RETURNING operation, queue, source, target, event, code, n, at),
minutes AS (
  INSERT INTO holdfast_minutes (minute, operation, queue, source, target, event, code, n)
  SELECT date_trunc('minute', at, 'UTC'), operation, queue, coalesce(source, ''), target, event, coalesce(code, ''),
         sum(n)
    FROM gone WHERE at IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
  ON CONFLICT (minute, operation, queue, source, target, event, code)
    DO UPDATE SET n = holdfast_minutes.n + excluded.n)
INSERT INTO holdfast_counts (operation, queue, state, n)
SELECT operation, queue, state, sum(n)
  FROM (SELECT operation, queue, target AS state, n FROM gone
        UNION ALL SELECT operation, queue, source, -n FROM gone WHERE source IS NOT NULL) d
 GROUP BY operation, queue, state ORDER BY operation, queue, state
ON CONFLICT (operation, queue, state) DO UPDATE SET n = holdfast_counts.n + excluded.n;
DELETE FROM holdfast_minutes
 WHERE (SELECT pg_try_advisory_xact_lock(4604, ('holdfast_counts'::regclass)::oid::integer))
   AND minute < (SELECT max(minute) FROM holdfast_minutes) - interval '2 days';

-- name: forget_journal_rows
DELETE FROM holdfast_journal WHERE seq = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: lock_records
-- A client may have written rows with numbers of its own choice: the next numbers must be greater.
LOCK TABLE holdfast_calls, holdfast_jobs, holdfast_aborted, holdfast_grants, holdfast_procedures, holdfast_steps,
  holdfast_values, holdfast_switches, holdfast_settings
  IN SHARE ROW EXCLUSIVE MODE;
SELECT setval('holdfast_journal_seq', greatest(nextval('holdfast_journal_seq'), (SELECT max(seq) FROM holdfast_journal)));
SELECT setval(s.id, greatest(nextval(s.id), (SELECT max(job_id) FROM holdfast_calls)))
  FROM (SELECT pg_get_serial_sequence('holdfast_calls', 'job_id')::regclass AS id) s;
