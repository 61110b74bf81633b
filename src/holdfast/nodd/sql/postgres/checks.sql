-- Statements of `nodd check` that differ between the databases.

-- name: tables_there
SELECT c.relname FROM pg_class c
 WHERE c.relnamespace = to_regnamespace(quote_ident(current_schema())) AND c.relkind IN ('r', 'v') AND starts_with(c.relname, 'nodd_');

-- name: units_to_check
SELECT u.wal_id, u.job_id, u.dataset, u.source_uri, u.object_uri, u.generation, u.etag, u.size, u.sequencer,
  u.version_id, u.provider, u.queue, u.event_time, u.time_range_start, u.time_range_end, u.attempts_before,
  u.version_before, u.created_before, u.integrity_status, u.metadata_status, u.stac_status, u.provenance_status,
  u.stac_item_id, u.stac_collection_id, u.stac_item_href, u.ingest_run_id, j.operation, c.client, c.key, c.replaces,
  c.payload, j.result,
  j.state = 'succeeded' OR coalesce(j.status, '') = 'COMMITTED'
  FROM (SELECT * FROM nodd_units WHERE wal_id > :after ORDER BY wal_id LIMIT :n) u
  LEFT JOIN LATERAL (SELECT * FROM holdfast_jobs n WHERE n.job_id = u.job_id OFFSET 0) j ON true
  LEFT JOIN LATERAL (SELECT * FROM holdfast_calls n WHERE n.job_id = u.job_id OFFSET 0) c ON true
 ORDER BY u.wal_id;

-- name: provenance_to_check
-- rows: wal_id. LATERAL with OFFSET 0 forces one index lookup per row, whatever the planner estimates.
SELECT p.wal_id, p.record_id, p.kind, p.content
  FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_provenance n WHERE n.wal_id = r OFFSET 0) p ORDER BY p.wal_id, p.record_id;

-- name: catalogued_items
-- Items with their units. rows: item_id
SELECT i.item_id, i.wal_id, i.generation, i.collection_id, i.href, u.source_uri
  FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_items n WHERE n.item_id = r OFFSET 0) i
  LEFT JOIN LATERAL (SELECT * FROM nodd_units n WHERE n.wal_id = i.wal_id OFFSET 0) u ON true;

-- name: items_to_check
SELECT i.item_id, i.collection_id, i.dataset, i.wal_id, i.generation, i.href, i.item, i.content, i.created, i.updated,
  u.dataset, u.source_uri, u.time_range_start, u.generation, u.size, u.etag
  FROM (SELECT * FROM nodd_items WHERE item_id > :after ORDER BY item_id LIMIT :n) i
  LEFT JOIN LATERAL (SELECT * FROM nodd_units n WHERE n.wal_id = i.wal_id OFFSET 0) u ON true
 ORDER BY i.item_id;

-- name: observations_named
-- rows: observation
SELECT o.observation, o.files FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_observations n WHERE n.observation = r OFFSET 0) o;

-- name: observed_items
-- rows: item_id
SELECT i.item_id, i.href, i.item FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_items n WHERE n.item_id = r OFFSET 0) i;

-- name: observed_units
-- rows: wal_id
SELECT u.wal_id, u.dataset, u.source_uri, u.time_range_start, u.generation, u.supersedes
  FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_units n WHERE n.wal_id = r OFFSET 0) u;

-- name: carriers_of
-- rows: wal_id
SELECT u.wal_id, u.job_id, u.created_before FROM json_array_elements_text(:rows::json) r
 CROSS JOIN LATERAL (SELECT * FROM nodd_units n WHERE n.wal_id = r OFFSET 0) u;

-- name: sequencers_back
-- Sequencers are hexadecimal: the longer one is greater; with equal length, compare the text.
SELECT s.wal_id, s.sequencer, s.before
  FROM (SELECT u.wal_id, u.sequencer, lag(u.sequencer) OVER w AS before
          FROM nodd_units u WINDOW w AS (PARTITION BY u.source_uri, u.time_range_start ORDER BY u.generation)) s
 WHERE s.sequencer <> '' AND s.before <> ''
   AND (length(ltrim(s.sequencer, '0')), upper(ltrim(s.sequencer, '0')) COLLATE "C")
    <= (length(ltrim(s.before, '0')), upper(ltrim(s.before, '0')) COLLATE "C")
 ORDER BY s.wal_id LIMIT :n;
