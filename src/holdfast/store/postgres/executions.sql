-- Statements about attempts: claiming, moving under a lease, heartbeats, recovery. An attempt is part of its job's row.

-- name: claim_jobs
-- A lane is one queue at one priority. Walking the lanes keeps a claim short however many jobs wait for a later time;
-- the outer LIMIT stops the walk as soon as it has enough. A LIMIT that the planner cannot read makes a plan for one n as
-- good as a plan for any, so it is kept and not made anew for each claim. An operation whose switch is on gives out no
-- work, and neither does a ledger with limits: see limited_jobs. A job whose deadline has passed is not claimed: only
-- while there is one, the deadline of each job is read. The token follows the clock, because a sequence repeats its
-- numbers when the database falls back. A payload that is too long to be claimed ahead is left out, and its length is returned:
-- that is known without reading it. A claim that need not be durable is the only statement of its transaction.
WITH RECURSIVE
  t AS MATERIALIZED (
    SELECT n.now, CASE WHEN NOT :durable THEN set_config('synchronous_commit', 'off', true) END, (SELECT min(d.deadline_at) FROM holdfast_jobs d
                    WHERE d.deadline_at IS NOT NULL AND d.state = 'pending') <= n.now AS late
      FROM (SELECT coalesce(:now, statement_timestamp()) AS now) n),
  every_lane (queue, priority) AS (
    SELECT q, (SELECT max(j.priority) FROM holdfast_jobs j
                WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q)
      FROM json_array_elements_text(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q AND p.paused_at IS NOT NULL)
       AND NOT EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active')
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM every_lane l WHERE l.priority IS NOT NULL),
  lanes AS MATERIALIZED (SELECT queue, priority FROM every_lane WHERE priority IS NOT NULL ORDER BY priority DESC),
  due AS MATERIALIZED (
    SELECT j.job_id
      FROM lanes l CROSS JOIN LATERAL (
        SELECT job_id FROM holdfast_jobs
         WHERE due_at IS NOT NULL AND parked IS NULL AND queue = l.queue AND priority = l.priority AND due_at <= (SELECT now FROM t)
           AND operation <> ALL (ARRAY(SELECT substr(w.name, 11) FROM holdfast_switches w
                                        WHERE w.state = 'on' AND starts_with(w.name, 'operation:')))
           AND ((SELECT late FROM t) IS NOT TRUE OR deadline_at IS NULL OR deadline_at > (SELECT now FROM t))
         ORDER BY due_at, job_id LIMIT (SELECT :n::bigint) FOR NO KEY UPDATE SKIP LOCKED) j
     LIMIT (SELECT :n::bigint)),
  claimed AS (
    UPDATE holdfast_jobs AS j
       SET state = :state, status = :status, version = j.version + :edges, attempts = j.attempts + 1, due_at = NULL,
           lease_token = greatest(coalesce(j.lease_token, 0) + 1, (extract(epoch FROM t.now) * 1000000)::bigint),
           lease_owner = :owner, lease_expires_at = t.now
             + make_interval(secs => coalesce((:leases::json ->> j.operation)::double precision, :lease_s)),
           last_attempt_at = t.now, started_at = CASE WHEN :begins THEN t.now END, excuse_code = NULL,
           excuse_message = NULL, cancel_requested_at = NULL, cancel_by = NULL, cancel_reason = NULL,
           cancel_move_id = NULL,
           updated_at = greatest(j.updated_at, t.now), event = :event, actor = :owner,
           reason = NULL, move_id = :move_id, grant_id = NULL
      FROM t
     WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM due)) AND j.due_at IS NOT NULL AND j.parked IS NULL
    RETURNING j.*)
SELECT {job_columns}, j.lease_token, j.lease_expires_at, c.long_payload
  FROM claimed j JOIN (SELECT {call_columns},
         CASE WHEN octet_length(payload) <= :payload_max THEN payload END AS payload,
         CASE WHEN octet_length(payload) > :payload_max THEN octet_length(payload) END AS long_payload
    FROM holdfast_calls c) c ON c.job_id = j.job_id
 ORDER BY j.priority DESC, j.run_at, j.job_id;

-- name: claim_these
-- No SKIP LOCKED: a claim of one job must know whether that job can be claimed, so it waits and looks again.
WITH
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  due AS MATERIALIZED (
    SELECT j.job_id
      FROM json_array_elements_text(:rows) r JOIN holdfast_jobs j ON j.job_id = r::bigint
     WHERE j.due_at <= (SELECT now FROM t) AND j.parked IS NULL
       AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
       AND (:limited::boolean OR NOT EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active'))
       AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
       AND (j.deadline_at IS NULL OR j.deadline_at > (SELECT now FROM t))
     ORDER BY j.job_id FOR NO KEY UPDATE OF j),
  claimed AS (
    UPDATE holdfast_jobs AS j
       SET state = :state, status = :status, version = j.version + :edges, attempts = j.attempts + 1, due_at = NULL,
           lease_token = greatest(coalesce(j.lease_token, 0) + 1, (extract(epoch FROM t.now) * 1000000)::bigint),
           lease_owner = :owner, lease_expires_at = t.now
             + make_interval(secs => coalesce((:leases::json ->> j.operation)::double precision, :lease_s)),
           last_attempt_at = t.now, started_at = CASE WHEN :begins THEN t.now END, excuse_code = NULL,
           excuse_message = NULL, cancel_requested_at = NULL, cancel_by = NULL, cancel_reason = NULL,
           cancel_move_id = NULL,
           updated_at = greatest(j.updated_at, t.now), event = :event, actor = :owner,
           reason = NULL, move_id = :move_id, grant_id = NULL
      FROM t
     WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM due)) AND j.due_at IS NOT NULL AND j.parked IS NULL
    RETURNING j.*)
SELECT {job_columns}, j.lease_token, j.lease_expires_at, c.long_payload
  FROM claimed j JOIN (SELECT {call_columns},
         CASE WHEN octet_length(payload) <= :payload_max THEN payload END AS payload,
         CASE WHEN octet_length(payload) > :payload_max THEN octet_length(payload) END AS long_payload
    FROM holdfast_calls c) c ON c.job_id = j.job_id
 ORDER BY j.job_id;

-- name: complete_jobs
-- Only the number of rows is returned: 500 ids cost more to read than to write.
WITH k AS MATERIALIZED (
  SELECT k.job_id, k.token, k.result, coalesce(:now, statement_timestamp()) AS now
    FROM unnest(:ids::bigint[], :tokens::bigint[], :results::text[]) AS k (job_id, token, result)),
done AS (
  UPDATE holdfast_jobs AS j
     SET state = :state, status = :status, version = j.version + :edges, lease_expires_at = NULL, result = k.result,
         updated_at = greatest(j.updated_at, k.now), event = :event, actor = :actor, reason = :reason,
         move_id = :move_id, grant_id = NULL
    FROM k
   WHERE j.job_id = k.job_id AND j.lease_token = k.token AND j.lease_owner = :actor AND j.status = :source
     AND j.lease_expires_at > k.now
  RETURNING 1)
SELECT count(*) FROM done;

-- name: move_attempts
-- s: status before, state and status after, edges, event, excused, lost, lease_live. A request to cancel that was made
-- since the attempt was read keeps it from ending in another way.
-- k: job_id, which of s, token, owner, run_at, result, error code and message, quarantine code
WITH s AS MATERIALIZED (
  SELECT n - 1 AS shape, v ->> 0 AS source, v ->> 1 AS state, v ->> 2 AS status, (v ->> 3)::integer AS edges,
    v ->> 4 AS event, (v ->> 5)::integer AS excused, (v ->> 6)::integer AS lost, (v ->> 7)::boolean AS lease_live
    FROM jsonb_array_elements(:shapes) WITH ORDINALITY x (v, n)),
k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 2)::bigint AS token, r ->> 3 AS owner, (r ->> 4)::timestamptz AS run_at,
    r ->> 5 AS result, r ->> 6 AS error_code, r ->> 7 AS error_message, r ->> 8 AS quarantine_code,
    s.source, s.state, s.status, s.edges, s.event, s.excused, s.lost, s.lease_live,
    coalesce(:now, statement_timestamp()) AS now
    FROM (SELECT v::jsonb AS r FROM json_array_elements(:rows) v OFFSET 0) x JOIN s ON s.shape = (r ->> 1)::bigint
   ORDER BY 1)
UPDATE holdfast_jobs AS j
   SET state = k.state, status = k.status, version = j.version + k.edges, excused = j.excused + k.excused,
       run_at = coalesce(k.run_at, j.run_at),
       due_at = CASE WHEN k.state = 'pending' THEN coalesce(k.run_at, j.run_at) END,
       resting = CASE WHEN k.state IN ('failed', 'quarantined') THEN k.state END,
       lease_expires_at = CASE WHEN k.state = 'running' THEN j.lease_expires_at END,
       started_at = CASE WHEN k.status = 'IN_PROGRESS' THEN k.now ELSE j.started_at END,
       result = coalesce(k.result, j.result),
       last_error_code = CASE WHEN k.excused = 0 THEN coalesce(k.error_code, j.last_error_code) ELSE j.last_error_code END,
       last_error_message = CASE WHEN k.excused = 0 THEN coalesce(k.error_message, j.last_error_message) ELSE j.last_error_message END,
       excuse_code = CASE WHEN k.excused = 1 THEN k.error_code END,
       excuse_message = CASE WHEN k.excused = 1 THEN k.error_message END,
       quarantine_code = k.quarantine_code,
       progress = CASE WHEN k.status IS NOT NULL THEN j.progress END,
       progress_note = CASE WHEN k.status IS NOT NULL THEN j.progress_note END,
       lost = CASE WHEN k.lost = 1 THEN coalesce(j.lost, 0) + 1 ELSE j.lost END,
       updated_at = greatest(j.updated_at, k.now), event = k.event, actor = :actor, reason = :reason, move_id = :move_id,
       grant_id = NULL
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
   AND j.job_id = k.job_id AND j.lease_token = k.token AND j.lease_owner = k.owner AND j.status = k.source
   AND (k.lease_live IS NULL OR k.lease_live = (j.lease_expires_at > k.now))
   AND (j.cancel_requested_at IS NULL OR k.status IS NOT NULL OR k.event = 'cancel')
RETURNING j.job_id;

-- name: keep_tracebacks
-- rows: job_id, attempt, text
INSERT INTO holdfast_tracebacks (job_id, attempt, text)
SELECT (r ->> 0)::bigint, (r ->> 1)::integer, r ->> 2 FROM json_array_elements(:rows::json) r;

-- name: extend_leases
-- Neither version nor updated_at moves: a heartbeat is not a transition. A row that another transaction has locked is
-- being ended by its own worker: it counts as held, and the heartbeat does not wait for it.
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::bigint AS token, r ->> 2 AS owner, (r ->> 3)::double precision AS seconds,
    coalesce(:now, statement_timestamp()) AS now
    FROM jsonb_array_elements(:rows) r),
held AS MATERIALIZED (
  SELECT j.job_id, j.attempts, j.cancel_requested_at FROM k JOIN holdfast_jobs j ON j.job_id = k.job_id
   WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
     AND j.lease_token = k.token AND j.lease_owner = k.owner AND j.lease_expires_at > k.now),
free AS MATERIALIZED (
  SELECT j.job_id FROM holdfast_jobs j WHERE j.job_id IN (SELECT job_id FROM held)
   ORDER BY j.job_id FOR NO KEY UPDATE SKIP LOCKED),
extended AS (
  UPDATE holdfast_jobs AS j SET lease_expires_at = k.now + make_interval(secs => k.seconds)
    FROM k
   WHERE j.job_id IN (SELECT job_id FROM free) AND j.job_id = k.job_id AND j.lease_token = k.token
     AND j.lease_owner = k.owner AND j.lease_expires_at > k.now
  RETURNING j.job_id)
SELECT h.job_id * 1000000 + h.attempts, h.cancel_requested_at IS NOT NULL
  FROM held h
 WHERE h.job_id IN (SELECT job_id FROM extended) OR h.job_id NOT IN (SELECT job_id FROM free);

-- name: note_progress
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::bigint AS token, r ->> 2 AS owner,
    (r ->> 3)::double precision AS progress, r ->> 4 AS note, coalesce(:now, statement_timestamp()) AS now
    FROM jsonb_array_elements(:rows) r)
UPDATE holdfast_jobs AS j SET progress = k.progress, progress_note = k.note
  FROM k
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
   AND j.job_id = k.job_id AND j.lease_token = k.token AND j.lease_owner = k.owner AND j.lease_expires_at > k.now
RETURNING j.job_id * 1000000 + j.attempts;

-- name: expired_attempts
-- rare: only those that expire_attempts leaves out.
SELECT {current_attempt}, {job_columns}
  FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= coalesce(:now, statement_timestamp())
   AND (NOT :rare OR j.status = 'COMMITTED' OR j.cancel_requested_at IS NOT NULL OR coalesce(j.lost, 0) >= :losses)
 ORDER BY j.lease_expires_at LIMIT :n
   FOR NO KEY UPDATE OF j SKIP LOCKED;

-- name: expire_attempts
-- What core.rulings says of most expired leases, for many at once: the attempt is excused, and the job is due again.
WITH
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  k AS MATERIALIZED (
    SELECT j.job_id FROM holdfast_jobs j
     WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= coalesce(:at, (SELECT now FROM t))
       AND j.status <> 'COMMITTED' AND j.cancel_requested_at IS NULL AND coalesce(j.lost, 0) < :losses
     ORDER BY j.lease_expires_at LIMIT (SELECT :n::bigint) FOR NO KEY UPDATE SKIP LOCKED)
UPDATE holdfast_jobs AS j
   SET state = :state, status = NULL, version = j.version + :edges, excused = j.excused + 1, lost = coalesce(j.lost, 0) + 1,
       run_at = coalesce(:retry_at, t.now), due_at = coalesce(:retry_at, t.now), lease_expires_at = NULL,
       excuse_code = :code, excuse_message = 'the lease of ' || j.lease_owner || ' expired during attempt ' || j.attempts,
       quarantine_code = NULL, progress = NULL, progress_note = NULL, updated_at = greatest(j.updated_at, t.now),
       event = :event, actor = :actor, reason = :reason, move_id = :move_id, grant_id = NULL
  FROM t
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.lease_expires_at <= coalesce(:at, t.now)
RETURNING j.job_id;
