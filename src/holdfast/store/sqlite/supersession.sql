-- Statements of what follows what in the registry, and what may no longer be used.

-- name: lock_values
SELECT 1;

-- name: usable_values
-- What new work may be recorded at. Writers take turns, so what is in force stays so until this one commits.
SELECT v.operation_code, v.protocol_version
  FROM json_each(:rows) r
  CROSS JOIN holdfast_values v ON v.operation_code = r.value ->> 0 AND v.protocol_version = r.value ->> 1
  CROSS JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.collection = :within AND v.state = 'active' AND v.status = 'in force' AND c.status = 'in force';
