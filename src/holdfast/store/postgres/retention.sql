-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: block_holder
-- The first record of a block that may still move: a job with its payload (or its attempt), a grant or a run that has not
-- ended. Values and switches last for years, and a step ends with its run: none of them holds anything. `soon` lists
-- states and times: a job that came to rest there before then counts as slimmed already.
WITH soon AS MATERIALIZED (SELECT s ->> 0 AS state, (s ->> 1)::timestamptz AS before FROM json_array_elements(:soon) s)
SELECT h.machine, h.subject, h.state
  FROM (SELECT g.seq, g.machine, g.subject, CASE
          WHEN g.machine IN ('JOB', 'REQUEST') THEN (
            SELECT j.state FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id
             WHERE j.job_id = g.subject AND c.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN g.machine = 'EXECUTION' THEN (
            SELECT CASE WHEN j.attempts = g.subject - j.job_id * 1000000 THEN coalesce(j.status, 'ABORTED') ELSE 'ABORTED' END
              FROM holdfast_jobs j JOIN holdfast_calls c ON c.job_id = j.job_id
             WHERE j.job_id = g.subject / 1000000 AND c.payload IS NOT NULL
               AND NOT EXISTS (SELECT 1 FROM soon s WHERE s.state = j.state AND j.updated_at < s.before))
          WHEN g.machine = 'GRANT' THEN (
            SELECT t.state FROM holdfast_grants t
             WHERE t.grant_id = g.subject AND t.state NOT IN (SELECT json_array_elements_text(:grants)))
          WHEN g.machine = 'PROCEDURE' THEN (
            SELECT p.state FROM holdfast_procedures p
             WHERE p.run_id = g.subject AND p.state NOT IN (SELECT json_array_elements_text(:procedures)))
          END AS state
          FROM holdfast_journal g
         WHERE g.seq BETWEEN :low_seq AND :high_seq
           AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
           AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq)
         OFFSET 0) h
 WHERE h.state IS NOT NULL ORDER BY h.seq LIMIT 1;

-- name: ended_attempts
-- rows: job_id, attempt, move_id; the attempts that ended without success with that very move.
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::bigint AS attempt, r ->> 2 AS move_id
    FROM json_array_elements(:rows) r)
SELECT a.job_id * 1000000 + a.attempt, a.job_id, a.attempt, 'ABORTED', a.version, a.lease_owner, a.lease_token,
  a.lease_expires_at, a.excused, a.error_code, a.error_message, a.progress, a.progress_note, a.cancel_requested_at,
  a.started_at, a.finished_at, a.created_at, a.event, a.actor, a.reason, a.move_id
  FROM k JOIN holdfast_aborted a ON a.job_id = k.job_id AND a.attempt = k.attempt AND a.move_id = k.move_id
 WHERE a.job_id = ANY (ARRAY(SELECT job_id FROM k)) ORDER BY a.job_id, a.attempt;

-- name: forget_attempts
-- rows: job_id, attempt.
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::bigint AS attempt FROM json_array_elements(:rows) r)
DELETE FROM holdfast_aborted a USING k
 WHERE a.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND a.job_id = k.job_id AND a.attempt = k.attempt
RETURNING a.job_id;

-- name: begin_histories
-- Of each machine: id and the first version that the journal still tells of.
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:jobs) r)
UPDATE holdfast_jobs AS r SET history_from = k.first FROM k
 WHERE r.job_id = ANY (ARRAY(SELECT id FROM k)) AND r.job_id = k.id AND r.history_from < k.first;
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
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:settings) r)
UPDATE holdfast_settings AS r SET history_from = k.first FROM k
 WHERE r.setting_id = ANY (ARRAY(SELECT id FROM k)) AND r.setting_id = k.id AND r.history_from < k.first;
WITH k AS MATERIALIZED (SELECT (r ->> 0)::bigint AS id, (r ->> 1)::integer AS first FROM json_array_elements(:values) r)
UPDATE holdfast_values AS r SET history_from = k.first FROM k
 WHERE r.value_id = ANY (ARRAY(SELECT id FROM k)) AND r.value_id = k.id AND r.history_from < k.first;

-- name: forget_archived_rows
-- Here they stay until their whole partition can go: this only makes sure that they are all there.
SELECT seq FROM holdfast_journal WHERE seq = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: lock_calls
-- A statement that waits for this lock sees what its holder has committed.
LOCK TABLE holdfast_calls IN SHARE ROW EXCLUSIVE MODE;

-- name: erased_by_hash
SELECT e.client, e.key_hash, e.job_id
  FROM json_array_elements(:rows) r JOIN holdfast_erased e ON e.client = r ->> 0 AND e.key_hash = r ->> 1;
