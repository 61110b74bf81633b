-- Statements of what follows what in the registry, and what may no longer be used.

-- name: value_named
SELECT {value_columns} FROM holdfast_values v WHERE v.vocab_id = :vocab_id;

-- name: successions
SELECT operation_code, protocol_version, successor_code, successor_version FROM holdfast_values
 WHERE successor_code IS NOT NULL;

-- name: move_value
UPDATE holdfast_values
   SET state = :state, version = version + :edges, successor_code = :successor_code,
       successor_version = :successor_version, rollback_ref = :rollback_ref,
       updated_at = {greatest}(updated_at, {now}),
       event = :event, actor = :actor, reason = :reason, move_id = :move_id, grant_id = :grant_id
 WHERE value_id = :value_id AND state = :source AND version = :version
RETURNING value_id;

-- name: operation_in_force
SELECT v.protocol_version FROM holdfast_values v JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.operation_code = :operation AND v.state = 'active'
   AND v.collection = :within AND v.status = 'in force' AND c.status = 'in force';

-- name: open_jobs_of
SELECT count(*) FROM holdfast_jobs j {ordered} JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.operation = :operation AND c.operation_version = :version
   AND j.state IN (SELECT value FROM {each}(:states));
