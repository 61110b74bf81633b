-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the SQLite dialect.
-- Every guard is a join column, and every id is named by ANY: a plan cached on empty tables is far slower otherwise. A row is turned into jsonb once
-- (OFFSET 0 keeps it so), because each ->> on json reads its text anew; all rows together stay json, which may be longer.

-- name: last_call
-- The sequence gives out the ids here.
SELECT 0;

-- name: insert_jobs
-- s: what submissions share, the fields of store.requests.Shared: {shared_values} reads them from an array, {set_columns}
-- are the columns of a call among them. Row by row: payload, digest, key, which of s; the last two may be left out.
-- A call that exists already makes no job. While a key is erased or a queue has a limit, only `store.verbs.gate` may
-- insert: it sets :gated. Returned: the ids in the order of the rows, as one text, empty for a row that made no job.
WITH s AS MATERIALIZED (
  SELECT n - 1 AS shape, coalesce(:now, statement_timestamp()) AS now, {shared_values}
    FROM jsonb_array_elements(:shapes) WITH ORDINALITY x (value, n)),
k AS MATERIALIZED (
  SELECT nextval('holdfast_calls_job_id_seq') AS job_id, r.n, r.payload, r.digest, r.key, s.*
    FROM ROWS FROM (string_to_table(:payloads, :between), string_to_table(:digests, ' '), json_array_elements_text(:keys),
      unnest(:which::bigint[])) WITH ORDINALITY r (payload, digest, key, which, n)
    JOIN s ON s.shape = coalesce(r.which, 0)
   ORDER BY r.n),
c AS (
  INSERT INTO holdfast_calls (job_id, {set_columns}, payload, digest, key, created_at)
  SELECT job_id, {set_columns}, payload, digest, key, now
    FROM k
   WHERE :gated::boolean OR NOT EXISTS (SELECT 1 FROM holdfast_erased)
     AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.depth_max IS NOT NULL)
   ORDER BY n
  ON CONFLICT (client, key) WHERE key IS NOT NULL DO NOTHING
  RETURNING job_id),
j AS (
  INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version, updated_at, event,
    actor, reason, move_id)
  SELECT k.job_id, k.operation, k.queue, k.priority, coalesce(k.run_at, k.now), coalesce(k.run_at, k.now), :state,
    :version, k.now, :event, coalesce(:actor::text, k.client), :reason, :move_id
    FROM k JOIN c ON c.job_id = k.job_id ORDER BY k.n)
SELECT string_agg(coalesce(c.job_id::text, ''), ',' ORDER BY k.n) FROM k LEFT JOIN c ON c.job_id = k.job_id;

-- name: insert_job
-- One submission: starting the statement above costs more than its one row. Returned: the id, unless the key is in use.
WITH c AS (
  INSERT INTO holdfast_calls ({set_columns}, payload, digest, key, created_at)
  SELECT {set_parameters}, :payload, :digest, :key, coalesce(:now, statement_timestamp())
   WHERE NOT EXISTS (SELECT 1 FROM holdfast_erased)
     AND NOT EXISTS (SELECT 1 FROM holdfast_queues q WHERE q.depth_max IS NOT NULL)
  ON CONFLICT (client, key) WHERE key IS NOT NULL DO NOTHING
  RETURNING job_id, created_at)
INSERT INTO holdfast_jobs (job_id, operation, queue, priority, run_at, due_at, state, version, updated_at, event, actor,
  reason, move_id)
SELECT c.job_id, :operation, :queue, :priority, coalesce(:run_at, c.created_at), coalesce(:run_at, c.created_at), :state,
  :version, c.created_at, :event, coalesce(:actor::text, :client), :reason, :move_id
  FROM c
RETURNING job_id;

-- name: jobs_by_key
SELECT {job_columns}
  FROM json_array_elements(:rows) r JOIN holdfast_calls c ON c.client = r ->> 0 AND c.key = r ->> 1
  JOIN holdfast_jobs j ON j.job_id = c.job_id;

-- name: rule_jobs
-- s: source, target, edges, event
-- k: job_id, which of s, version, run_at, error code and message, quarantine code, replay reason
WITH s AS MATERIALIZED (
  SELECT n - 1 AS shape, v ->> 0 AS source, v ->> 1 AS target, (v ->> 2)::integer AS edges, v ->> 3 AS event
    FROM jsonb_array_elements(:shapes) WITH ORDINALITY x (v, n)),
k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 2)::bigint AS version, (r ->> 3)::timestamptz AS run_at,
    r ->> 4 AS error_code, r ->> 5 AS error_message, r ->> 6 AS quarantine_code, r ->> 7 AS replay_reason,
    s.source, s.target, s.edges, s.event
    FROM (SELECT v::jsonb AS r FROM json_array_elements(:rows) v OFFSET 0) x JOIN s ON s.shape = (r ->> 1)::bigint
   ORDER BY 1)
UPDATE holdfast_jobs AS j
   SET state = k.target, version = j.version + k.edges, run_at = coalesce(k.run_at, j.run_at),
       due_at = CASE WHEN k.target = 'pending' THEN coalesce(k.run_at, j.run_at) END,
       parked = NULL, limit_key = NULL,
       resting = CASE WHEN k.target IN ('failed', 'quarantined') THEN k.target END,
       last_error_code = coalesce(k.error_code, j.last_error_code),
       last_error_message = coalesce(k.error_message, j.last_error_message),
       quarantine_code = k.quarantine_code, replay_reason = coalesce(k.replay_reason, j.replay_reason),
       updated_at = greatest(j.updated_at, coalesce(:now, statement_timestamp())), event = k.event, actor = :actor,
       reason = :reason, move_id = :move_id, grant_id = :grant_id
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
   AND j.job_id = k.job_id AND j.state = k.source AND j.version = k.version
RETURNING j.job_id;

-- name: get_jobs
SELECT {job_columns}
  FROM json_array_elements_text(:rows) r JOIN holdfast_jobs j ON j.job_id = r::bigint
  JOIN holdfast_calls c ON c.job_id = j.job_id ORDER BY j.job_id;

-- name: list_waiting_jobs
-- For a few among many: all that wait are sorted. MATERIALIZED keeps the planner from walking all jobs by their ids instead.
WITH w AS MATERIALIZED (
  SELECT * FROM holdfast_jobs WHERE due_at IS NOT NULL AND parked IS NULL
  UNION ALL SELECT * FROM holdfast_jobs WHERE parked IS NOT NULL)
SELECT {job_columns} FROM w j {with_call}
 WHERE j.state = :state
   AND (:operation::text IS NULL OR j.operation = :operation)
   AND (:queue::text IS NULL OR j.queue = :queue) AND (:client::text IS NULL OR c.client = :client)
   AND j.job_id < coalesce(:before::bigint, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: slim_jobs
WITH k AS MATERIALIZED (
  SELECT j.job_id FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id
   WHERE j.job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
     AND j.state IN (SELECT json_array_elements_text(:states)) AND j.updated_at < :before AND c.payload IS NOT NULL
   ORDER BY j.job_id FOR UPDATE OF j),
emptied AS (UPDATE holdfast_calls SET payload = NULL WHERE job_id IN (SELECT job_id FROM k)),
gone AS (UPDATE holdfast_jobs SET result = NULL WHERE job_id IN (SELECT job_id FROM k) AND result IS NOT NULL)
SELECT job_id FROM k;

-- name: forget_checkpoints
DELETE FROM holdfast_checkpoints WHERE job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: add_traces
-- rows: job_id, traceparent, tracestate
INSERT INTO holdfast_traces (job_id, traceparent, tracestate)
SELECT (r ->> 0)::bigint, r ->> 1, r ->> 2 FROM json_array_elements(:rows::json) r ON CONFLICT (job_id) DO NOTHING;

-- name: forget_traces
DELETE FROM holdfast_traces WHERE job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: forget_tracebacks
DELETE FROM holdfast_tracebacks WHERE job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));
