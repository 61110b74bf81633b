-- Statements of flow: unique work, deadlines.

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
