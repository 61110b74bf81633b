-- Statements of flow: unique work, deadlines.

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
