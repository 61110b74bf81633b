-- Statements of quarantine: listing what rests there, and the facts that it is counted by.

-- name: list_quarantined
-- The states are named, so that the partial index is seen to hold all of them.
SELECT {job_columns} FROM holdfast_jobs j
 WHERE j.state = :state AND j.state IN ('failed', 'quarantined', 'running')
   AND (:code IS NULL OR j.quarantine_code = :code) AND (:but IS NULL OR j.quarantine_code <> :but)
   AND (:operation IS NULL OR j.operation = :operation) AND (:queue IS NULL OR j.queue = :queue)
   AND (:until IS NULL OR j.updated_at < :until) AND (:slimmed OR j.payload IS NOT NULL)
   AND j.job_id < coalesce(:before, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;
