-- Statements for people who watch a ledger: see ../sql/watch.sql.

-- name: waiting_lines
-- For a few among many: all that wait are sorted.
SELECT j.job_id, j.state, j.operation, j.queue, c.client, c.key, j.attempts, j.excused, c.max_attempts, j.run_at,
       c.created_at, j.updated_at, j.last_error_code, j.last_error_message, j.quarantine_code
  FROM (SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_due WHERE due_at IS NOT NULL AND parked IS NULL
        UNION ALL SELECT job_id FROM holdfast_jobs INDEXED BY holdfast_jobs_parked WHERE parked IS NOT NULL) w
  CROSS JOIN holdfast_jobs j ON j.job_id = w.job_id CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.state = :state AND j.job_id < :before AND j.job_id > :after
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND (CAST(:code AS text) IS NULL OR j.last_error_code = :code)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: recent_moves
-- Moves of jobs by minute; `first` is the earliest of those that were read.
SELECT substr(r.at, 1, 16) || ':00.000000Z', j.operation, j.queue, r.source, r.target, count(*), min(r.at) AS first
  FROM (SELECT g.at, g.machine, g.subject, g.source, g.target FROM holdfast_journal g ORDER BY g.seq DESC LIMIT :n) r
  CROSS JOIN holdfast_jobs j ON j.job_id = r.subject
 WHERE r.machine = 'JOB' AND r.at >= :since
 GROUP BY 1, j.operation, j.queue, r.source, r.target;
