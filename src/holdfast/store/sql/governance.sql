-- Statements of governance: named leases, grants, runs of procedures and their steps, switches, approvers, evidence.

-- name: release_lease
UPDATE holdfast_leases SET expires_at = {now}
 WHERE name = :name AND holder = :holder AND token = :token AND expires_at > {now}
RETURNING name;

-- name: get_leases
SELECT {lease_columns} FROM holdfast_leases l ORDER BY l.name;

-- name: insert_grant
INSERT INTO holdfast_grants (state, version, action, target, scope, requested_by, requested_via, expires_at, created_at,
  updated_at, event, actor, reason, move_id)
VALUES (:state, :version, :action, :target, :scope, :actor, :requested_via, :expires_at, {now}, {now}, :event, :actor,
  :reason, :move_id)
RETURNING grant_id;

-- name: move_grant
UPDATE holdfast_grants
   SET state = :state, version = version + :edges, updated_at = {greatest}(updated_at, {now}), event = :event, actor = :actor,
       reason = coalesce(:reason, reason), move_id = :move_id, approved_by = coalesce(:approved_by, approved_by),
       approved_via = coalesce(:approved_via, approved_via), consumed_by = coalesce(:consumed_by, consumed_by)
 WHERE grant_id = :grant_id AND state = :source AND version = :version
RETURNING grant_id;

-- name: get_grant
SELECT {grant_columns} FROM holdfast_grants g WHERE g.grant_id = :grant_id;

-- name: grants_for
SELECT {grant_columns} FROM holdfast_grants g
 WHERE g.action = :action AND g.target = :target AND g.state IN ('draft', 'active') ORDER BY g.grant_id;

-- name: list_grants
-- One that has run out is found as expired.
SELECT {grant_columns} FROM holdfast_grants g
 WHERE (CAST(:state AS text) IS NULL OR :state = CASE WHEN g.state IN ('draft', 'active') AND g.expires_at <= {now} THEN 'expired' ELSE g.state END)
   AND (CAST(:action AS text) IS NULL OR g.action = :action)
   AND (CAST(:target AS text) IS NULL OR g.target = :target) AND (CAST(:before AS bigint) IS NULL OR g.grant_id < :before)
 ORDER BY g.grant_id DESC LIMIT :n;

-- name: move_run
UPDATE holdfast_procedures
   SET state = :state, version = version + :edges, updated_at = {greatest}(updated_at, {now}), event = :event, actor = :actor,
       reason = :reason, move_id = :move_id, stop_state = :stop_state, failure = :failure,
       grant_id = coalesce(:grant_id, grant_id)
 WHERE run_id = :run_id AND state = :source AND version = :version
RETURNING run_id;

-- name: get_run
SELECT {run_columns} FROM holdfast_procedures p WHERE p.idempotency_root = :root;

-- name: list_runs
SELECT {run_columns} FROM holdfast_procedures p
 WHERE (CAST(:procedure AS text) IS NULL OR p.procedure = :procedure) AND (CAST(:state AS text) IS NULL OR p.state = :state)
   AND (CAST(:before AS bigint) IS NULL OR p.run_id < :before)
 ORDER BY p.run_id DESC LIMIT :n;

-- name: unfinished_run
SELECT {run_columns} FROM holdfast_procedures p
 WHERE p.lease = :lease AND p.idempotency_root <> :root AND p.state IN ('running', 'compensating')
 ORDER BY p.run_id LIMIT 1;

-- name: insert_step
INSERT INTO holdfast_steps (run_id, number, name, state, version, outcome, created_at, updated_at, event, actor, reason,
  move_id)
VALUES (:run_id, :number, :name, :state, :version, :outcome, {now}, {now}, :event, :actor, :reason, :move_id)
RETURNING step_id;

-- name: move_step
UPDATE holdfast_steps
   SET state = :state, version = version + :edges, updated_at = {greatest}(updated_at, {now}), event = :event, actor = :actor,
       reason = :reason, move_id = :move_id
 WHERE step_id = :step_id AND state = :source AND version = :version
RETURNING step_id;

-- name: steps_of
SELECT {step_columns} FROM holdfast_steps t WHERE t.run_id = :run_id AND t.step_id > :after
 ORDER BY t.step_id LIMIT :n;

-- name: performed_steps
SELECT {step_columns} FROM holdfast_steps t WHERE t.run_id = :run_id AND t.state = 'performed' ORDER BY t.number;

-- name: move_switch
UPDATE holdfast_switches
   SET state = :state, version = version + :edges, updated_at = {greatest}(updated_at, {now}), event = :event, actor = :actor,
       reason = :reason, move_id = :move_id, grant_id = :grant_id
 WHERE switch_id = :switch_id AND state = :source AND version = :version
RETURNING switch_id;

-- name: switches_on
SELECT {switch_columns} FROM holdfast_switches w WHERE w.state = 'on' ORDER BY w.name;

-- name: last_switch
SELECT {switch_columns} FROM holdfast_switches w WHERE w.name = :name ORDER BY w.switch_id DESC LIMIT 1;

-- name: list_switches
SELECT {switch_columns} FROM holdfast_switches w ORDER BY w.switch_id DESC LIMIT :n;

-- name: add_approver
INSERT INTO holdfast_approvers (name, public_key, added_by, reason, grant_id, added_at)
VALUES (:name, :public_key, :actor, :reason, :grant_id, {now})
ON CONFLICT (name) DO UPDATE SET public_key = excluded.public_key, added_by = excluded.added_by,
   reason = excluded.reason, grant_id = excluded.grant_id, added_at = excluded.added_at, revoked_at = NULL,
   revoked_by = NULL
 WHERE holdfast_approvers.revoked_at IS NOT NULL
RETURNING name;

-- name: revoke_approver
UPDATE holdfast_approvers SET revoked_at = {now}, revoked_by = :actor WHERE name = :name AND revoked_at IS NULL
RETURNING name;

-- name: first_bootstrap
SELECT min(g.grant_id) FROM holdfast_grants g
 WHERE g.action = 'approver.add' AND g.state = 'consumed' AND g.approved_via = :via
   AND g.scope LIKE :scope;

-- name: last_acts_on_approvers
SELECT max(g.grant_id) FROM holdfast_grants g
 WHERE g.state = 'consumed' AND g.action IN ('approver.add', 'approver.revoke')
 GROUP BY g.target ORDER BY 1;

-- name: evidence_under
SELECT v.content FROM holdfast_evidence v
 WHERE v.grant_id = :grant_id AND v.kind = :kind AND v.voided_at IS NULL ORDER BY v.evidence_id;

-- name: raised_after
SELECT EXISTS (
  SELECT 1 FROM holdfast_journal g
   WHERE g.machine = 'MAINTENANCE' AND g.event = 'raise_environment' AND g.seq > (
     SELECT coalesce(max(r.seq), 0) FROM holdfast_journal r WHERE r.machine = 'GRANT' AND r.subject = :grant_id
   )
);

-- name: list_approvers
SELECT {approver_columns} FROM holdfast_approvers a ORDER BY a.name;

-- name: void_evidence
UPDATE holdfast_evidence SET voided_at = {now} WHERE run_id = :run_id AND voided_at IS NULL RETURNING evidence_id;

-- name: evidence_of
SELECT {evidence_columns} FROM holdfast_evidence v WHERE v.run_id = :run_id ORDER BY v.evidence_id;

-- name: active_grants
SELECT grant_id FROM holdfast_grants WHERE state = 'active' ORDER BY grant_id LIMIT :n;
