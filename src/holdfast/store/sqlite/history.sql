-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: counts_as_of
-- A job that has not moved since stands where it stood, and its history need not be read. Of any other, the last row
-- until then tells. No such row: that part of its history is archived or lost, and the state is null.
SELECT p.operation, p.queue, p.state, count(*) AS n
  FROM (SELECT j.operation, j.queue,
          CASE WHEN j.updated_at <= :at THEN j.state
               ELSE (SELECT g.target FROM holdfast_journal g
                      WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from
                        AND g.at <= :at
                      ORDER BY g.version DESC LIMIT 1) END AS state
          FROM holdfast_jobs j WHERE j.created_at <= :at) p
 GROUP BY p.operation, p.queue, p.state ORDER BY p.operation, p.queue, p.state;

-- name: told_from
-- The latest beginning of a history that is not whole: from then on the journal tells of every job.
SELECT max(coalesce((SELECT min(g.at) FROM holdfast_journal g
                      WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from), j.updated_at))
  FROM holdfast_jobs j WHERE j.history_from > 1;

-- name: histories_of
-- Where the histories of a job and of its executions begin. Rows below that may still be there, and do not count.
SELECT 'JOB', j.job_id, j.history_from FROM holdfast_jobs j WHERE j.job_id = :job_id
UNION ALL
SELECT 'EXECUTION', e.exec_id, e.history_from FROM holdfast_executions e WHERE e.job_id = :job_id;

-- name: pause_of
SELECT paused_at, paused_by, reason FROM holdfast_queues WHERE queue = :queue AND paused_at IS NOT NULL;

-- name: due_ahead
-- No further than n: nobody waits for an exact number of millions. What a claim passes over is not ahead.
SELECT count(*)
  FROM (SELECT 1 FROM holdfast_jobs j
         WHERE j.state = 'pending' AND j.queue = :queue AND j.priority > :priority AND j.run_at <= :now
           AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
        UNION ALL
        SELECT 1 FROM holdfast_jobs j
         WHERE j.state = 'pending' AND j.queue = :queue AND j.priority = :priority AND j.run_at <= :now
           AND (j.run_at, j.job_id) < (:run_at, :job_id)
           AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
         LIMIT :n) a;

-- name: held_by_owner
SELECT e.lease_owner, count(*) FROM holdfast_executions e
 WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at > :now
 GROUP BY e.lease_owner;

-- name: lost_by_owner
SELECT e.lease_owner, max(e.lease_expires_at) FROM holdfast_executions e
 WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at <= :now
 GROUP BY e.lease_owner;
