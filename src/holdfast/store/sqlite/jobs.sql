-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the PostgreSQL dialect.

-- name: insert_jobs
-- The anti-join is the dedupe: a BEFORE INSERT guard stops whatever would replace a row, so ON CONFLICT cannot be used.
INSERT INTO holdfast_jobs (operation, operation_version, client, key, queue, max_attempts, replay_attempts, priority,
  run_at, payload, digest, replaces, state, version, created_at, updated_at, event, actor, reason, move_id)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 6,
  r.value ->> 7, coalesce(r.value ->> 8, :now), r.value ->> 9, r.value ->> 10, r.value ->> 11,
  :state, :version, :now, :now, :event, coalesce(:actor, r.value ->> 2), :reason, :move_id
  FROM json_each(:rows) r
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.client = r.value ->> 2 AND j.key = r.value ->> 3)
 ORDER BY r.key
RETURNING job_id, client, key, digest;

-- name: jobs_by_key
SELECT {job_columns}
  FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.client = r.value ->> 0 AND j.key = r.value ->> 1;

-- name: move_jobs
-- s: source, target, edges, event, excused
-- k: job_id, which of s, version, run_at, result, error code and message, quarantine code, replay reason
WITH s AS MATERIALIZED (
  SELECT key, value ->> 0 AS source, value ->> 1 AS target, value ->> 2 AS edges, value ->> 3 AS event,
    value ->> 4 AS excused
    FROM json_each(:shapes)),
k AS (
  SELECT r.value ->> 0 AS job_id, r.value ->> 1 AS shape, r.value ->> 2 AS version, r.value ->> 3 AS run_at,
    r.value ->> 4 AS result, r.value ->> 5 AS error_code, r.value ->> 6 AS error_message,
    r.value ->> 7 AS quarantine_code, r.value ->> 8 AS replay_reason
    FROM json_each(:rows) r)
UPDATE holdfast_jobs AS j
   SET state = s.target, version = j.version + s.edges, excused = j.excused + s.excused,
       run_at = coalesce(k.run_at, j.run_at), result = coalesce(k.result, j.result),
       last_error_code = coalesce(k.error_code, j.last_error_code),
       last_error_message = coalesce(k.error_message, j.last_error_message),
       quarantine_code = k.quarantine_code, replay_reason = coalesce(k.replay_reason, j.replay_reason),
       updated_at = max(j.updated_at, :now), event = s.event, actor = :actor, reason = :reason, move_id = :move_id,
       grant_id = :grant_id
  FROM k CROSS JOIN s ON s.key = k.shape
 WHERE j.job_id = k.job_id AND j.state = s.source AND j.version = k.version
RETURNING job_id;

-- name: store_results
UPDATE holdfast_jobs AS j SET result = r.value ->> 1
  FROM json_each(:rows) r
 WHERE j.job_id = r.value ->> 0
RETURNING job_id;

-- name: get_jobs
SELECT {job_columns} FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.job_id = r.value ORDER BY j.job_id;

-- name: list_waiting_jobs
-- For a few among many: all that wait are sorted.
SELECT {job_columns} FROM holdfast_jobs j INDEXED BY holdfast_jobs_due
 WHERE j.state = :state AND j.state = 'pending'
   AND (:operation IS NULL OR j.operation = :operation)
   AND (:queue IS NULL OR j.queue = :queue) AND (:client IS NULL OR j.client = :client)
   AND j.job_id < coalesce(:before, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: slim_jobs
UPDATE holdfast_jobs SET payload = NULL, result = NULL
 WHERE job_id IN (SELECT value FROM json_each(:rows)) AND state IN (SELECT value FROM json_each(:states))
   AND updated_at < :before AND payload IS NOT NULL
RETURNING job_id;

-- name: forget_checkpoints
DELETE FROM holdfast_checkpoints WHERE job_id IN (SELECT value FROM json_each(:rows));
