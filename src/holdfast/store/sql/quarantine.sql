-- Statements of quarantine: listing what rests there, and the facts that it is counted by.

-- name: quarantined_facts
SELECT j.job_id, j.quarantine_code, j.last_error_code, j.last_error_message, j.operation, j.queue, j.updated_at,
  j.payload IS NULL
  FROM holdfast_jobs j
 WHERE j.state = :state AND j.state IN ('failed', 'quarantined', 'running') AND j.job_id > :after
 ORDER BY j.job_id LIMIT :n;
