-- Statements of flow: unique work, deadlines, jobs that wait for others.

-- name: take_scopes
-- rows: scopes. Writers take turns, so nothing has to be locked.
INSERT INTO holdfast_unique (scope) SELECT r.value FROM json_each(:rows) r WHERE true ON CONFLICT (scope) DO NOTHING;
SELECT u.scope, u.job_id FROM json_each(:rows) r CROSS JOIN holdfast_unique u ON u.scope = r.value;

-- name: give_scopes
-- rows: scope, job_id
UPDATE holdfast_unique AS u SET job_id = r.value ->> 1 FROM json_each(:rows) r WHERE u.scope = r.value ->> 0;

-- name: set_deadlines
-- rows: job_id, deadline
UPDATE holdfast_jobs AS j SET deadline_at = r.value ->> 1 FROM json_each(:rows) r WHERE j.job_id = r.value ->> 0;

-- name: insert_waits
-- rows: kind, name, job_id, policy, parents, awaited
INSERT INTO holdfast_waits (kind, name, job_id, policy, parents, awaited, created_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, :now
  FROM json_each(:rows) r ORDER BY r.key
RETURNING wait_id, job_id;

-- name: insert_after
-- rows: wait_id, job_id
INSERT INTO holdfast_after (wait_id, parent_id) SELECT r.value ->> 0, r.value ->> 1 FROM json_each(:rows) r ORDER BY r.key;

-- name: move_waits
-- rows: wait_id, awaited before, awaited now
UPDATE holdfast_waits AS w SET awaited = r.value ->> 2
  FROM json_each(:rows) r WHERE w.wait_id = r.value ->> 0 AND w.awaited = r.value ->> 1
RETURNING wait_id;
