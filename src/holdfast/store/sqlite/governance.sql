-- Statements of governance: named leases, grants, runs of procedures and their steps, switches, approvers, evidence.

-- name: acquire_lease
-- Won only if it has run out or is the holder's own; a token is new only if the lease had run out.
INSERT INTO holdfast_leases (name, holder, token, acquired_at, expires_at)
VALUES (:name, :holder, 1 + coalesce((SELECT token FROM holdfast_leases WHERE name = :name), 0), :now, :expires)
ON CONFLICT (name) DO UPDATE
   SET token = CASE WHEN holdfast_leases.expires_at <= :now THEN excluded.token ELSE holdfast_leases.token END,
       acquired_at = CASE WHEN holdfast_leases.expires_at <= :now THEN :now ELSE holdfast_leases.acquired_at END,
       expires_at = CASE WHEN holdfast_leases.expires_at <= :now THEN excluded.expires_at
                         ELSE max(holdfast_leases.expires_at, excluded.expires_at) END,
       holder = excluded.holder
 WHERE holdfast_leases.expires_at <= :now OR holdfast_leases.holder = excluded.holder
RETURNING token;

-- name: hold_lease
UPDATE holdfast_leases SET expires_at = max(expires_at, :expires)
 WHERE name = :name AND holder = :holder AND token = :token AND expires_at > :now
RETURNING name;

-- name: session_role
SELECT NULL;

-- name: insert_run
INSERT INTO holdfast_procedures (idempotency_root, procedure, state, version, params, plan, lease, grant_id, created_at,
  updated_at, event, actor, reason, move_id)
SELECT :root, :procedure, :state, :version, :params, :plan, :lease, :grant_id, :now, :now, :event, :actor, :reason,
  :move_id
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_procedures WHERE idempotency_root = :root)
RETURNING run_id;

-- name: reach_step
UPDATE holdfast_procedures SET step = max(step, :step), updated_at = max(updated_at, :now), failure = :failure
 WHERE run_id = :run_id AND state = :state
RETURNING run_id;

-- name: insert_switch
INSERT INTO holdfast_switches (name, state, version, thrown_by, created_at, updated_at, event, actor, reason, move_id)
SELECT :name, :state, :version, :actor, :now, :now, :event, :actor, :reason, :move_id
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_switches WHERE name = :name AND state = 'on')
RETURNING switch_id;

-- name: lock_approvers
-- Writers take turns.
SELECT 1;

-- name: add_evidence
INSERT INTO holdfast_evidence (run_id, kind, subject, content, digest, actor, grant_id, created_at)
SELECT :run_id, :kind, :subject, :content, :digest, :actor, :grant_id, :now
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_evidence WHERE run_id = :run_id AND kind = :kind AND voided_at IS NULL)
RETURNING evidence_id;
