-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the PostgreSQL dialect.

-- name: last_call
SELECT coalesce(max(seq), 0) FROM sqlite_sequence WHERE name = 'holdfast_calls';

-- name: insert_jobs
-- s: what submissions share, the fields of store.requests.Shared: {shared_values} reads them from an array, {set_columns}
-- are the columns of a call among them. rows: which of s, payload, digest, key.
-- The anti-join is the dedupe: a BEFORE INSERT guard stops whatever would replace a row, so ON CONFLICT cannot be used.
-- Writers take turns, so the ids after the last one are free; the order of the rows does not matter, and to sort them
-- would cost. While a key is erased or a queue has a limit, only `store.verbs.gate` may insert: it sets :gated. Returned:
-- the id, and which of the rows it is.
WITH s AS MATERIALIZED (SELECT key AS shape, {shared_values} FROM json_each(:shapes))
INSERT INTO holdfast_calls (job_id, {set_columns}, payload, digest, key, created_at)
SELECT :after + 1 + r.key, {set_columns}, r.value ->> 1, r.value ->> 2, r.value ->> 3, :now
  FROM json_each(:rows) r CROSS JOIN s ON s.shape = r.value ->> 0
 WHERE (:gated OR NOT EXISTS (SELECT 1 FROM holdfast_erased)
    AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.depth_max IS NOT NULL))
   AND NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.client = s.client AND c.key = r.value ->> 3);
WITH s AS MATERIALIZED (SELECT key AS shape, {shared_values} FROM json_each(:shapes))
INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version, updated_at, event, actor,
  reason, move_id)
SELECT c.job_id, s.operation, s.queue, s.priority, coalesce(s.run_at, :now), coalesce(s.run_at, :now), :state, :version,
  :now, :event, coalesce(:actor, s.client), :reason, :move_id
  FROM json_each(:rows) r CROSS JOIN s ON s.shape = r.value ->> 0
  CROSS JOIN holdfast_calls c ON c.job_id = :after + 1 + r.key
 ORDER BY r.key
RETURNING job_id, job_id - :after - 1;

-- name: insert_job
-- One submission: `changes` is 0 if its key is in use, or for the gate. Returned: the id.
INSERT INTO holdfast_calls ({set_columns}, payload, digest, key, created_at)
SELECT {set_parameters}, :payload, :digest, :key, :now
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.client = :client AND c.key = :key)
   AND NOT EXISTS (SELECT 1 FROM holdfast_erased)
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.depth_max IS NOT NULL);
INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version, updated_at, event, actor,
  reason, move_id)
SELECT last_insert_rowid(), :operation, :queue, :priority, coalesce(:run_at, :now), coalesce(:run_at, :now), :state,
  :version, :now, :event, coalesce(:actor, :client), :reason, :move_id
 WHERE changes() = 1
RETURNING job_id;

-- name: jobs_by_key
SELECT {job_columns}
  FROM json_each(:rows) r CROSS JOIN holdfast_calls c ON c.client = r.value ->> 0 AND c.key = r.value ->> 1
  CROSS JOIN holdfast_jobs j ON j.job_id = c.job_id;

-- name: rule_jobs
-- s: source, target, edges, event
-- k: job_id, which of s, version, run_at, error code and message, quarantine code, replay reason
WITH s AS MATERIALIZED (
  SELECT key, value ->> 0 AS source, value ->> 1 AS target, value ->> 2 AS edges, value ->> 3 AS event
    FROM json_each(:shapes)),
k AS (
  SELECT r.value ->> 0 AS job_id, r.value ->> 1 AS shape, r.value ->> 2 AS version, r.value ->> 3 AS run_at,
    r.value ->> 4 AS error_code, r.value ->> 5 AS error_message, r.value ->> 6 AS quarantine_code,
    r.value ->> 7 AS replay_reason
    FROM json_each(:rows) r)
UPDATE holdfast_jobs AS j
   SET state = s.target, version = j.version + s.edges, run_at = coalesce(k.run_at, j.run_at),
       due_at = iif(s.target = 'pending', coalesce(k.run_at, j.run_at), NULL),
       parked = NULL, limit_key = NULL,
       resting = iif(s.target IN ('failed', 'quarantined'), s.target, NULL),
       last_error_code = coalesce(k.error_code, j.last_error_code),
       last_error_message = coalesce(k.error_message, j.last_error_message),
       quarantine_code = k.quarantine_code, replay_reason = coalesce(k.replay_reason, j.replay_reason),
       updated_at = max(j.updated_at, :now), event = s.event, actor = :actor, reason = :reason, move_id = :move_id,
       grant_id = :grant_id
  FROM k CROSS JOIN s ON s.key = k.shape
 WHERE j.job_id = k.job_id AND j.state = s.source AND j.version = k.version
RETURNING job_id;

-- name: get_jobs
SELECT {job_columns} FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.job_id = r.value
  CROSS JOIN holdfast_calls c ON c.job_id = j.job_id ORDER BY j.job_id;

-- name: list_waiting_jobs
-- For a few among many: all that wait are sorted.
SELECT {job_columns}
  FROM (SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_due WHERE due_at IS NOT NULL AND parked IS NULL
        UNION ALL SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_parked WHERE parked IS NOT NULL) w
  CROSS JOIN holdfast_jobs j ON j.job_id = w.job_id CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.state = :state
   AND (:operation IS NULL OR j.operation = :operation)
   AND (:queue IS NULL OR j.queue = :queue) AND (:client IS NULL OR c.client = :client)
   AND j.job_id < coalesce(:before, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: slim_jobs
UPDATE holdfast_jobs SET result = NULL
 WHERE job_id IN (SELECT value FROM json_each(:rows)) AND state IN (SELECT value FROM json_each(:states))
   AND updated_at < :before AND result IS NOT NULL;
UPDATE holdfast_calls SET payload = NULL
 WHERE job_id IN (SELECT value FROM json_each(:rows)) AND payload IS NOT NULL
   AND EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = holdfast_calls.job_id
                  AND j.state IN (SELECT value FROM json_each(:states)) AND j.updated_at < :before)
RETURNING job_id;

-- name: forget_checkpoints
DELETE FROM holdfast_checkpoints WHERE job_id IN (SELECT value FROM json_each(:rows));

-- name: add_traces
-- rows: job_id, traceparent, tracestate
INSERT INTO holdfast_traces (job_id, traceparent, tracestate)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2 FROM json_each(:rows) r WHERE true ON CONFLICT (job_id) DO NOTHING;

-- name: forget_traces
DELETE FROM holdfast_traces WHERE job_id IN (SELECT value FROM json_each(:rows));

-- name: forget_tracebacks
DELETE FROM holdfast_tracebacks WHERE job_id IN (SELECT value FROM json_each(:rows));
