-- Statements of parked jobs, and of the slots and tokens of limits.

-- name: lock_limits
-- One transaction at a time looks at slots and tokens, until it commits. A statement of its own: the next one sees what
-- the one before has committed. The time is read when the lock is held.
SELECT coalesce(:now, clock_timestamp()) FROM pg_advisory_xact_lock(4604, ('holdfast_slots'::regclass)::oid::integer);

-- name: park_jobs
-- rows: job_id, bucket. Parking is no move: neither version nor journal. Only a pending job can be parked. A job that
-- waits for others need not wait for the depth of its queue too.
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS job_id, r ->> 1 AS bucket FROM json_array_elements(:rows) r ORDER BY 1)
UPDATE holdfast_jobs AS j SET parked = :parked, limit_key = k.bucket
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.job_id = k.job_id AND j.state = 'pending' AND (j.parked IS NULL OR j.parked = 'depth' AND :parked = 'after')
RETURNING j.job_id;

-- name: admit_parked
-- rows: bucket, how many to let go. What another transaction has locked, such as a cancel, is left out.
WITH k AS MATERIALIZED (
  SELECT f.job_id
    FROM (SELECT r ->> 0 AS bucket, least((r ->> 1)::bigint, :most::bigint) AS n FROM json_array_elements(:rows) r) b
    CROSS JOIN LATERAL (
      SELECT j.job_id FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key = b.bucket
       ORDER BY j.priority DESC, j.run_at, j.job_id LIMIT b.n FOR NO KEY UPDATE SKIP LOCKED) f)
UPDATE holdfast_jobs AS j SET parked = NULL, limit_key = NULL
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.parked IS NOT NULL
RETURNING j.job_id, j.queue;

-- name: limited_jobs
-- The limits, as rows without a job, and then the due jobs in the order of a claim, locked, each with its key; see
-- claim_jobs. One statement, because other claims wait for the lock of the limits meanwhile.
WITH RECURSIVE
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  every_lane (queue, priority) AS (
    SELECT q, (SELECT max(j.priority) FROM holdfast_jobs j
                WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q)
      FROM json_array_elements_text(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM every_lane l WHERE l.priority IS NOT NULL),
  lanes AS MATERIALIZED (SELECT queue, priority FROM every_lane WHERE priority IS NOT NULL ORDER BY priority DESC),
  due AS MATERIALIZED (
    SELECT j.job_id, j.queue, j.operation, j.priority, j.due_at
      FROM lanes l CROSS JOIN LATERAL (
        SELECT job_id, queue, operation, priority, due_at FROM holdfast_jobs
         WHERE due_at IS NOT NULL AND parked IS NULL AND queue = l.queue AND priority = l.priority
           AND due_at <= (SELECT now FROM t)
           AND operation <> ALL (ARRAY(SELECT substr(w.name, 11) FROM holdfast_switches w
                                        WHERE w.state = 'on' AND starts_with(w.name, 'operation:')))
           AND (deadline_at IS NULL OR deadline_at > (SELECT now FROM t))
         ORDER BY due_at, job_id LIMIT (SELECT :n::bigint) FOR NO KEY UPDATE SKIP LOCKED) j
     LIMIT (SELECT :n::bigint))
SELECT NULL::bigint, r.name, r.value, NULL FROM holdfast_settings r WHERE r.kind = 'limit' AND r.state = 'active'
UNION ALL
SELECT * FROM (
  SELECT d.job_id, d.queue, d.operation, (c.payload::json #> string_to_array((SELECT s.value::json ->> 'path' FROM holdfast_settings s
      WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || d.operation), '.'))::text
    FROM due d JOIN holdfast_calls c ON c.job_id = d.job_id ORDER BY d.priority DESC, d.due_at, d.job_id) k;

-- name: limited_these
-- SKIP LOCKED: who holds the lock of the limits must not wait for who holds a job.
SELECT j.job_id, j.queue, j.operation, (c.payload::json #> string_to_array((SELECT s.value::json ->> 'path'
    FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation), '.'))::text
  FROM json_array_elements_text(:rows) r JOIN holdfast_jobs j ON j.job_id = r::bigint
  JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.due_at <= coalesce(:now, statement_timestamp()) AND j.parked IS NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
   AND (j.deadline_at IS NULL OR j.deadline_at > coalesce(:now, statement_timestamp()))
 ORDER BY j.job_id FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: running_jobs
SELECT j.job_id, j.queue, j.operation, (c.payload::json #> string_to_array((SELECT s.value::json ->> 'path'
    FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation), '.'))::text
  FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id WHERE j.lease_expires_at IS NOT NULL;

-- name: one_job
SELECT j.job_id, j.queue, j.operation, (c.payload::json #> string_to_array((SELECT s.value::json ->> 'path'
    FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation), '.'))::text
  FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id WHERE j.job_id = :job_id;

-- name: take_slots
-- rows: bucket, slot, job_id
INSERT INTO holdfast_slots (bucket, slot, job_id)
SELECT r ->> 0, (r ->> 1)::integer, (r ->> 2)::bigint FROM json_array_elements(:rows) r;

-- name: drop_slots
-- A slot that the end of a job is freeing is left to it: that transaction may wait for the lock of the limits.
DELETE FROM holdfast_slots s
 USING (SELECT k.bucket, k.slot FROM holdfast_slots k
         WHERE k.bucket = ANY (ARRAY(SELECT json_array_elements_text(:rows))) FOR UPDATE SKIP LOCKED) k
 WHERE s.bucket = k.bucket AND s.slot = k.slot;

-- name: write_buckets
-- rows: bucket, tokens, at, wake_at
INSERT INTO holdfast_buckets (bucket, tokens, at, wake_at)
SELECT r ->> 0, (r ->> 1)::double precision, (r ->> 2)::timestamptz, (r ->> 3)::timestamptz FROM json_array_elements(:rows) r
ON CONFLICT (bucket) DO UPDATE SET tokens = excluded.tokens, at = excluded.at, wake_at = excluded.wake_at;
