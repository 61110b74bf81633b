-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: block_age
-- When its newest row was written, and how many of its rows tell of something else than maintenance.
SELECT max(g.at COLLATE "C"), count(CASE WHEN g.machine <> 'MAINTENANCE' THEN 1 END)
  FROM holdfast_journal g
 WHERE g.seq BETWEEN :low_seq AND :high_seq
   AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
   AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq);

-- name: block_holder
-- The first record of a block that may still move: a job with its payload (or its execution), a grant or a run that has
-- not ended. Values and switches stand for years, and a step ends with its run: none of them holds anything. `soon` lists states and times: a job that came to rest there before then counts as slimmed already.
WITH soon AS MATERIALIZED (SELECT s ->> 0 AS state, (s ->> 1)::timestamptz AS before FROM json_array_elements(:soon) s)
SELECT h.machine, h.subject, h.state
  FROM (SELECT g.seq, g.machine, g.subject, CASE g.machine
          WHEN 'JOB' THEN (
            SELECT j.state FROM holdfast_jobs j
             WHERE j.job_id = g.subject AND j.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN 'EXECUTION' THEN (
            SELECT e.status FROM holdfast_executions e JOIN holdfast_jobs j ON j.job_id = e.job_id
             WHERE e.exec_id = g.subject AND j.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN 'GRANT' THEN (
            SELECT t.state FROM holdfast_grants t
             WHERE t.grant_id = g.subject AND t.state NOT IN (SELECT json_array_elements_text(:grants)))
          WHEN 'PROCEDURE' THEN (
            SELECT p.state FROM holdfast_procedures p
             WHERE p.run_id = g.subject AND p.state NOT IN (SELECT json_array_elements_text(:procedures)))
          END AS state
          FROM holdfast_journal g
         WHERE g.seq BETWEEN :low_seq AND :high_seq
           AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
           AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)
         OFFSET 0) h
 WHERE h.state IS NOT NULL ORDER BY h.seq LIMIT 1;

-- name: executions_told
-- rows: exec_id and version; those whose last move is that very one.
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS exec_id, (r ->> 1)::bigint AS version FROM json_array_elements(:rows) r)
SELECT {execution_columns}, e.event, e.actor, e.reason, e.move_id, e.history_from
  FROM k JOIN holdfast_executions e ON e.exec_id = k.exec_id AND e.version = k.version
 WHERE e.exec_id = ANY (ARRAY(SELECT exec_id FROM k)) ORDER BY e.exec_id;

-- name: forget_executions
DELETE FROM holdfast_executions WHERE exec_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
RETURNING exec_id;

-- name: begin_histories
-- Of each machine: id and the first version that the journal still tells of.
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:jobs) r)
UPDATE holdfast_jobs AS r SET history_from = k.first FROM k
 WHERE r.job_id = ANY (ARRAY(SELECT id FROM k)) AND r.job_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:executions) r)
UPDATE holdfast_executions AS r SET history_from = k.first FROM k
 WHERE r.exec_id = ANY (ARRAY(SELECT id FROM k)) AND r.exec_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:grants) r)
UPDATE holdfast_grants AS r SET history_from = k.first FROM k
 WHERE r.grant_id = ANY (ARRAY(SELECT id FROM k)) AND r.grant_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:procedures) r)
UPDATE holdfast_procedures AS r SET history_from = k.first FROM k
 WHERE r.run_id = ANY (ARRAY(SELECT id FROM k)) AND r.run_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:steps) r)
UPDATE holdfast_steps AS r SET history_from = k.first FROM k
 WHERE r.step_id = ANY (ARRAY(SELECT id FROM k)) AND r.step_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:switches) r)
UPDATE holdfast_switches AS r SET history_from = k.first FROM k
 WHERE r.switch_id = ANY (ARRAY(SELECT id FROM k)) AND r.switch_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:registry) r)
UPDATE holdfast_values AS r SET history_from = k.first FROM k
 WHERE r.value_id = ANY (ARRAY(SELECT id FROM k)) AND r.value_id = k.id AND r.history_from < k.first;

-- name: forget_archived_rows
-- Here they stay until their whole partition can go: this only makes sure that they are all there.
SELECT seq FROM holdfast_journal WHERE seq = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));
