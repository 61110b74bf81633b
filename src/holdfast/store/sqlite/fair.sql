-- Statements of the fair claim.

-- name: fair_jobs
-- The first due jobs of each lane (see claim_jobs), at most 16 lanes, merged by their due time minus a number of seconds
-- for each priority, which is a setting. Each lane is a walk of one index; so a job of low priority gets its turn, and later only by so much.
WITH RECURSIVE
  f AS MATERIALIZED (SELECT coalesce((SELECT CAST(s.value AS REAL) FROM holdfast_settings s
    WHERE s.kind = 'fair' AND s.name = 'step_s' AND s.state = 'active'), :step) AS step),
  every_lane (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value)
      FROM json_each(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q.value AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM every_lane l WHERE l.priority IS NOT NULL),
  lanes AS MATERIALIZED (
    SELECT h.queue, h.priority
      FROM (SELECT l.queue, l.priority, (SELECT min(j.due_at) FROM holdfast_jobs j
               WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority) AS head
              FROM every_lane l WHERE l.priority IS NOT NULL) h
     WHERE h.head <= :now
     ORDER BY julianday(h.head) * 86400 - h.priority * (SELECT step FROM f) LIMIT 16)
SELECT j.job_id
  FROM lanes l CROSS JOIN holdfast_jobs j ON j.job_id IN (
    SELECT d.job_id FROM holdfast_jobs d INDEXED BY holdfast_jobs_due
     WHERE d.due_at IS NOT NULL AND d.parked IS NULL AND d.queue = l.queue AND d.priority = l.priority AND d.due_at <= :now
       AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || d.operation)
       AND (d.deadline_at IS NULL OR d.deadline_at > :now)
     ORDER BY d.due_at, d.job_id LIMIT :n)
 ORDER BY julianday(j.due_at) * 86400 - j.priority * (SELECT step FROM f), j.due_at, j.job_id LIMIT :n;
