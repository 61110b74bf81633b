-- Statements about jobs. Rows come in as one JSON array of arrays; names and results match the PostgreSQL dialect.

-- name: list_jobs
SELECT {job_columns} FROM holdfast_jobs j
 WHERE (CAST(:state AS text) IS NULL OR j.state = :state)
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR j.client = :client)
   AND j.job_id < coalesce(CAST(:before AS bigint), 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: list_resting_jobs
-- The states are named, so that the partial index is seen to hold all of them.
SELECT {job_columns} FROM holdfast_jobs j
 WHERE j.state = :state AND j.state IN ('failed', 'quarantined', 'running')
   AND (CAST(:operation AS text) IS NULL OR j.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR j.queue = :queue) AND (CAST(:client AS text) IS NULL OR j.client = :client)
   AND j.job_id < coalesce(CAST(:before AS bigint), 9223372036854775807)
 ORDER BY j.job_id DESC LIMIT :n;

-- name: slimmable_jobs
SELECT job_id FROM holdfast_jobs
 WHERE job_id > :after AND state IN (SELECT value FROM {each}(:states)) AND updated_at < :before
   AND (CAST(:queue AS text) IS NULL OR queue = :queue) AND payload IS NOT NULL
 ORDER BY job_id LIMIT :n;
