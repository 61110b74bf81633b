-- Statements for operators: what was heard of each feed, what is known of a day, and what a dead letter is about.

-- name: fates
SELECT c.dataset, c.fate, c.reason, c.n, c.last_at FROM nodd_counts c ORDER BY c.dataset, c.fate, c.reason;

-- name: known_objects
-- Which of these objects have a unit. rows: source_uri
SELECT DISTINCT u.source_uri FROM json_each(:rows) r CROSS JOIN nodd_units u ON u.source_uri = r.value ->> 0;

-- name: wal_records
SELECT * FROM nodd_wal_records w
 WHERE (:dataset IS NULL OR w.dataset = :dataset) AND (:status IS NULL OR w.status = :status)
   AND (:wal_id IS NULL OR w.wal_id = :wal_id)
 ORDER BY w.ext_job_id DESC LIMIT :n;

-- name: last_attempts
-- When the last so many attempts that have ended began and ended.
SELECT e.started_at, e.finished_at FROM holdfast_executions e JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE j.operation = :operation AND e.started_at IS NOT NULL AND e.finished_at IS NOT NULL
 ORDER BY e.exec_id DESC LIMIT :n;
