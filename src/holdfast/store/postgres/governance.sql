-- Statements of governance: named leases, grants, runs of procedures and their steps, switches, approvers, evidence.

-- name: acquire_lease
-- Won only if it has run out or is the holder's own; a token is new only if the lease had run out.
INSERT INTO holdfast_leases (name, holder, token, acquired_at, expires_at)
VALUES (:name, :holder, 1, coalesce(:now, statement_timestamp()), coalesce(:now, statement_timestamp()) + make_interval(secs => :expires))
ON CONFLICT (name) DO UPDATE
   SET token = holdfast_leases.token + (holdfast_leases.expires_at <= coalesce(:now, statement_timestamp()))::integer,
       acquired_at = CASE WHEN holdfast_leases.expires_at <= coalesce(:now, statement_timestamp()) THEN coalesce(:now, statement_timestamp()) ELSE holdfast_leases.acquired_at END,
       expires_at = CASE WHEN holdfast_leases.expires_at <= coalesce(:now, statement_timestamp()) THEN excluded.expires_at
                         ELSE greatest(holdfast_leases.expires_at, excluded.expires_at) END,
       holder = excluded.holder
 WHERE holdfast_leases.expires_at <= coalesce(:now, statement_timestamp()) OR holdfast_leases.holder = excluded.holder
RETURNING token;

-- name: hold_lease
UPDATE holdfast_leases SET expires_at = greatest(expires_at, coalesce(:now, statement_timestamp()) + make_interval(secs => :expires))
 WHERE name = :name AND holder = :holder AND token = :token AND expires_at > coalesce(:now, statement_timestamp())
RETURNING name;

-- name: session_role
SELECT session_user;

-- name: insert_run
INSERT INTO holdfast_procedures (idempotency_root, procedure, state, version, params, plan, lease, grant_id, created_at,
  updated_at, event, actor, reason, move_id)
VALUES (:root, :procedure, :state, :version, :params, :plan, :lease, :grant_id, coalesce(:now, statement_timestamp()), coalesce(:now, statement_timestamp()), :event, :actor, :reason,
  :move_id)
ON CONFLICT (idempotency_root) DO NOTHING
RETURNING run_id;

-- name: reach_step
UPDATE holdfast_procedures SET step = greatest(step, :step), updated_at = greatest(updated_at, coalesce(:now, statement_timestamp())), failure = :failure
 WHERE run_id = :run_id AND state = :state
RETURNING run_id;

-- name: insert_switch
INSERT INTO holdfast_switches (name, state, version, thrown_by, created_at, updated_at, event, actor, reason, move_id)
VALUES (:name, :state, :version, :actor, coalesce(:now, statement_timestamp()), coalesce(:now, statement_timestamp()), :event, :actor, :reason, :move_id)
ON CONFLICT (name) WHERE state = 'on' DO NOTHING
RETURNING switch_id;

-- name: lock_approvers
LOCK TABLE holdfast_approvers IN SHARE ROW EXCLUSIVE MODE;

-- name: add_evidence
INSERT INTO holdfast_evidence (run_id, kind, subject, content, digest, actor, grant_id, created_at)
VALUES (:run_id, :kind, :subject, :content, :digest, :actor, :grant_id, coalesce(:now, statement_timestamp()))
ON CONFLICT (run_id, kind) WHERE voided_at IS NULL DO NOTHING
RETURNING evidence_id;
