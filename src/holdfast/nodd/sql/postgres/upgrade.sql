-- Statements that upgrade the tables of an earlier version.

-- name: add_outcomes
ALTER TABLE nodd_units
  ADD COLUMN integrity_status text,
  ADD COLUMN metadata_status text,
  ADD COLUMN stac_status text,
  ADD COLUMN provenance_status text,
  ADD COLUMN stac_item_id text,
  ADD COLUMN stac_collection_id text,
  ADD COLUMN stac_item_href text,
  ADD COLUMN ingest_run_id text;

-- name: units_to_settle
-- Units with the submission, result and commit of their jobs. The result is NULL if retention has removed it.
SELECT u.wal_id, u.dataset, u.source_uri, u.time_range_start, j.created_at, j.result,
  j.state = 'succeeded' OR EXISTS (SELECT 1 FROM holdfast_executions e
    WHERE e.job_id = j.job_id AND e.status IN ('COMMITTED', 'DONE'))
  FROM (SELECT * FROM nodd_units WHERE wal_id > :after ORDER BY wal_id LIMIT :n) u
  LEFT JOIN LATERAL (SELECT * FROM holdfast_jobs n WHERE n.job_id = u.job_id OFFSET 0) j ON true
 ORDER BY u.wal_id;

-- name: items_left
-- rows: item_id
SELECT i.item_id, i.wal_id, i.collection_id, i.href, i.item, i.created, i.updated
  FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_items n WHERE n.item_id = r OFFSET 0) i;

-- name: provenance_left
-- rows: wal_id
SELECT DISTINCT p.wal_id, p.kind
  FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_provenance n WHERE n.wal_id = r OFFSET 0) p;

-- name: settle_units
-- rows: wal_id, then the columns of the outcome
UPDATE nodd_units
   SET integrity_status = r ->> 1, metadata_status = r ->> 2, stac_status = r ->> 3, provenance_status = r ->> 4,
       stac_item_id = r ->> 5, stac_collection_id = r ->> 6, stac_item_href = r ->> 7, ingest_run_id = r ->> 8
  FROM json_array_elements(:rows::json) r WHERE nodd_units.wal_id = r ->> 0;
