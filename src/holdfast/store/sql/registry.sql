-- Statements of the registry: its collections and their values.

-- name: insert_collection
INSERT INTO holdfast_collections (collection, schema, schema_digest, status, run_id, created_at, updated_at)
VALUES (:collection, :schema, :schema_digest, :status, :run_id, {now},
  {now})
ON CONFLICT (collection) DO NOTHING
RETURNING collection;

-- name: place_collection
UPDATE holdfast_collections
   SET status = :status, run_id = :run_id, manifest_digest = coalesce(:manifest_digest, manifest_digest),
       updated_at = {greatest}(updated_at, {now})
 WHERE collection = :collection AND status = :was
RETURNING collection;

-- name: get_collection
SELECT {collection_columns} FROM holdfast_collections c WHERE c.collection = :collection;

-- name: insert_value
INSERT INTO holdfast_values (vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref,
  digest, status, state, version, run_id, created_at, updated_at, event, actor, reason, move_id, grant_id)
VALUES (:vocab_id, :collection, :operation_code, :protocol_version, :act_type, :semantics, :authority_ref, :digest,
  :status, :state, :version, :run_id, {now}, {now},
  :event, :actor, :reason, :move_id, :grant_id)
RETURNING value_id;

-- name: get_value
SELECT {value_columns} FROM holdfast_values v
 WHERE v.operation_code = :operation_code AND v.protocol_version = :protocol_version;

-- name: list_values
SELECT {value_columns} FROM holdfast_values v
 WHERE (CAST(:collection AS text) IS NULL OR v.collection = :collection)
   AND (CAST(:operation_code AS text) IS NULL OR v.operation_code = :operation_code)
   AND (CAST(:status AS text) IS NULL OR v.status = :status) AND (CAST(:state AS text) IS NULL OR v.state = :state)
   AND v.value_id > :after
 ORDER BY v.value_id LIMIT :n;

-- name: value_in_force
SELECT {value_columns} FROM holdfast_values v JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.operation_code = :operation_code AND v.protocol_version = :protocol_version
   AND v.status = 'in force' AND c.status = 'in force';

-- name: values_without_grant
-- The values that were not admitted under a consumed grant.
SELECT v.operation_code, v.protocol_version FROM holdfast_values v
  LEFT JOIN holdfast_grants g ON g.grant_id = v.grant_id AND g.state = 'consumed'
 WHERE g.grant_id IS NULL ORDER BY v.value_id LIMIT :n;
