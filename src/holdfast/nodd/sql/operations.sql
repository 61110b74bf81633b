-- Statements for the commands: counts of fates, records, and the duration of attempts.

-- name: fates
SELECT c.dataset, c.fate, c.reason, c.n, c.last_at FROM nodd_counts c ORDER BY c.dataset, c.fate, c.reason;

-- name: last_attempts
-- Start and end of the last n finished attempts.
SELECT e.started_at, e.finished_at FROM holdfast_executions e JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE j.operation = :operation AND e.started_at IS NOT NULL AND e.finished_at IS NOT NULL
 ORDER BY e.exec_id DESC LIMIT :n;

-- name: wal_records
SELECT * FROM nodd_wal_records w
 WHERE (CAST(:dataset AS text) IS NULL OR w.dataset = :dataset) AND (CAST(:status AS text) IS NULL OR w.status = :status)
   AND (CAST(:wal_id AS text) IS NULL OR w.wal_id = :wal_id)
 ORDER BY w.ext_job_id DESC LIMIT :n;
