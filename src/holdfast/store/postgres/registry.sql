-- Statements of the registry: its collections and their values.

-- name: list_collections
SELECT {collection_columns} FROM holdfast_collections c ORDER BY c.collection COLLATE "C";

-- name: place_values
UPDATE holdfast_values
   SET status = :status, updated_at = greatest(updated_at, coalesce(:now, statement_timestamp()))
 WHERE value_id IN (SELECT value::bigint FROM jsonb_array_elements_text(:rows::jsonb)) AND status = :was
RETURNING value_id;

-- name: values_in_force
-- A value shows only if its collection does too.
SELECT {value_columns} FROM holdfast_values v JOIN holdfast_collections c ON c.collection = v.collection
 WHERE v.status = 'in force' AND c.status = 'in force' AND (:collection::text IS NULL OR v.collection = :collection)
 ORDER BY v.operation_code COLLATE "C", v.value_id;

-- name: values_without_approval
-- What was admitted under a grant without an approver; with `by_another`, also under one that its requester
-- approved, unless that follows from a grant for many.
SELECT v.operation_code, v.protocol_version FROM holdfast_values v JOIN holdfast_grants g ON g.grant_id = v.grant_id
 WHERE g.approved_by IS NULL OR (:by_another AND g.approved_by = g.requested_by
   AND strpos(coalesce(g.approved_via, ''), :under) = 0)
 ORDER BY v.value_id LIMIT :n;
