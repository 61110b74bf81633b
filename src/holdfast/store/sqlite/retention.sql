-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: block_holder
-- The first record of a block that may still move: a job with its payload (or its attempt), a grant or a run that has not
-- ended. Values and switches last for years, and a step ends with its run: none of them holds anything. `soon` lists
-- states and times: a job that came to rest there before then counts as slimmed already.
WITH soon AS (SELECT value ->> 0 AS state, value ->> 1 AS before FROM json_each(:soon))
SELECT h.machine, h.subject, h.state
  FROM (SELECT g.seq, g.machine, g.subject, CASE
          WHEN g.machine IN ('JOB', 'REQUEST') THEN (
            SELECT j.state FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
             WHERE j.job_id = g.subject AND c.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN g.machine = 'EXECUTION' THEN (
            SELECT CASE WHEN j.attempts = g.subject - j.job_id * 1000000 THEN coalesce(j.status, 'ABORTED') ELSE 'ABORTED' END
              FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
             WHERE j.job_id = g.subject / 1000000 AND c.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN g.machine = 'GRANT' THEN (
            SELECT t.state FROM holdfast_grants t
             WHERE t.grant_id = g.subject AND t.state NOT IN (SELECT value FROM json_each(:grants)))
          WHEN g.machine = 'PROCEDURE' THEN (
            SELECT p.state FROM holdfast_procedures p
             WHERE p.run_id = g.subject AND p.state NOT IN (SELECT value FROM json_each(:procedures)))
          END AS state
          FROM holdfast_journal g
         WHERE g.seq BETWEEN :low_seq AND :high_seq
           AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
           AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)) h
 WHERE h.state IS NOT NULL ORDER BY h.seq LIMIT 1;

-- name: ended_attempts
-- rows: job_id, attempt, move_id; the attempts that ended without success with that very move.
SELECT a.job_id * 1000000 + a.attempt, a.job_id, a.attempt, 'ABORTED', a.version, a.lease_owner, a.lease_token,
  a.lease_expires_at, a.excused, a.error_code, a.error_message, a.progress, a.progress_note, a.cancel_requested_at,
  a.started_at, a.finished_at, a.created_at, a.event, a.actor, a.reason, a.move_id
  FROM json_each(:rows) k CROSS JOIN holdfast_aborted a ON a.job_id = k.value ->> 0 AND a.attempt = k.value ->> 1
 WHERE a.move_id = k.value ->> 2 ORDER BY a.job_id, a.attempt;

-- name: forget_attempts
-- rows: job_id, attempt.
DELETE FROM holdfast_aborted
 WHERE (job_id, attempt) IN (SELECT value ->> 0, value ->> 1 FROM json_each(:rows)) RETURNING job_id;

-- name: begin_histories
-- Of each machine: id and the first version that the journal still tells of.
UPDATE holdfast_jobs AS r SET history_from = k.value ->> 1
  FROM json_each(:jobs) k WHERE r.job_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_grants AS r SET history_from = k.value ->> 1
  FROM json_each(:grants) k WHERE r.grant_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_procedures AS r SET history_from = k.value ->> 1
  FROM json_each(:procedures) k WHERE r.run_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_steps AS r SET history_from = k.value ->> 1
  FROM json_each(:steps) k WHERE r.step_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_switches AS r SET history_from = k.value ->> 1
  FROM json_each(:switches) k WHERE r.switch_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_settings AS r SET history_from = k.value ->> 1
  FROM json_each(:settings) k WHERE r.setting_id = k.value ->> 0 AND r.history_from < k.value ->> 1;
UPDATE holdfast_values AS r SET history_from = k.value ->> 1
  FROM json_each(:values) k WHERE r.value_id = k.value ->> 0 AND r.history_from < k.value ->> 1;

-- name: forget_archived_rows
DELETE FROM holdfast_journal WHERE seq IN (SELECT value FROM json_each(:rows)) RETURNING seq;

-- name: lock_calls
-- Writers take turns.
SELECT 1;

-- name: erased_by_hash
SELECT e.client, e.key_hash, e.job_id
  FROM json_each(:rows) r CROSS JOIN holdfast_erased e ON e.client = r.value ->> 0 AND e.key_hash = r.value ->> 1;
