-- Statements of `nodd check` that differ between the databases.

-- name: tables_there
SELECT name FROM sqlite_master WHERE type IN ('table', 'view') AND name GLOB 'nodd_*';

-- name: units_to_check
SELECT u.wal_id, u.job_id, u.dataset, u.source_uri, u.object_uri, u.generation, u.etag, u.size, u.sequencer,
  u.version_id, u.provider, u.queue, u.event_time, u.time_range_start, u.time_range_end, u.attempts_before,
  u.version_before, u.created_before, u.integrity_status, u.metadata_status, u.stac_status, u.provenance_status,
  u.stac_item_id, u.stac_collection_id, u.stac_item_href, u.ingest_run_id, j.operation, c.client, c.key, c.replaces,
  c.payload, j.result,
  j.state = 'succeeded' OR coalesce(j.status, '') = 'COMMITTED'
  FROM nodd_units u LEFT JOIN holdfast_jobs j ON j.job_id = u.job_id LEFT JOIN holdfast_calls c ON c.job_id = u.job_id
 WHERE u.wal_id > :after ORDER BY u.wal_id LIMIT :n;

-- name: provenance_to_check
-- rows: wal_id
SELECT p.wal_id, p.record_id, p.kind, p.content
  FROM json_each(:rows) r CROSS JOIN nodd_provenance p ON p.wal_id = r.value ORDER BY p.wal_id, p.record_id;

-- name: catalogued_items
-- Items with their units. rows: item_id
SELECT i.item_id, i.wal_id, i.generation, i.collection_id, i.href, u.source_uri
  FROM json_each(:rows) r CROSS JOIN nodd_items i ON i.item_id = r.value LEFT JOIN nodd_units u ON u.wal_id = i.wal_id;

-- name: items_to_check
SELECT i.item_id, i.collection_id, i.dataset, i.wal_id, i.generation, i.href, i.item, i.content, i.created, i.updated,
  u.dataset, u.source_uri, u.time_range_start, u.generation, u.size, u.etag
  FROM nodd_items i LEFT JOIN nodd_units u ON u.wal_id = i.wal_id
 WHERE i.item_id > :after ORDER BY i.item_id LIMIT :n;

-- name: observations_named
-- rows: observation
SELECT o.observation, o.files FROM json_each(:rows) r CROSS JOIN nodd_observations o ON o.observation = r.value;

-- name: observed_items
-- rows: item_id
SELECT i.item_id, i.href, i.item FROM json_each(:rows) r CROSS JOIN nodd_items i ON i.item_id = r.value;

-- name: observed_units
-- rows: wal_id
SELECT u.wal_id, u.dataset, u.source_uri, u.time_range_start, u.generation, u.supersedes
  FROM json_each(:rows) r CROSS JOIN nodd_units u ON u.wal_id = r.value;

-- name: carriers_of
-- rows: wal_id
SELECT u.wal_id, u.job_id, u.created_before FROM json_each(:rows) r CROSS JOIN nodd_units u ON u.wal_id = r.value;

-- name: sequencers_back
-- Sequencers are hexadecimal: the longer one is greater; with equal length, compare the text.
SELECT s.wal_id, s.sequencer, s.before
  FROM (SELECT u.wal_id, u.sequencer, lag(u.sequencer) OVER w AS before
          FROM nodd_units u WINDOW w AS (PARTITION BY u.source_uri, u.time_range_start ORDER BY u.generation)) s
 WHERE s.sequencer <> '' AND s.before <> ''
   AND (length(ltrim(s.sequencer, '0')), upper(ltrim(s.sequencer, '0')))
    <= (length(ltrim(s.before, '0')), upper(ltrim(s.before, '0')))
 ORDER BY s.wal_id LIMIT :n;
