-- Statements of quarantine: listing what rests there, and the facts that it is counted by.

-- name: list_quarantined
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE j.resting = :state
   AND (:code::text IS NULL OR j.quarantine_code = :code) AND (:but::text IS NULL OR j.quarantine_code <> :but)
   AND (:operation::text IS NULL OR j.operation = :operation) AND (:queue::text IS NULL OR j.queue = :queue)
   AND (:until::timestamptz IS NULL OR j.updated_at < :until) AND (:slimmed::boolean OR c.payload IS NOT NULL)
   AND j.job_id < coalesce(:before::bigint, 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;
