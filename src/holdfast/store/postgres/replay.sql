-- Statements of replay: finding what may be replayed, and how the queues are doing.

-- name: resting_jobs_after
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE j.resting = :state AND j.job_id > :job_id
   AND (:queues::text IS NULL OR j.queue IN (SELECT json_array_elements_text(:queues::json)))
   AND (:operations::text IS NULL OR j.operation IN (SELECT json_array_elements_text(:operations::json)))
 ORDER BY j.job_id LIMIT :n;

-- name: jobs_after
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE j.state = :state AND j.job_id > :job_id
   AND (:queues::text IS NULL OR j.queue IN (SELECT json_array_elements_text(:queues::json)))
   AND (:operations::text IS NULL OR j.operation IN (SELECT json_array_elements_text(:operations::json)))
 ORDER BY j.job_id LIMIT :n;

-- name: replaced_by
SELECT j.replaces, max(j.job_id) FROM holdfast_calls j
 WHERE j.replaces IS NOT NULL AND j.replaces = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
 GROUP BY j.replaces;

-- name: lock_replays
LOCK TABLE holdfast_procedures IN SHARE ROW EXCLUSIVE MODE;
