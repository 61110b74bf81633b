-- Statements of flow: unique work, deadlines.

-- name: overdue_jobs
SELECT j.job_id, j.deadline_at FROM holdfast_jobs j
 WHERE j.deadline_at IS NOT NULL AND j.state = 'pending' AND j.deadline_at <= {now}
 ORDER BY j.deadline_at LIMIT :n;

-- name: deadline_of
SELECT j.deadline_at FROM holdfast_jobs j WHERE j.job_id = :job_id;
