-- Statements about executions: claiming, moving under a lease, heartbeats, recovery.

-- name: claim_executions
-- A lane is one queue at one priority. Walking the lanes keeps a claim short however many jobs wait for a later time;
-- the outer LIMIT stops the walk as soon as it has enough. A LIMIT that the planner cannot read makes a plan for one n as
-- good as a plan for any, so it is kept and not made anew for each claim. An operation whose switch is on gives out no
-- work; which ones is asked once a claim.
INSERT INTO holdfast_executions (job_id, attempt, status, version, lease_owner, lease_expires_at, started_at, created_at,
  updated_at, event, actor, move_id)
WITH RECURSIVE
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  every_lane (queue, priority) AS (
    SELECT q, (SELECT max(j.priority) FROM holdfast_jobs j WHERE j.state = 'pending' AND j.queue = q)
      FROM json_array_elements_text(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.state = 'pending' AND j.queue = l.queue AND j.priority < l.priority)
      FROM every_lane l WHERE l.priority IS NOT NULL),
  lanes AS MATERIALIZED (SELECT queue, priority FROM every_lane WHERE priority IS NOT NULL ORDER BY priority DESC),
  due AS MATERIALIZED (
    SELECT j.job_id, j.attempts, j.operation
      FROM lanes l CROSS JOIN LATERAL (
        SELECT job_id, attempts, operation FROM holdfast_jobs
         WHERE state = 'pending' AND queue = l.queue AND priority = l.priority AND run_at <= (SELECT now FROM t)
           AND operation <> ALL (ARRAY(SELECT substr(w.name, 11) FROM holdfast_switches w
                                        WHERE w.state = 'on' AND starts_with(w.name, 'operation:')))
         ORDER BY run_at, job_id LIMIT (SELECT :n::bigint) FOR NO KEY UPDATE SKIP LOCKED) j
     LIMIT (SELECT :n::bigint))
SELECT d.job_id, d.attempts + 1, :status, :version, :owner,
  t.now + make_interval(secs => coalesce((:leases::json ->> d.operation)::double precision, :lease_s)),
  CASE WHEN :begins THEN t.now END, t.now, t.now, :event, :owner, :move_id
  FROM due d, t
RETURNING exec_id, job_id, created_at, lease_expires_at;

-- name: claim_these
-- No SKIP LOCKED: who asks for one job wants to know whether it is to be had, so it waits and looks again.
INSERT INTO holdfast_executions (job_id, attempt, status, version, lease_owner, lease_expires_at, started_at, created_at,
  updated_at, event, actor, move_id)
WITH
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  due AS MATERIALIZED (
    SELECT j.job_id, j.attempts, j.operation
      FROM json_array_elements_text(:rows) r JOIN holdfast_jobs j ON j.job_id = r::bigint
     WHERE j.state = 'pending' AND j.run_at <= (SELECT now FROM t)
       AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
     ORDER BY j.job_id FOR NO KEY UPDATE OF j)
SELECT d.job_id, d.attempts + 1, :status, :version, :owner,
  t.now + make_interval(secs => coalesce((:leases::json ->> d.operation)::double precision, :lease_s)),
  CASE WHEN :begins THEN t.now END, t.now, t.now, :event, :owner, :move_id
  FROM due d, t
RETURNING exec_id, job_id, created_at, lease_expires_at;

-- name: claim_jobs
WITH k AS MATERIALIZED (SELECT r::bigint AS job_id, :source::text AS source FROM json_array_elements_text(:rows) r)
UPDATE holdfast_jobs AS j
   SET state = :target, version = j.version + :edges, attempts = j.attempts + 1,
       last_attempt_at = coalesce(:now, statement_timestamp()),
       updated_at = greatest(j.updated_at, coalesce(:now, statement_timestamp())), event = :event, actor = :owner,
       reason = NULL, move_id = :move_id, grant_id = NULL
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.job_id = k.job_id AND j.state = k.source
RETURNING {job_columns};

-- name: move_executions
-- s: source, target, edges, event, excused, lease_live, started, finished
-- k: exec_id, which of s, token, error code and message
WITH s AS MATERIALIZED (
  SELECT n - 1 AS shape, v ->> 0 AS source, v ->> 1 AS target, (v ->> 2)::integer AS edges, v ->> 3 AS event,
    (v ->> 4)::integer = 1 AS excused, (v ->> 5)::boolean AS lease_live, (v ->> 6)::boolean AS started,
    (v ->> 7)::boolean AS finished
    FROM jsonb_array_elements(:shapes) WITH ORDINALITY x (v, n)),
k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS exec_id, (r ->> 2)::bigint AS token, r ->> 3 AS error_code, r ->> 4 AS error_message,
    s.source, s.target, s.edges, s.event, s.excused, s.lease_live, s.started, s.finished,
    coalesce(:now, statement_timestamp()) AS now
    FROM (SELECT v::jsonb AS r FROM json_array_elements(:rows) v OFFSET 0) x JOIN s ON s.shape = (r ->> 1)::bigint
   ORDER BY 1)
UPDATE holdfast_executions AS e
   SET status = k.target, version = e.version + k.edges, excused = k.excused, error_code = k.error_code,
       error_message = k.error_message, started_at = CASE WHEN k.started THEN k.now ELSE e.started_at END,
       finished_at = CASE WHEN k.finished THEN k.now ELSE e.finished_at END,
       updated_at = greatest(e.updated_at, k.now), event = k.event, actor = :actor, reason = :reason, move_id = :move_id
  FROM k
 WHERE e.exec_id = ANY (ARRAY(SELECT exec_id FROM k))
   AND e.exec_id = k.exec_id AND e.status = k.source AND e.lease_token = k.token
   AND (k.lease_live IS NULL OR k.lease_live = (e.lease_expires_at > k.now))
RETURNING e.exec_id;

-- name: beat_executions
-- Neither version nor updated_at moves: a heartbeat is not a transition.
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS exec_id, (r ->> 1)::bigint AS token, (r ->> 2)::double precision AS seconds,
    coalesce(:now, statement_timestamp()) AS now
    FROM jsonb_array_elements(:rows) r)
UPDATE holdfast_executions AS e SET lease_expires_at = k.now + make_interval(secs => k.seconds)
  FROM k
 WHERE e.exec_id = ANY (ARRAY(SELECT exec_id FROM k)) AND e.exec_id = k.exec_id AND e.lease_token = k.token
   AND e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at > k.now
RETURNING e.exec_id, e.cancel_asked_at IS NOT NULL;

-- name: note_progress
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS exec_id, (r ->> 1)::bigint AS token, (r ->> 2)::double precision AS progress,
    r ->> 3 AS note, coalesce(:now, statement_timestamp()) AS now
    FROM jsonb_array_elements(:rows) r)
UPDATE holdfast_executions AS e SET progress = k.progress, progress_note = k.note
  FROM k
 WHERE e.exec_id = ANY (ARRAY(SELECT exec_id FROM k)) AND e.exec_id = k.exec_id AND e.lease_token = k.token
   AND e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at > k.now
RETURNING e.exec_id;

-- name: expired_attempts
SELECT {execution_columns}, {job_columns}
  FROM holdfast_executions e JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED')
   AND e.lease_expires_at <= coalesce(:now, statement_timestamp())
 ORDER BY e.lease_expires_at LIMIT :n
   FOR NO KEY UPDATE OF e SKIP LOCKED;
