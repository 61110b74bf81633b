-- Statements for workers and queues: what is due, who works, which queues are paused, what an attempt keeps for the next one.

-- name: oldest_due
-- For each queue the earliest time at which a pending job may run, switched-off operations too. It walks the lanes, as a
-- claim does, so that its time does not grow with the number of jobs that wait.
WITH RECURSIVE lanes (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value)
      FROM {each}(:rows) q
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL)
SELECT l.queue, min((SELECT min(j.due_at) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority))
  FROM lanes l WHERE l.priority IS NOT NULL GROUP BY l.queue;

-- name: pause_queue
INSERT INTO holdfast_queues (queue, paused_at, paused_by, reason) VALUES (:queue, {now}, :actor, :reason)
ON CONFLICT (queue) DO UPDATE SET paused_at = excluded.paused_at, paused_by = excluded.paused_by,
  reason = excluded.reason
 WHERE holdfast_queues.paused_at IS NULL RETURNING queue;

-- name: resume_queue
UPDATE holdfast_queues SET paused_at = NULL, paused_by = :actor, reason = :reason
 WHERE queue = :queue AND paused_at IS NOT NULL RETURNING queue;

-- name: paused_queues
SELECT queue FROM holdfast_queues WHERE paused_at IS NOT NULL ORDER BY queue;

-- name: ended_lately
-- Of the last n rows of the journal: how many jobs of each queue have succeeded since a time.
SELECT j.queue, count(*)
  FROM holdfast_journal g JOIN holdfast_jobs j ON j.job_id = g.subject
 WHERE g.seq > (SELECT max(seq) FROM holdfast_journal) - :n AND g.machine = 'JOB' AND g.target = 'succeeded' AND g.at > :since
 GROUP BY j.queue;

-- name: limit_queue
INSERT INTO holdfast_queues (queue, depth_max) VALUES (:queue, :depth)
ON CONFLICT (queue) DO UPDATE SET depth_max = excluded.depth_max;

-- name: queue_limits
-- With whether the queue parks what is submitted beyond.
SELECT q.queue, q.depth_max, EXISTS (SELECT 1 FROM holdfast_settings s
                                      WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'depth:' || q.queue)
  FROM holdfast_queues q WHERE q.depth_max IS NOT NULL ORDER BY q.queue;

-- name: depth_of
SELECT q.depth_max, EXISTS (SELECT 1 FROM holdfast_settings s
                             WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'depth:' || q.queue)
  FROM holdfast_queues q WHERE q.queue = :queue AND q.depth_max IS NOT NULL;

-- name: queue_changes
-- The value before a change is the one that was replaced in the same move.
SELECT CASE WHEN s.name = 'depth:' || :queue THEN 'depth' ELSE s.kind END,
       CASE WHEN g.event = 'remove' THEN s.value ELSE (
         SELECT b.value FROM holdfast_settings b
          WHERE b.kind = s.kind AND b.name = s.name AND b.state = 'replaced' AND b.move_id = g.move_id) END,
       CASE WHEN g.event = 'set' THEN s.value END, g.actor, g.reason, g.at
  FROM holdfast_settings s JOIN holdfast_edges g ON g.record = s.setting_id AND g.subject = s.setting_id
 WHERE g.machine = 'SETTING' AND g.event <> 'replace'
   AND (s.kind, s.name) IN (VALUES ('limit', :subject), ('limit', 'depth:' || :queue), ('weight', :queue), ('depth', :queue), ('pause', :queue),
                                ('fair', 'step_s'))
 ORDER BY g.seq DESC LIMIT :n;

-- name: ask_cancel
-- A request is made once: a later one changes nothing.
UPDATE holdfast_jobs
   SET cancel_requested_at = coalesce(cancel_requested_at, {now}),
       cancel_by = CASE WHEN cancel_requested_at IS NULL THEN :actor ELSE cancel_by END,
       cancel_reason = CASE WHEN cancel_requested_at IS NULL THEN :reason ELSE cancel_reason END,
       cancel_move_id = CASE WHEN cancel_requested_at IS NULL THEN :move_id ELSE cancel_move_id END
 WHERE job_id = :job_id AND status IN ('LEASED', 'IN_PROGRESS') RETURNING job_id;

-- name: checkpoints_of
SELECT name, value FROM holdfast_checkpoints WHERE job_id = :job_id;

-- name: worker_seen
INSERT INTO holdfast_workers (worker_id, queues, operations, concurrency, started_at, seen_at)
VALUES (:worker_id, :queues, :operations, :concurrency, {now}, {now})
ON CONFLICT (worker_id) DO UPDATE SET seen_at = excluded.seen_at;

-- name: worker_stopped
UPDATE holdfast_workers SET seen_at = {now}, stopped_at = {now} WHERE worker_id = :worker_id RETURNING worker_id;

-- name: workers
SELECT worker_id, queues, operations, concurrency, started_at, seen_at, stopped_at
  FROM holdfast_workers ORDER BY started_at, worker_id;

-- name: forget_workers
DELETE FROM holdfast_workers WHERE seen_at < :before;
