-- Statements of quarantine: listing what rests there, and the facts that it is counted by.

-- name: list_quarantined
SELECT {job_columns} FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.resting = :state
   AND (:code IS NULL OR j.quarantine_code = :code) AND (:but IS NULL OR j.quarantine_code <> :but)
   AND (:operation IS NULL OR j.operation = :operation) AND (:queue IS NULL OR j.queue = :queue)
   AND (:until IS NULL OR j.updated_at < :until) AND (:slimmed OR c.payload IS NOT NULL)
   AND j.job_id < coalesce(:before, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;
