-- Statements of flow: unique work, deadlines, jobs that wait for others.

-- name: take_scopes
-- rows: scopes. The second statement sees what was committed while the first one waited for another transaction.
INSERT INTO holdfast_unique (scope) SELECT r FROM json_array_elements_text(:rows) r ORDER BY r ON CONFLICT (scope) DO NOTHING;
SELECT u.scope, u.job_id FROM holdfast_unique u WHERE u.scope = ANY (ARRAY(SELECT json_array_elements_text(:rows)))
 ORDER BY u.scope FOR NO KEY UPDATE;

-- name: give_scopes
-- rows: scope, job_id
UPDATE holdfast_unique AS u SET job_id = (r ->> 1)::bigint FROM json_array_elements(:rows) r WHERE u.scope = r ->> 0;

-- name: set_deadlines
-- rows: job_id, deadline
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS job_id, (r ->> 1)::timestamptz AS deadline_at FROM json_array_elements(:rows) r)
UPDATE holdfast_jobs AS j SET deadline_at = k.deadline_at
  FROM k WHERE j.job_id = ANY (ARRAY(SELECT job_id FROM k)) AND j.job_id = k.job_id;

-- name: insert_waits
-- rows: kind, name, job_id, policy, parents, awaited
INSERT INTO holdfast_waits (kind, name, job_id, policy, parents, awaited, created_at)
SELECT r ->> 0, r ->> 1, (r ->> 2)::bigint, r ->> 3, (r ->> 4)::integer, (r ->> 5)::bigint,
  coalesce(:now, statement_timestamp())
  FROM json_array_elements(:rows) WITH ORDINALITY x (r, n) ORDER BY n
RETURNING wait_id, job_id;

-- name: insert_after
-- rows: wait_id, job_id
INSERT INTO holdfast_after (wait_id, parent_id)
SELECT (r ->> 0)::bigint, (r ->> 1)::bigint FROM json_array_elements(:rows) WITH ORDINALITY x (r, n) ORDER BY n;

-- name: move_waits
-- rows: wait_id, awaited before, awaited now
WITH k AS MATERIALIZED (
  SELECT (r ->> 0)::bigint AS wait_id, (r ->> 1)::bigint AS before, (r ->> 2)::bigint AS awaited
    FROM json_array_elements(:rows) r ORDER BY 1)
UPDATE holdfast_waits AS w SET awaited = k.awaited
  FROM k WHERE w.wait_id = ANY (ARRAY(SELECT wait_id FROM k)) AND w.wait_id = k.wait_id AND w.awaited = k.before
RETURNING w.wait_id;
