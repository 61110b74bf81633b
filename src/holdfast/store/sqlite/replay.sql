-- Statements of replay: finding what may be replayed, and how the queues are doing.

-- name: resting_jobs_after
SELECT {job_columns} FROM holdfast_jobs j INDEXED BY holdfast_jobs_resting CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.resting = :state AND j.job_id > :job_id
   AND (:queues IS NULL OR j.queue IN (SELECT value FROM json_each(:queues)))
   AND (:operations IS NULL OR j.operation IN (SELECT value FROM json_each(:operations)))
 ORDER BY j.job_id LIMIT :n;

-- name: jobs_after
SELECT {job_columns} FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.state = :state AND j.job_id > :job_id
   AND (:queues IS NULL OR j.queue IN (SELECT value FROM json_each(:queues)))
   AND (:operations IS NULL OR j.operation IN (SELECT value FROM json_each(:operations)))
 ORDER BY j.job_id LIMIT :n;

-- name: replaced_by
SELECT j.replaces, max(j.job_id) FROM holdfast_calls j
 WHERE j.replaces IS NOT NULL AND j.replaces IN (SELECT value FROM json_each(:rows))
 GROUP BY j.replaces;

-- name: lock_replays
SELECT 1;
