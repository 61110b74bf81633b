-- Statements for the commands: counts of fates, records, and the duration of attempts.

-- name: fates
SELECT c.dataset, c.fate, c.reason, c.n, c.last_at FROM nodd_counts c ORDER BY c.dataset, c.fate, c.reason;

-- name: last_attempts
-- Start and end of n finished attempts, those of the newest jobs first. Each part ends at its own LIMIT, so that neither
-- reads all attempts to sort them.
SELECT a.started_at, a.finished_at
  FROM (SELECT * FROM (
          SELECT j.job_id, j.attempts AS attempt, j.started_at, j.updated_at AS finished_at FROM holdfast_jobs j
           WHERE j.operation = :operation AND j.status = 'DONE' AND j.started_at IS NOT NULL
           ORDER BY j.job_id DESC LIMIT :n) d
        UNION ALL
        SELECT * FROM (
          SELECT b.job_id, b.attempt, b.started_at, b.finished_at
            FROM holdfast_aborted b {ordered} JOIN holdfast_jobs j ON j.job_id = b.job_id
           WHERE j.operation = :operation AND b.started_at IS NOT NULL
           ORDER BY b.job_id DESC, b.attempt DESC LIMIT :n) f) a
 ORDER BY a.job_id DESC, a.attempt DESC LIMIT :n;

-- name: wal_records
SELECT * FROM nodd_wal_records w
 WHERE (CAST(:dataset AS text) IS NULL OR w.dataset = :dataset) AND (CAST(:status AS text) IS NULL OR w.status = :status)
   AND (CAST(:wal_id AS text) IS NULL OR w.wal_id = :wal_id)
 ORDER BY w.ext_job_id DESC LIMIT :n;

-- name: units_of_prefix
-- The state of the job of every object under a prefix; of an object that was written again, that of its last write.
SELECT u.source_uri, j.state FROM nodd_units u JOIN holdfast_jobs j ON j.job_id = u.job_id
 WHERE u.dataset = :dataset AND u.source_uri LIKE :prefix ESCAPE '!' AND u.superseded_by IS NULL;

-- name: backlog
-- Units that wait, by dataset.
SELECT j.queue, count(*) FROM holdfast_jobs j WHERE j.operation = :operation AND j.state = 'pending' GROUP BY j.queue;
