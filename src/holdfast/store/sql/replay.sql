-- Statements of replay: finding what may be replayed, and how the queues are doing.

-- name: recent_attempts
SELECT e.started_at, e.finished_at
  FROM (SELECT job_id, started_at, finished_at FROM holdfast_executions ORDER BY exec_id DESC LIMIT :n) e
  {ordered} JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE e.started_at IS NOT NULL AND (e.finished_at IS NULL OR e.finished_at >= :since)
   AND j.queue IN (SELECT value FROM {each}(:queues));
