-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: histories_of
-- Where the histories of a job and of its executions begin. Rows below that may still be there, and do not count.
SELECT 'JOB', j.job_id, j.history_from FROM holdfast_jobs j WHERE j.job_id = :job_id
UNION ALL
SELECT 'EXECUTION', e.exec_id, e.history_from FROM holdfast_executions e WHERE e.job_id = :job_id;

-- name: pause_of
SELECT paused_at, paused_by, reason FROM holdfast_queues WHERE queue = :queue AND paused_at IS NOT NULL;

-- name: due_ahead
-- No further than n: an exact number of millions is not worth the wait. What a claim passes over is not ahead.
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
