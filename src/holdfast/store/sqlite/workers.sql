-- Statements for workers: what is due, who works, which queues are paused, what an attempt keeps for the next one.

-- name: next_due
-- The earliest time at which a job of these queues may run; it may be past. What a claim passes over, this does too.
WITH RECURSIVE
  lanes (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j WHERE j.state = 'pending' AND j.queue = q.value)
      FROM json_each(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q.value AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.state = 'pending' AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL)
SELECT min((SELECT min(j.run_at) FROM holdfast_jobs j
             WHERE j.state = 'pending' AND j.queue = l.queue AND j.priority = l.priority
               AND NOT EXISTS (SELECT 1 FROM holdfast_switches w
                                WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)))
  FROM lanes l WHERE l.priority IS NOT NULL;

-- name: pause_queue
INSERT INTO holdfast_queues (queue, paused_at, paused_by, reason) VALUES (:queue, :now, :actor, :reason)
ON CONFLICT (queue) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by,
  reason = excluded.reason
 WHERE holdfast_queues.paused_at IS NULL;

-- name: resume_queue
UPDATE holdfast_queues SET paused_at = NULL, paused_by = :actor, reason = :reason
 WHERE queue = :queue AND paused_at IS NOT NULL RETURNING queue;

-- name: paused_queues
SELECT queue FROM holdfast_queues WHERE paused_at IS NOT NULL ORDER BY queue;

-- name: ask_cancel
UPDATE holdfast_executions SET cancel_asked_at = coalesce(cancel_asked_at, :now)
 WHERE job_id = :job_id AND status IN ('LEASED', 'IN_PROGRESS') RETURNING exec_id;

-- name: keep_checkpoints
-- rows: name, value
INSERT INTO holdfast_checkpoints (job_id, name, value, exec_id, created_at)
SELECT e.job_id, r.value ->> 0, r.value ->> 1, e.exec_id, :now
  FROM holdfast_executions e CROSS JOIN json_each(:rows) r
 WHERE e.exec_id = :exec_id AND e.lease_token = :token AND e.status = 'IN_PROGRESS' AND e.lease_expires_at > :now
ON CONFLICT (job_id, name) DO UPDATE SET value = excluded.value, exec_id = excluded.exec_id,
  created_at = excluded.created_at
RETURNING name;

-- name: checkpoints_of
SELECT name, value FROM holdfast_checkpoints WHERE job_id = :job_id;

-- name: worker_seen
INSERT INTO holdfast_workers (worker_id, queues, operations, concurrency, started_at, seen_at)
VALUES (:worker_id, :queues, :operations, :concurrency, :now, :now)
ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at;

-- name: worker_stopped
UPDATE holdfast_workers SET seen_at = :now, stopped_at = :now WHERE worker_id = :worker_id RETURNING worker_id;

-- name: workers
SELECT worker_id, queues, operations, concurrency, started_at, seen_at, stopped_at
  FROM holdfast_workers ORDER BY started_at, worker_id;

-- name: forget_workers
DELETE FROM holdfast_workers WHERE seen_at < :before;
