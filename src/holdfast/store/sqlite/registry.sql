-- Statements of the registry: its collections and their values.

-- name: insert_collection
INSERT INTO holdfast_collections (collection, schema, schema_digest, standing, run_id, created_at, updated_at)
VALUES (:collection, :schema, :schema_digest, :standing, :run_id, :now, :now)
ON CONFLICT (collection) DO NOTHING
RETURNING collection;

-- name: place_collection
UPDATE holdfast_collections
   SET standing = :standing, run_id = :run_id, manifest_digest = coalesce(:manifest_digest, manifest_digest),
       updated_at = max(updated_at, :now)
 WHERE collection = :collection AND standing = :was
RETURNING collection;

-- name: get_collection
SELECT {collection_columns} FROM holdfast_collections c WHERE c.collection = :collection;

-- name: list_collections
SELECT {collection_columns} FROM holdfast_collections c ORDER BY c.collection;

-- name: insert_value
INSERT INTO holdfast_values (vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref,
  digest, standing, state, version, run_id, created_at, updated_at, event, actor, reason, move_id, grant_id)
VALUES (:vocab_id, :collection, :operation_code, :protocol_version, :act_type, :semantics, :authority_ref, :digest,
  :standing, :state, :version, :run_id, :now, :now, :event, :actor, :reason, :move_id, :grant_id)
RETURNING value_id;

-- name: place_values
UPDATE holdfast_values
   SET standing = :standing, updated_at = max(updated_at, :now)
 WHERE value_id IN (SELECT value FROM json_each(:rows)) AND standing = :was
RETURNING value_id;

-- name: get_value
SELECT {value_columns} FROM holdfast_values v
 WHERE v.operation_code = :operation_code AND v.protocol_version = :protocol_version;

-- name: list_values
SELECT {value_columns} FROM holdfast_values v
 WHERE (:collection IS NULL OR v.collection = :collection)
   AND (:operation_code IS NULL OR v.operation_code = :operation_code)
   AND (:standing IS NULL OR v.standing = :standing) AND (:state IS NULL OR v.state = :state)
   AND v.value_id > :after
 ORDER BY v.value_id LIMIT :n;

-- name: values_in_force
-- A value shows only if its collection does too.
SELECT {value_columns} FROM holdfast_values v JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.standing = 'in force' AND c.standing = 'in force' AND (:collection IS NULL OR v.collection = :collection)
 ORDER BY v.operation_code, v.value_id;

-- name: value_in_force
SELECT {value_columns} FROM holdfast_values v JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.operation_code = :operation_code AND v.protocol_version = :protocol_version
   AND v.standing = 'in force' AND c.standing = 'in force';

-- name: values_without_grant
-- What stands in the registry and was not admitted under a grant that was consumed.
SELECT v.operation_code, v.protocol_version FROM holdfast_values v
  LEFT JOIN holdfast_grants g ON g.grant_id = v.grant_id AND g.state = 'consumed'
 WHERE g.grant_id IS NULL ORDER BY v.value_id LIMIT :n;

-- name: values_without_approval
-- What was admitted under a grant that nobody approved; or, `by_another`, nobody else, nor a grant for many at once.
SELECT v.operation_code, v.protocol_version FROM holdfast_values v JOIN holdfast_grants g ON g.grant_id = v.grant_id
 WHERE g.approved_by IS NULL OR (:by_another AND g.approved_by = g.requested_by
   AND instr(coalesce(g.approved_via, ''), :under) = 0)
 ORDER BY v.value_id LIMIT :n;
