-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the PostgreSQL dialect.

-- name: list_jobs
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE (CAST(:state AS text) IS NULL OR j.state = :state)
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND j.job_id < coalesce(CAST(:before AS bigint), 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: list_resting_jobs
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE j.resting = :state
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND j.job_id < coalesce(CAST(:before AS bigint), 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: list_running_jobs
-- All running jobs are sorted: no more than the workers hold. The sign keeps SQLite from walking all jobs by their ids.
SELECT {job_columns} FROM holdfast_jobs j {with_call}
 WHERE j.lease_expires_at IS NOT NULL AND j.state = :state
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND +j.job_id < coalesce(CAST(:before AS bigint), 9223372036854775807)
 ORDER BY +j.job_id DESC LIMIT :n;

-- name: job_states
SELECT j.job_id, j.state FROM {each}(:rows) r {ordered} JOIN holdfast_jobs j ON j.job_id = r.{number};

-- name: slimmable_jobs
SELECT j.job_id FROM holdfast_jobs j {with_call}
 WHERE j.job_id > :after AND j.state IN (SELECT value FROM {each}(:states)) AND j.updated_at < :before
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND c.payload IS NOT NULL
 ORDER BY j.job_id LIMIT :n;
