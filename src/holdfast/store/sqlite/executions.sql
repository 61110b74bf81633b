-- Statements about attempts: claiming, moving under a lease, heartbeats, recovery. An attempt is part of its job's row.

-- name: claim_jobs
-- A lane is one queue at one priority. Walking the lanes keeps a claim short however many jobs wait for a later time.
-- ORDER BY makes the recursion take the highest lane next, LIMIT -1 keeps SQLite from leaving that ORDER BY out (it
-- does so in a subquery of a join), and CROSS JOIN keeps the walk in lane order. An operation whose switch is on gives out
-- no work, and neither does a ledger with limits: see limited_jobs. A job whose deadline has passed is not claimed: only
-- while there is one, the deadline of each job is read. RETURNING cannot join, so the rows are read by the next
-- statement.
UPDATE holdfast_jobs
   SET state = :state, status = :status, version = version + :edges, attempts = attempts + 1, due_at = NULL,
       lease_token = max(coalesce(lease_token, 0) + 1, :token), lease_owner = :owner,
       lease_expires_at = coalesce((SELECT value FROM json_each(:leases) WHERE key = operation), :expires),
       last_attempt_at = :now, started_at = :started, excuse_code = NULL, excuse_message = NULL,
       cancel_requested_at = NULL, cancel_by = NULL, cancel_reason = NULL, cancel_move_id = NULL,
       updated_at = max(updated_at, :now), event = :event, actor = :owner, reason = NULL, move_id = :move_id,
       grant_id = NULL
 WHERE job_id IN (
  WITH RECURSIVE lanes (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value)
      FROM json_each(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q.value AND p.paused_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active')
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL
     ORDER BY 2 DESC LIMIT -1)
  SELECT j.job_id
    FROM lanes l CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_due
      ON j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority AND j.due_at <= :now
     AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
     AND (coalesce((SELECT min(d.deadline_at) FROM holdfast_jobs d WHERE d.deadline_at IS NOT NULL AND d.state = 'pending'),
                   '~') > :now OR j.deadline_at IS NULL OR j.deadline_at > :now)
   LIMIT :n)
RETURNING job_id;

-- name: claim_these
UPDATE holdfast_jobs
   SET state = :state, status = :status, version = version + :edges, attempts = attempts + 1, due_at = NULL,
       lease_token = max(coalesce(lease_token, 0) + 1, :token), lease_owner = :owner,
       lease_expires_at = coalesce((SELECT value FROM json_each(:leases) WHERE key = operation), :expires),
       last_attempt_at = :now, started_at = :started, excuse_code = NULL, excuse_message = NULL,
       cancel_requested_at = NULL, cancel_by = NULL, cancel_reason = NULL, cancel_move_id = NULL,
       updated_at = max(updated_at, :now), event = :event, actor = :owner, reason = NULL, move_id = :move_id,
       grant_id = NULL
 WHERE job_id IN (
  SELECT j.job_id
    FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.job_id = r.value
   WHERE j.due_at <= :now AND j.parked IS NULL
     AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
     AND (:limited OR NOT EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active'))
     AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
     AND (j.deadline_at IS NULL OR j.deadline_at > :now))
RETURNING job_id;

-- name: complete_jobs
-- rows: job_id, token, result. Only the number of rows is returned.
UPDATE holdfast_jobs AS j
   SET state = :state, status = :status, version = version + :edges, lease_expires_at = NULL, result = r.value ->> 2,
       updated_at = max(updated_at, :now), event = :event, actor = :actor, reason = :reason, move_id = :move_id,
       grant_id = NULL
  FROM json_each(:rows) r
 WHERE j.job_id = r.value ->> 0 AND lease_token = r.value ->> 1 AND lease_owner = :actor AND status = :source
   AND lease_expires_at > :now;

-- name: move_attempts
-- s: status before, state and status after, edges, event, excused, lost, lease_live. A request to cancel that was made
-- since the attempt was read keeps it from ending in another way.
-- k: job_id, which of s, token, owner, run_at, result, error code and message, quarantine code
WITH s AS MATERIALIZED (
  SELECT key, value ->> 0 AS source, value ->> 1 AS state, value ->> 2 AS status, value ->> 3 AS edges,
    value ->> 4 AS event, value ->> 5 AS excused, value ->> 6 AS lost, value ->> 7 AS lease_live
    FROM json_each(:shapes)),
k AS (
  SELECT r.value ->> 0 AS job_id, r.value ->> 1 AS shape, r.value ->> 2 AS token, r.value ->> 3 AS owner,
    r.value ->> 4 AS run_at, r.value ->> 5 AS result, r.value ->> 6 AS error_code, r.value ->> 7 AS error_message,
    r.value ->> 8 AS quarantine_code
    FROM json_each(:rows) r)
UPDATE holdfast_jobs AS j
   SET state = s.state, status = s.status, version = j.version + s.edges, excused = j.excused + s.excused,
       run_at = coalesce(k.run_at, j.run_at), due_at = iif(s.state = 'pending', coalesce(k.run_at, j.run_at), NULL),
       resting = iif(s.state IN ('failed', 'quarantined'), s.state, NULL),
       lease_expires_at = iif(s.state = 'running', j.lease_expires_at, NULL),
       started_at = iif(s.status = 'IN_PROGRESS', :now, j.started_at), result = coalesce(k.result, j.result),
       last_error_code = iif(s.excused, j.last_error_code, coalesce(k.error_code, j.last_error_code)),
       last_error_message = iif(s.excused, j.last_error_message, coalesce(k.error_message, j.last_error_message)),
       excuse_code = iif(s.excused, k.error_code, NULL), excuse_message = iif(s.excused, k.error_message, NULL),
       quarantine_code = k.quarantine_code, progress = iif(s.status IS NULL, NULL, j.progress),
       progress_note = iif(s.status IS NULL, NULL, j.progress_note),
       lost = iif(s.lost, coalesce(j.lost, 0) + 1, j.lost),
       updated_at = max(j.updated_at, :now), event = s.event, actor = :actor, reason = :reason, move_id = :move_id,
       grant_id = NULL
  FROM k CROSS JOIN s ON s.key = k.shape
 WHERE j.job_id = k.job_id AND j.lease_token = k.token AND j.lease_owner = k.owner AND j.status = s.source
   AND (s.lease_live IS NULL OR s.lease_live = (j.lease_expires_at > :now))
   AND (j.cancel_requested_at IS NULL OR s.status IS NOT NULL OR s.event = 'cancel')
RETURNING job_id;

-- name: keep_tracebacks
-- rows: job_id, attempt, text
INSERT INTO holdfast_tracebacks (job_id, attempt, text)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2 FROM json_each(:rows) r ORDER BY r.key;

-- name: extend_leases
-- Neither version nor updated_at moves: a heartbeat is not a transition.
UPDATE holdfast_jobs AS j SET lease_expires_at = r.value ->> 3
  FROM json_each(:rows) r
 WHERE j.job_id = r.value ->> 0 AND j.lease_token = r.value ->> 1 AND j.lease_owner = r.value ->> 2
   AND j.lease_expires_at > :now
RETURNING job_id * 1000000 + attempts, cancel_requested_at IS NOT NULL;

-- name: note_progress
UPDATE holdfast_jobs AS j SET progress = r.value ->> 3, progress_note = r.value ->> 4
  FROM json_each(:rows) r
 WHERE j.job_id = r.value ->> 0 AND j.lease_token = r.value ->> 1 AND j.lease_owner = r.value ->> 2
   AND j.lease_expires_at > :now
RETURNING job_id * 1000000 + attempts;

-- name: expired_attempts
-- rare: only those that expire_attempts leaves out.
SELECT {current_attempt}, {job_columns}
  FROM holdfast_jobs j INDEXED BY holdfast_jobs_leased CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= :now
   AND (NOT :rare OR j.status = 'COMMITTED' OR j.cancel_requested_at IS NOT NULL OR coalesce(j.lost, 0) >= :losses)
 ORDER BY j.lease_expires_at LIMIT :n;

-- name: expire_attempts
-- What core.rulings says of most expired leases, for many at once: the attempt is excused, and the job is due again.
UPDATE holdfast_jobs
   SET state = :state, status = NULL, version = version + :edges, excused = excused + 1, lost = coalesce(lost, 0) + 1,
       run_at = coalesce(:retry_at, :now), due_at = coalesce(:retry_at, :now), lease_expires_at = NULL,
       excuse_code = :code, excuse_message = 'the lease of ' || lease_owner || ' expired during attempt ' || attempts,
       quarantine_code = NULL, progress = NULL, progress_note = NULL, updated_at = max(updated_at, :now),
       event = :event, actor = :actor, reason = :reason, move_id = :move_id, grant_id = NULL
 WHERE job_id IN (
  SELECT j.job_id FROM holdfast_jobs j INDEXED BY holdfast_jobs_leased
   WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= :at AND j.status <> 'COMMITTED'
     AND j.cancel_requested_at IS NULL AND coalesce(j.lost, 0) < :losses
   ORDER BY j.lease_expires_at LIMIT :n)
RETURNING job_id;
