-- Statements of what follows what in the registry, and what may no longer be used.

-- name: lock_values
-- Whoever asks for usable values waits in line behind this, instead of keeping it waiting one after another.
LOCK TABLE holdfast_values IN EXCLUSIVE MODE;

-- name: usable_values
-- What new work may be recorded at. The locks keep a version and its collection in force until this transaction, which
-- inserts the jobs, commits; many may hold them at once.
SELECT v.operation_code, v.protocol_version
  FROM json_array_elements(:rows) r
  JOIN holdfast_values v ON v.operation_code = r ->> 0 AND v.protocol_version = r ->> 1
  JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.collection = :within AND v.state = 'active' AND v.standing = 'in force' AND c.standing = 'in force'
 ORDER BY v.operation_code, v.protocol_version FOR SHARE OF v, c;
