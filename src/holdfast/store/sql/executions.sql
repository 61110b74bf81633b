-- Statements about attempts: those that both databases share.

-- name: claimed_jobs
-- A payload that is too long to be claimed ahead is left out, and its length is returned.
SELECT {job_columns}, j.lease_token, j.lease_expires_at, c.long_payload
  FROM {each}(:rows) r {ordered} JOIN holdfast_jobs j ON j.job_id = r.{number}
  {ordered} JOIN (SELECT {call_columns},
         CASE WHEN length(payload) <= :payload_max THEN payload END AS payload,
         CASE WHEN length(payload) > :payload_max THEN length(payload) END AS long_payload
    FROM holdfast_calls c) c ON c.job_id = j.job_id
 ORDER BY j.priority DESC, j.run_at, j.job_id;

-- name: payloads_of
SELECT c.job_id, c.payload FROM {each}(:rows) r {ordered} JOIN holdfast_calls c ON c.job_id = r.{number};

-- name: moved_jobs
SELECT j.job_id FROM {each}(:rows) r {ordered} JOIN holdfast_jobs j ON j.job_id = r.{number} WHERE j.move_id = :move_id;

-- name: executions_of
SELECT {execution_columns} FROM holdfast_executions e WHERE e.job_id = :job_id ORDER BY e.attempt;

-- name: tracebacks_of
SELECT t.attempt, t.text FROM holdfast_tracebacks t WHERE t.job_id = :job_id ORDER BY t.attempt;

-- name: trace_of
SELECT t.traceparent, t.tracestate FROM holdfast_traces t WHERE t.job_id = :job_id;

-- name: get_attempt
SELECT {execution_columns}, {job_columns}
  FROM holdfast_executions e {ordered} JOIN holdfast_jobs j ON j.job_id = e.job_id
  {ordered} JOIN holdfast_calls c ON c.job_id = e.job_id
 WHERE e.job_id = CAST(:exec_id AS bigint) / 1000000 AND e.exec_id = CAST(:exec_id AS bigint);

-- name: current_attempt
SELECT {current_attempt}, {job_columns}
  FROM holdfast_jobs j {ordered} JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.job_id = :job_id AND j.lease_expires_at IS NOT NULL;

-- name: requested_attempts
SELECT {current_attempt}, {job_columns}
  FROM {each}(:rows) r {ordered} JOIN holdfast_jobs j ON j.job_id = r.{number}
  {ordered} JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.cancel_requested_at IS NOT NULL AND j.lease_expires_at IS NOT NULL;

-- name: anything_to_check
-- A job that runs or a seal: in a ledger without any of these the check at open can find nothing.
SELECT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.lease_expires_at IS NOT NULL)
    OR EXISTS (SELECT 1 FROM holdfast_seals)
    OR EXISTS (SELECT 1 FROM holdfast_meta m WHERE m.name = 'seal_head');

-- name: any_expired
-- And whether the deadline of a pending job has passed or a job waits for others, and whether a claim must compare:
-- a queue has due jobs of several priorities, or a weight.
WITH RECURSIVE busy (queue) AS (
  SELECT min(j.queue) FROM holdfast_jobs j WHERE j.due_at IS NOT NULL AND j.parked IS NULL
  UNION ALL
  SELECT (SELECT min(j.queue) FROM holdfast_jobs j WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue > b.queue)
    FROM busy b WHERE b.queue IS NOT NULL)
SELECT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= {now}),
  EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.deadline_at IS NOT NULL AND j.state = 'pending' AND j.deadline_at <= {now})
    OR EXISTS (SELECT 1 FROM holdfast_waits w WHERE w.awaited IS NOT NULL),
  EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'weight' AND s.state = 'active')
    OR EXISTS (SELECT 1 FROM busy b
                WHERE (SELECT min(j.priority) FROM holdfast_jobs j
                        WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = b.queue)
                    < (SELECT max(j.priority) FROM holdfast_jobs j
                        WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = b.queue));

-- name: stalled_attempts
-- The same rows as expired_attempts, for looking: nothing is locked.
SELECT {current_attempt}, {job_columns}
  FROM holdfast_jobs j {ordered} JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= {now}
 ORDER BY j.lease_expires_at LIMIT :n;
