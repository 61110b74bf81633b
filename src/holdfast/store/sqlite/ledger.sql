-- Statements about the ledger itself: its settings, operations, queues, journal, counts and the door.

-- name: declare_operations
-- Written over only if it is still the version that the caller has compared its own with.
INSERT INTO holdfast_operations (operation, version, defaults, declared_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, :now FROM json_each(:rows) r WHERE true
ON CONFLICT (operation) DO UPDATE SET version = excluded.version, defaults = excluded.defaults
 WHERE holdfast_operations.version =
       (SELECT r.value ->> 3 FROM json_each(:rows) r WHERE r.value ->> 0 = excluded.operation)
RETURNING operation;

-- name: fold_counts
-- A trigger does the same, except for the last statement: see triggers.py. There are two deltas a job and only a few
-- kinds of them: they are summed by kind before states are. Minutes are kept for two days before the last move.
INSERT INTO holdfast_counts (operation, queue, state, n)
SELECT operation, queue, CASE s.sign WHEN 1 THEN target ELSE source END AS state, sum(n * s.sign)
  FROM (SELECT operation, queue, source, target, sum(n) AS n FROM holdfast_count_deltas
         GROUP BY operation, queue, source, target) kinds
  CROSS JOIN (SELECT 1 AS sign UNION ALL SELECT -1) s
 WHERE s.sign = 1 OR source IS NOT NULL GROUP BY operation, queue, state
ON CONFLICT (operation, queue, state) DO UPDATE SET n = holdfast_counts.n + excluded.n;
INSERT INTO holdfast_minutes (minute, operation, queue, source, target, event, code, n)
SELECT substr(at, 1, 17) || '00.000000Z', operation, queue, coalesce(source, ''), target, event, coalesce(code, ''),
       sum(n)
  FROM holdfast_count_deltas WHERE at IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7
ON CONFLICT (minute, operation, queue, source, target, event, code)
  DO UPDATE SET n = holdfast_minutes.n + excluded.n;
DELETE FROM holdfast_count_deltas;
DELETE FROM holdfast_minutes
 WHERE minute < (SELECT replace(datetime(max(minute), '-2 days'), ' ', 'T') FROM holdfast_minutes);

-- name: forget_journal_rows
DELETE FROM holdfast_journal WHERE seq IN (SELECT value FROM json_each(:rows));

-- name: lock_records
SELECT 1;
