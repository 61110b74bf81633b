-- Statements about executions: claiming, moving under a lease, heartbeats, recovery.

-- name: claim_executions
-- A lane is one queue at one priority. Walking the lanes keeps a claim short however many jobs wait for a later time.
-- ORDER BY makes the recursion take the highest lane next, LIMIT -1 keeps SQLite from leaving that ORDER BY out (it
-- does so in a subquery of a join), and CROSS JOIN keeps the walk in lane order. An operation whose switch is on gives out
-- no work.
INSERT INTO holdfast_executions (job_id, attempt, status, version, lease_owner, lease_expires_at, started_at, created_at,
  updated_at, event, actor, move_id)
WITH RECURSIVE
  leases AS MATERIALIZED (SELECT key, value FROM json_each(:leases)),
  lanes (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j WHERE j.state = 'pending' AND j.queue = q.value)
      FROM json_each(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q.value AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.state = 'pending' AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL
     ORDER BY 2 DESC LIMIT -1)
SELECT j.job_id, j.attempts + 1, :status, :version, :owner,
  coalesce((SELECT value FROM leases WHERE key = j.operation), :expires), :started, :now, :now, :event, :owner, :move_id
  FROM lanes l CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_due
    ON j.state = 'pending' AND j.queue = l.queue AND j.priority = l.priority AND j.run_at <= :now
   AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
 LIMIT :n
RETURNING exec_id, job_id, created_at, lease_expires_at;

-- name: claim_these
INSERT INTO holdfast_executions (job_id, attempt, status, version, lease_owner, lease_expires_at, started_at, created_at,
  updated_at, event, actor, move_id)
WITH leases AS MATERIALIZED (SELECT key, value FROM json_each(:leases))
SELECT j.job_id, j.attempts + 1, :status, :version, :owner,
  coalesce((SELECT value FROM leases WHERE key = j.operation), :expires), :started, :now, :now, :event, :owner, :move_id
  FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.job_id = r.value
 WHERE j.state = 'pending' AND j.run_at <= :now
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
RETURNING exec_id, job_id, created_at, lease_expires_at;

-- name: claim_jobs
-- The + keeps SQLite from comparing the parameter with the predicates of partial indexes: it would then make a new plan,
-- triggers and all, whenever the parameter is bound.
UPDATE holdfast_jobs AS j
   SET state = :target, version = j.version + :edges, attempts = j.attempts + 1, last_attempt_at = :now,
       updated_at = max(j.updated_at, :now), event = :event, actor = :owner, reason = NULL, move_id = :move_id,
       grant_id = NULL
  FROM json_each(:rows) r
 WHERE j.job_id = r.value AND j.state = +:source
RETURNING {job_columns_bare};

-- name: move_executions
-- s: source, target, edges, event, excused, lease_live, started, finished
-- k: exec_id, which of s, token, error code and message
WITH s AS MATERIALIZED (
  SELECT key, value ->> 0 AS source, value ->> 1 AS target, value ->> 2 AS edges, value ->> 3 AS event,
    value ->> 4 AS excused, value ->> 5 AS lease_live, value ->> 6 AS started, value ->> 7 AS finished
    FROM json_each(:shapes)),
k AS (
  SELECT r.value ->> 0 AS exec_id, r.value ->> 1 AS shape, r.value ->> 2 AS token, r.value ->> 3 AS error_code,
    r.value ->> 4 AS error_message
    FROM json_each(:rows) r)
UPDATE holdfast_executions AS e
   SET status = s.target, version = e.version + s.edges, excused = s.excused, error_code = k.error_code,
       error_message = k.error_message, started_at = iif(s.started, :now, e.started_at),
       finished_at = iif(s.finished, :now, e.finished_at), updated_at = max(e.updated_at, :now), event = s.event,
       actor = :actor, reason = :reason, move_id = :move_id
  FROM k CROSS JOIN s ON s.key = k.shape
 WHERE e.exec_id = k.exec_id AND e.status = s.source AND e.lease_token = k.token
   AND (s.lease_live IS NULL OR s.lease_live = (e.lease_expires_at > :now))
RETURNING exec_id;

-- name: beat_executions
-- Neither version nor updated_at moves: a heartbeat is not a transition.
UPDATE holdfast_executions AS e SET lease_expires_at = r.value ->> 2
  FROM json_each(:rows) r
 WHERE e.exec_id = r.value ->> 0 AND e.lease_token = r.value ->> 1
   AND e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at > :now
RETURNING exec_id, cancel_asked_at IS NOT NULL;

-- name: note_progress
UPDATE holdfast_executions AS e SET progress = r.value ->> 2, progress_note = r.value ->> 3
  FROM json_each(:rows) r
 WHERE e.exec_id = r.value ->> 0 AND e.lease_token = r.value ->> 1
   AND e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at > :now
RETURNING exec_id;

-- name: expired_attempts
SELECT {execution_columns}, {job_columns}
  FROM holdfast_executions e CROSS JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at <= :now
 ORDER BY e.lease_expires_at LIMIT :n;
