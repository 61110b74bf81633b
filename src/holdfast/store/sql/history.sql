-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: history_begins
-- The first version of a job whose journal rows count: rows below it are archived or were given up.
SELECT j.history_from FROM holdfast_jobs j WHERE j.job_id = :job_id;

-- name: kept_history
-- The edges of a job and of its attempts. An archived row may still be there, and does not count.
SELECT {journal_columns} FROM holdfast_edges g
 WHERE (g.record = :job_id
        OR g.record BETWEEN CAST(:job_id AS bigint) * 1000000 AND CAST(:job_id AS bigint) * 1000000 + 999999)
   AND ((g.machine IN ('JOB', 'REQUEST') AND g.subject = :job_id)
        OR (g.machine = 'EXECUTION'
            AND g.subject BETWEEN CAST(:job_id AS bigint) * 1000000 AND CAST(:job_id AS bigint) * 1000000 + 999999))
   AND NOT EXISTS (SELECT 1 FROM holdfast_journal r WHERE r.seq = g.seq AND r.machine = 'JOB' AND r.version < :first)
   AND NOT EXISTS (SELECT 1 FROM holdfast_seals s
                    WHERE s.seal_id = (SELECT max(a.last_seal) FROM holdfast_archives a)
                      AND (s.epoch, s.last_xid, s.last_seq) >= (g.epoch, g.xid, g.seq))
 ORDER BY g.seq, g.step;

-- name: known_from
-- The latest beginning of a history that is not whole: from then on the journal tells of every job.
SELECT max(coalesce((SELECT min(g.at) FROM holdfast_journal g
                      WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from), j.updated_at))
  FROM holdfast_jobs j WHERE j.history_from > 1;

-- name: pause_of
SELECT paused_at, paused_by, reason FROM holdfast_queues WHERE queue = :queue AND paused_at IS NOT NULL;

-- name: due_ahead
-- No further than n: an exact number of millions is not worth the wait. What a claim passes over is not ahead.
SELECT count(*)
  FROM (SELECT 1 FROM holdfast_jobs j
         WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = :queue AND j.priority > :priority AND j.due_at <= :now
           AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
        UNION ALL
        SELECT 1 FROM holdfast_jobs j
         WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = :queue AND j.priority = :priority AND j.due_at <= :now
           AND (j.due_at, j.job_id) < (:run_at, :job_id)
           AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
         LIMIT :n) a;

-- name: held_by_owner
SELECT j.lease_owner, count(*) FROM holdfast_jobs j
 WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at > :now GROUP BY j.lease_owner;

-- name: lost_by_owner
SELECT j.lease_owner, max(j.lease_expires_at) FROM holdfast_jobs j
 WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= :now GROUP BY j.lease_owner;

-- name: leases
SELECT count(*), coalesce(sum(CASE WHEN j.lease_expires_at <= :now THEN 1 ELSE 0 END), 0) FROM holdfast_jobs j
 WHERE j.lease_expires_at IS NOT NULL;
