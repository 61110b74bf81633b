-- Statements of the operators, and the effects that an ingest stages for its commit.

-- name: sidecars_of
SELECT s.sidecar_uri, s.etag, s.size FROM nodd_sidecars s WHERE s.object_uri = :source_uri ORDER BY s.sidecar_uri;

-- name: unit_standing
SELECT u.superseded_by, u.supersedes FROM nodd_units u WHERE u.wal_id = :wal_id;

-- name: item_standing
SELECT i.content, i.created, i.updated, i.item FROM nodd_items i WHERE i.item_id = :item_id;

-- name: item_unit
SELECT i.wal_id FROM nodd_items i WHERE i.item_id = :item_id;

-- name: fence
-- One row, or the commit is refused: a later generation has taken over.
UPDATE nodd_units SET superseded_by = NULL WHERE wal_id = :wal_id AND superseded_by IS NULL;

-- name: put_item
INSERT INTO nodd_items (item_id, collection_id, dataset, wal_id, generation, href, item, content, created, updated)
VALUES (:item_id, :collection_id, :dataset, :wal_id, :generation, :href, :item, :content, :created, :updated)
ON CONFLICT (item_id) DO UPDATE
   SET wal_id = excluded.wal_id, generation = excluded.generation, item = excluded.item, content = excluded.content,
       updated = excluded.updated, href = excluded.href
 WHERE nodd_items.generation <= excluded.generation;

-- name: own_item
-- Nothing has changed but which unit the item is from.
UPDATE nodd_items SET wal_id = :wal_id, generation = :generation
 WHERE item_id = :item_id AND generation <= :generation;

-- name: put_provenance
INSERT INTO nodd_provenance (record_id, wal_id, kind, content, created_at)
VALUES (:record_id, :wal_id, :kind, :content, :created_at)
ON CONFLICT (record_id) DO NOTHING;
