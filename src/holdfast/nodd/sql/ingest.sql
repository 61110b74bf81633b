-- Statements of the operators, and the effects that an attempt stages for its commit.

-- name: unit_now
-- The later unit of the object, the item, and a row for each sidecar.
SELECT u.superseded_by, i.content, i.created, i.updated, s.sidecar_uri, s.etag, s.size
  FROM nodd_units u LEFT JOIN nodd_items i ON i.item_id = :item_id
  LEFT JOIN nodd_sidecars s ON s.object_uri = u.source_uri
 WHERE u.wal_id = :wal_id ORDER BY s.sidecar_uri;

-- name: catalogued_before
-- The last earlier generation of the object that has provenance, which means that its item was written.
SELECT max(u.generation) FROM nodd_units u JOIN nodd_provenance p ON p.wal_id = u.wal_id
 WHERE u.source_uri = :source_uri AND u.time_range_start = :time_range_start AND u.generation < :generation;

-- name: unit_job
SELECT u.job_id FROM nodd_units u WHERE u.wal_id = :wal_id;

-- name: item_content
SELECT i.content, i.created, i.updated, i.item FROM nodd_items i WHERE i.item_id = :item_id;

-- name: item_unit
SELECT i.wal_id FROM nodd_items i WHERE i.item_id = :item_id;

-- name: settle_unit
-- Stores the outcome of a unit. It must change one row: if a later generation exists, the commit is refused.
UPDATE nodd_units
   SET integrity_status = :integrity_status, metadata_status = :metadata_status, stac_status = :stac_status,
       provenance_status = :provenance_status, stac_item_id = :stac_item_id,
       stac_collection_id = :stac_collection_id, stac_item_href = :stac_item_href, ingest_run_id = :ingest_run_id
 WHERE wal_id = :wal_id AND superseded_by IS NULL;

-- name: take_over
-- The unit now belongs to the job that replaces another; the counts of the replaced job are added.
UPDATE nodd_units
   SET attempts_before = attempts_before + :attempts, version_before = version_before + :version,
       created_before = coalesce(created_before, :created), error_before = coalesce(:error, error_before),
       message_before = coalesce(:message, message_before), job_id = :job_id
 WHERE wal_id = :wal_id AND job_id = :before;

-- name: put_item
INSERT INTO nodd_items (item_id, collection_id, dataset, wal_id, generation, href, item, content, created, updated)
VALUES (:item_id, :collection_id, :dataset, :wal_id, :generation, :href, :item, :content, :created, :updated)
ON CONFLICT (item_id) DO UPDATE
   SET wal_id = excluded.wal_id, generation = excluded.generation, item = excluded.item, content = excluded.content,
       updated = excluded.updated, href = excluded.href
 WHERE nodd_items.generation <= excluded.generation;

-- name: own_item
-- Only the unit of the item has changed.
UPDATE nodd_items SET wal_id = :wal_id, generation = :generation
 WHERE item_id = :item_id AND generation <= :generation;

-- name: observation
SELECT o.files, o.version FROM nodd_observations o WHERE o.observation = :observation;

-- name: begin_observation
-- It must insert one row: if another file of the observation committed first, the commit is refused.
INSERT INTO nodd_observations (observation, files, version) VALUES (:observation, :files, 1)
ON CONFLICT (observation) DO NOTHING;

-- name: follow_observation
UPDATE nodd_observations SET files = :files, version = version + 1
 WHERE observation = :observation AND version = :version;

-- name: mark_item
UPDATE nodd_items SET item = :item, content = :content, updated = :updated WHERE item_id = :item_id;

-- name: supersede_unit
-- Only for generation 1: later generations name the generation before them.
UPDATE nodd_units SET supersedes = :supersedes WHERE wal_id = :wal_id AND generation = 1;
