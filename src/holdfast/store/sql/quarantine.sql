-- Statements of quarantine: listing what rests there, and the facts that it is counted by.

-- name: quarantined_facts
SELECT j.job_id, j.quarantine_code, j.last_error_code, j.last_error_message, j.operation, j.queue, j.updated_at,
  c.payload IS NULL
  FROM holdfast_jobs j {with_call}
 WHERE j.resting = :state AND j.job_id > :after
 ORDER BY j.job_id LIMIT :n;
