-- Statements of parked jobs: what something holds back although its time has come.

-- name: park_jobs
-- Parking is no move: neither version nor journal. Only a pending job can be parked.
UPDATE holdfast_jobs SET parked = :parked, limit_key = :bucket
 WHERE job_id IN (SELECT {number} FROM {each}(:rows)) AND state = 'pending' AND parked IS NULL
RETURNING job_id;

-- name: unpark_jobs
UPDATE holdfast_jobs SET parked = NULL, limit_key = NULL
 WHERE job_id IN (SELECT {number} FROM {each}(:rows)) AND parked = :parked
RETURNING job_id, queue;
