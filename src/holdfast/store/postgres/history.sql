-- Statements for looking back, and for finding out why a job does not run. Nothing here writes or locks.

-- name: counts_as_of
-- A job that has not moved since stands where it stood, and its history need not be read. Of any other, the last row
-- until then tells. No such row: that part of its history is archived or lost, and the state is null. In two
-- parts, because the planner cannot tell how few states come out of the second one, and would sort all jobs for it.
WITH t AS MATERIALIZED (SELECT :at::text AS text, :at::text::timestamptz AS time)
SELECT c.operation, c.queue, c.state, sum(c.n)::bigint AS n
  FROM (SELECT j.operation, j.queue, j.state, count(*) AS n
          FROM holdfast_jobs j WHERE j.updated_at <= (SELECT time FROM t) GROUP BY j.operation, j.queue, j.state
        UNION ALL
        SELECT m.operation, m.queue, m.state, count(*)
          FROM (SELECT j.operation, j.queue,
                  (SELECT g.target FROM holdfast_journal g
                    WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from
                      AND g.at COLLATE "C" <= (SELECT text FROM t)
                    ORDER BY g.version DESC LIMIT 1) AS state
                  FROM holdfast_jobs j
                 WHERE j.created_at <= (SELECT time FROM t) AND j.updated_at > (SELECT time FROM t)) m
         GROUP BY m.operation, m.queue, m.state) c
 GROUP BY c.operation, c.queue, c.state ORDER BY c.operation, c.queue, c.state;

-- name: told_from
-- The latest beginning of a history that is not whole: from then on the journal tells of every job.
SELECT max(coalesce((SELECT min(g.at::timestamptz) FROM holdfast_journal g
                      WHERE g.machine = 'JOB' AND g.subject = j.job_id AND g.version >= j.history_from), j.updated_at))
  FROM holdfast_jobs j WHERE j.history_from > 1;
