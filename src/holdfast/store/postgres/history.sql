-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: counts_as_of
-- A job that has not moved since has the state that it had then, and its history need not be read. The state of any other
-- is in its last row until then. If there is none, that part of its history is archived or lost, and the state is null.
-- In two parts, because the planner cannot tell how few states come out of the second one, and would sort all jobs for it.
WITH t AS MATERIALIZED (SELECT :at::text::timestamptz AS time)
SELECT c.operation, c.queue, c.state, sum(c.n)::bigint AS n
  FROM (SELECT j.operation, j.queue, j.state, count(*) AS n
          FROM holdfast_jobs j WHERE j.updated_at <= (SELECT time FROM t) GROUP BY j.operation, j.queue, j.state
        UNION ALL
        SELECT m.operation, m.queue, m.state, count(*)
          FROM (SELECT j.operation, j.queue,
                  (SELECT g.target FROM holdfast_journal g
                    WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from
                      AND g.at <= (SELECT time FROM t)
                    ORDER BY g.version DESC LIMIT 1) AS state
                  FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id
                 WHERE c.created_at <= (SELECT time FROM t) AND j.updated_at > (SELECT time FROM t)) m
         GROUP BY m.operation, m.queue, m.state) c
 GROUP BY c.operation, c.queue, c.state ORDER BY c.operation, c.queue, c.state;
