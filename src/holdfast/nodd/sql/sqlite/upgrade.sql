-- Statements that upgrade the tables of an earlier version.

-- name: add_outcomes
ALTER TABLE nodd_units ADD COLUMN integrity_status TEXT;
ALTER TABLE nodd_units ADD COLUMN metadata_status TEXT;
ALTER TABLE nodd_units ADD COLUMN stac_status TEXT;
ALTER TABLE nodd_units ADD COLUMN provenance_status TEXT;
ALTER TABLE nodd_units ADD COLUMN stac_item_id TEXT;
ALTER TABLE nodd_units ADD COLUMN stac_collection_id TEXT;
ALTER TABLE nodd_units ADD COLUMN stac_item_href TEXT;
ALTER TABLE nodd_units ADD COLUMN ingest_run_id TEXT;

-- name: units_to_settle
-- Units with the submission, result and commit of their jobs. The result is NULL if retention has removed it.
SELECT u.wal_id, u.dataset, u.source_uri, u.time_range_start, j.created_at, j.result,
  j.state = 'succeeded' OR EXISTS (SELECT 1 FROM holdfast_executions e
    WHERE e.job_id = j.job_id AND e.status IN ('COMMITTED', 'DONE'))
  FROM nodd_units u LEFT JOIN holdfast_jobs j ON j.job_id = u.job_id
 WHERE u.wal_id > :after ORDER BY u.wal_id LIMIT :n;

-- name: items_left
-- rows: item_id
SELECT i.item_id, i.wal_id, i.collection_id, i.href, i.item, i.created, i.updated
  FROM json_each(:rows) r CROSS JOIN nodd_items i ON i.item_id = r.value;

-- name: provenance_left
-- rows: wal_id
SELECT DISTINCT p.wal_id, p.kind FROM json_each(:rows) r CROSS JOIN nodd_provenance p ON p.wal_id = r.value;

-- name: settle_units
-- rows: wal_id, then the columns of the outcome
UPDATE nodd_units
   SET integrity_status = r.value ->> 1, metadata_status = r.value ->> 2, stac_status = r.value ->> 3,
       provenance_status = r.value ->> 4, stac_item_id = r.value ->> 5, stac_collection_id = r.value ->> 6,
       stac_item_href = r.value ->> 7, ingest_run_id = r.value ->> 8
  FROM json_each(:rows) r WHERE nodd_units.wal_id = r.value ->> 0;
