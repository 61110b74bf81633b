-- Statements of what follows what in the registry, and what may no longer be used.

-- name: lock_values
-- Later readers of usable values queue behind this lock; without it, one reader after another would delay it.
LOCK TABLE holdfast_values IN EXCLUSIVE MODE;

-- name: usable_values
-- What new work may be recorded at. The locks keep a version and its collection in force until this transaction, which
-- inserts the jobs, commits; many may hold them at once.
SELECT v.operation_code, v.protocol_version
  FROM json_array_elements(:rows) r
  JOIN holdfast_values v ON v.operation_code = r ->> 0 AND v.protocol_version = r ->> 1
  JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.collection = :within AND v.state = 'active' AND v.status = 'in force' AND c.status = 'in force'
 ORDER BY v.operation_code, v.protocol_version FOR SHARE OF v, c;
