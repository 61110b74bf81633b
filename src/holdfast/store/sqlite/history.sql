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
