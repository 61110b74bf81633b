-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: counts_as_of
-- A job that has not moved since has the state that it had then, and its history need not be read. The state of any other
-- is in its last row until then. If there is none, that part of its history is archived or lost, and the state is null.
SELECT p.operation, p.queue, p.state, count(*) AS n
  FROM (SELECT j.operation, j.queue,
          CASE WHEN j.updated_at <= :at THEN j.state
               ELSE (SELECT g.target FROM holdfast_journal g
                      WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from
                        AND g.at <= :at
                      ORDER BY g.version DESC LIMIT 1) END AS state
          FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id WHERE c.created_at <= :at) p
 GROUP BY p.operation, p.queue, p.state ORDER BY p.operation, p.queue, p.state;
