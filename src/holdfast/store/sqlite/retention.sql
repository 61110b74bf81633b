-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: block_age
-- When its newest row was written, and how many of its rows tell of something else than maintenance.
SELECT max(g.at), count(CASE WHEN g.machine <> 'MAINTENANCE' THEN 1 END)
  FROM holdfast_journal g
 WHERE g.seq BETWEEN :low_seq AND :high_seq
   AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
   AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq);

-- name: block_holder
-- The first record of a block that may still move: a job with its payload (or its execution), a grant or a run that has
-- not ended. Values and switches stand for years, and a step ends with its run: none of them holds anything. `soon` lists states and times: a job that came to rest there before then counts as slimmed already.
WITH soon AS (SELECT value ->> 0 AS state, value ->> 1 AS before FROM json_each(:soon))
SELECT h.machine, h.subject, h.state
  FROM (SELECT g.seq, g.machine, g.subject, CASE g.machine
          WHEN 'JOB' THEN (
            SELECT j.state FROM holdfast_jobs j
             WHERE j.job_id = g.subject AND j.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN 'EXECUTION' THEN (
            SELECT e.status FROM holdfast_executions e CROSS JOIN holdfast_jobs j ON j.job_id = e.job_id
             WHERE e.exec_id = g.subject AND j.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN 'GRANT' THEN (
            SELECT t.state FROM holdfast_grants t
             WHERE t.grant_id = g.subject AND t.state NOT IN (SELECT value FROM json_each(:grants)))
          WHEN 'PROCEDURE' THEN (
            SELECT p.state FROM holdfast_procedures p
             WHERE p.run_id = g.subject AND p.state NOT IN (SELECT value FROM json_each(:procedures)))
          END AS state
          FROM holdfast_journal g
         WHERE g.seq BETWEEN :low_seq AND :high_seq
           AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
           AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)) h
 WHERE h.state IS NOT NULL ORDER BY h.seq LIMIT 1;

-- name: executions_told
-- rows: exec_id and version; those whose last move is that very one.
SELECT {execution_columns}, e.event, e.actor, e.reason, e.move_id, e.history_from
  FROM json_each(:rows) r CROSS JOIN holdfast_executions e ON e.exec_id = r.value ->> 0
 WHERE e.version = r.value ->> 1 ORDER BY e.exec_id;

-- name: forget_executions
DELETE FROM holdfast_executions WHERE exec_id IN (SELECT value FROM json_each(:rows)) RETURNING exec_id;

-- name: begin_histories
-- Of each machine: id and the first version that the journal still tells of.
UPDATE holdfast_jobs AS r SET history_from = k.value ->> 1
  FROM json_each(:jobs) k WHERE r.job_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_executions AS r SET history_from = k.value ->> 1
  FROM json_each(:executions) k WHERE r.exec_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_grants AS r SET history_from = k.value ->> 1
  FROM json_each(:grants) k WHERE r.grant_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_procedures AS r SET history_from = k.value ->> 1
  FROM json_each(:procedures) k WHERE r.run_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_steps AS r SET history_from = k.value ->> 1
  FROM json_each(:steps) k WHERE r.step_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_switches AS r SET history_from = k.value ->> 1
  FROM json_each(:switches) k WHERE r.switch_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_values AS r SET history_from = k.value ->> 1
  FROM json_each(:registry) k WHERE r.value_id = k.value ->> 0 AND r.history_from < k.value ->> 1;

-- name: forget_archived_rows
DELETE FROM holdfast_journal WHERE seq IN (SELECT value FROM json_each(:rows)) RETURNING seq;
