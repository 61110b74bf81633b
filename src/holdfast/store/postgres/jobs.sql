-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the SQLite dialect.
-- Every guard is a join column, and every id is named by ANY: a plan cached on empty tables is far slower otherwise. A row
-- is turned into jsonb once (OFFSET 0 keeps it so), because each ->> on json reads its text anew; all rows together stay
-- json, which may be longer.

-- name: insert_jobs
INSERT INTO holdfast_jobs (operation, operation_version, client, key, queue, max_attempts, replay_attempts, priority,
  run_at, payload, digest, replaces, state, version, created_at, updated_at, event, actor, reason, move_id)
SELECT r.v ->> 0, r.v ->> 1, r.v ->> 2, r.v ->> 3, r.v ->> 4, (r.v ->> 5)::integer, (r.v ->> 6)::integer,
  (r.v ->> 7)::integer, coalesce((r.v ->> 8)::timestamptz, t.now), r.v ->> 9, r.v ->> 10, (r.v ->> 11)::bigint,
  :state, :version, t.now, t.now, :event, coalesce(:actor::text, r.v ->> 2), :reason, :move_id
  FROM (SELECT v::jsonb AS v, n FROM json_array_elements(:rows) WITH ORDINALITY x (v, n) OFFSET 0) r,
       (SELECT coalesce(:now, statement_timestamp()) AS now) t
 ORDER BY r.n
ON CONFLICT (client, key) WHERE key IS NOT NULL DO NOTHING
RETURNING job_id, client, key, digest;

-- name: jobs_by_key
SELECT {job_columns}
  FROM json_array_elements(:rows) r JOIN holdfast_jobs j ON j.client = r ->> 0 AND j.key = r ->> 1;

-- name: move_jobs
-- s: source, target, edges, event, excused
-- k: job_id, which of s, version, run_at, result, error code and message, quarantine code, replay reason
WITH s AS MATERIALIZED (
  SELECT n - 1 AS shape, v ->> 0 AS source, v ->> 1 AS target, (v ->> 2)::integer AS edges, v ->> 3 AS event,
    (v ->> 4)::integer AS excused
    FROM jsonb_array_elements(:shapes) WITH ORDINALITY x (v, n)),
k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 2)::bigint AS version, (r ->> 3)::timestamptz AS run_at, r ->> 4 AS result,
    r ->> 5 AS error_code, r ->> 6 AS error_message, r ->> 7 AS quarantine_code, r ->> 8 AS replay_reason,
    s.source, s.target, s.edges, s.event, s.excused
    FROM (SELECT v::jsonb AS r FROM json_array_elements(:rows) v OFFSET 0) x JOIN s ON s.shape = (r ->> 1)::bigint
   ORDER BY 1)
UPDATE holdfast_jobs AS j
   SET state = k.target, version = j.version + k.edges, excused = j.excused + k.excused,
       run_at = coalesce(k.run_at, j.run_at), result = coalesce(k.result, j.result),
       last_error_code = coalesce(k.error_code, j.last_error_code),
       last_error_message = coalesce(k.error_message, j.last_error_message),
       quarantine_code = k.quarantine_code, replay_reason = coalesce(k.replay_reason, j.replay_reason),
       updated_at = greatest(j.updated_at, coalesce(:now, statement_timestamp())), event = k.event, actor = :actor,
       reason = :reason, move_id = :move_id, grant_id = :grant_id
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
   AND j.job_id = k.job_id AND j.state = k.source AND j.version = k.version
RETURNING j.job_id;

-- name: store_results
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS job_id, r ->> 1 AS result FROM json_array_elements(:rows) r)
UPDATE holdfast_jobs AS j SET result = k.result
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.job_id = k.job_id
RETURNING j.job_id;

-- name: get_jobs
SELECT {job_columns}
  FROM json_array_elements_text(:rows) r JOIN holdfast_jobs j ON j.job_id = r::bigint ORDER BY j.job_id;

-- name: list_waiting_jobs
-- For a few among many: all that wait are sorted.
SELECT {job_columns} FROM holdfast_jobs j
 WHERE j.state = :state AND j.state = 'pending'
   AND (:operation::text IS NULL OR j.operation = :operation)
   AND (:queue::text IS NULL OR j.queue = :queue) AND (:client::text IS NULL OR j.client = :client)
   AND j.job_id < coalesce(:before::bigint, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: slim_jobs
UPDATE holdfast_jobs SET payload = NULL, result = NULL
 WHERE job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
   AND state IN (SELECT json_array_elements_text(:states)) AND updated_at < :before AND payload IS NOT NULL
RETURNING job_id;

-- name: forget_checkpoints
DELETE FROM holdfast_checkpoints WHERE job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));
