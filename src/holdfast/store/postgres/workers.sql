-- Statements for workers: what is due, who works, which queues are paused, what an attempt keeps for the next one.

-- name: next_due
-- The earliest time at which a job of these queues may run; it may be past. What a claim passes over, this does too.
-- And whether the deadline of a pending job has passed or a job waits for others, and whether the ledger has limits.
WITH RECURSIVE
  lanes (queue, priority) AS (
    SELECT q, (SELECT max(j.priority) FROM holdfast_jobs j
                WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q)
      FROM json_array_elements_text(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL)
SELECT min((SELECT min(j.due_at) FROM holdfast_jobs j
             WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority
               AND j.operation <> ALL (ARRAY(SELECT substr(w.name, 11) FROM holdfast_switches w
                                              WHERE w.state = 'on' AND starts_with(w.name, 'operation:'))))),
    coalesce((SELECT min(d.deadline_at) FROM holdfast_jobs d WHERE d.deadline_at IS NOT NULL AND d.state = 'pending')
      <= coalesce(:now, statement_timestamp()), false) OR EXISTS (SELECT 1 FROM holdfast_waits w WHERE w.awaited IS NOT NULL),
    EXISTS (SELECT 1 FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active')
  FROM lanes l WHERE l.priority IS NOT NULL;

-- name: keep_checkpoints
-- rows: job, token, owner, name, value
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::bigint AS token, r ->> 2 AS owner, r ->> 3 AS name, r ->> 4 AS value,
    coalesce(:now, statement_timestamp()) AS now
    FROM json_array_elements(:rows::json) r)
INSERT INTO holdfast_checkpoints (job_id, name, value, exec_id, created_at)
SELECT j.job_id, k.name, k.value, j.job_id * 1000000 + j.attempts, k.now
  FROM holdfast_jobs j JOIN k ON j.job_id = k.job_id
 WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k))
   AND j.lease_token = k.token AND j.lease_owner = k.owner AND j.status = 'IN_PROGRESS' AND j.lease_expires_at > k.now
ON CONFLICT (job_id, name) DO UPDATE SET value = excluded.value, exec_id = excluded.exec_id,
  created_at = excluded.created_at
RETURNING name;
