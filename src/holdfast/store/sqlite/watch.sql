-- Statements for people who watch a ledger: see ../sql/watch.sql.

-- name: waiting_lines
-- For a few among many: all that wait are sorted.
SELECT j.job_id, j.state, j.operation, j.queue, c.client, c.key, j.attempts, j.excused, c.max_attempts, j.run_at,
       c.created_at, j.updated_at, j.last_error_code, j.last_error_message, j.quarantine_code, j.lost
  FROM (SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_due WHERE due_at IS NOT NULL AND parked IS NULL
        UNION ALL SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_parked WHERE parked IS NOT NULL) w
  CROSS JOIN holdfast_jobs j ON j.job_id = w.job_id CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.state = :state AND j.job_id < :before AND j.job_id > :after
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND (CAST(:code AS text) IS NULL OR j.last_error_code = :code)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: running_lines
-- All running jobs are sorted: no more than the workers hold. Without the hint every job is read, newest first.
SELECT j.job_id, j.state, j.operation, j.queue, c.client, c.key, j.attempts, j.excused, c.max_attempts, j.run_at,
       c.created_at, j.updated_at, j.last_error_code, j.last_error_message, j.quarantine_code, j.lost
  FROM holdfast_jobs j INDEXED BY holdfast_jobs_leased CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.lease_expires_at IS NOT NULL AND j.state = :state AND j.job_id < :before AND j.job_id > :after
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND (CAST(:code AS text) IS NULL OR j.last_error_code = :code)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: recent_moves
-- Moves of jobs by minute: what was folded, and the newest n deltas that are not folded yet.
SELECT minute, operation, queue, source, target, event, code, CAST(sum(n) AS bigint)
  FROM (SELECT minute, operation, queue, source, target, event, code, n FROM holdfast_minutes WHERE minute >= :since
        UNION ALL
        SELECT substr(d.at, 1, 17) || '00.000000Z', d.operation, d.queue, coalesce(d.source, ''), d.target, d.event,
               coalesce(d.code, ''), d.n
          FROM holdfast_count_deltas d
         WHERE d.delta_id > (SELECT max(delta_id) FROM holdfast_count_deltas) - :n AND d.at >= :since) m
 GROUP BY minute, operation, queue, source, target, event, code;
