-- Statements of admission. `rows` is a JSON list; each row is a list of values.

-- name: known_units
-- rows: source_uri, time_range_start
-- LATERAL with OFFSET 0 forces one index lookup per row, whatever the planner estimates.
SELECT u.*
  FROM json_array_elements(:rows::json) r CROSS JOIN LATERAL (
    SELECT n.source_uri, n.time_range_start, n.wal_id, n.job_id, n.generation, n.etag, n.sequencer, n.size
      FROM nodd_units n
     WHERE n.source_uri = r ->> 0 AND n.time_range_start = r ->> 1 OFFSET 0) u
 ORDER BY u.generation;

-- name: add_units
INSERT INTO nodd_units (wal_id, job_id, dataset, source_uri, object_uri, generation, etag, size, sequencer, version_id,
  provider, queue, event_time, time_range_start, time_range_end, supersedes, admitted_at)
SELECT r ->> 0, (r ->> 1)::bigint, r ->> 2, r ->> 3, r ->> 4, (r ->> 5)::bigint, r ->> 6,
  (r ->> 7)::bigint, r ->> 8, r ->> 9, r ->> 10, r ->> 11, r ->> 12, r ->> 13,
  r ->> 14, r ->> 15, r ->> 16
  FROM json_array_elements(:rows::json) r;

-- name: follow_units
-- rows: wal_id, wal_id of the later generation
UPDATE nodd_units SET superseded_by = r ->> 1 FROM json_array_elements(:rows::json) r WHERE nodd_units.wal_id = r ->> 0;

-- name: keep_sidecars
-- Sequencers are hexadecimal: the longer one is greater; with equal length, compare the text.
INSERT INTO nodd_sidecars (sidecar_uri, object_uri, etag, size, sequencer, event_time, seen_at)
SELECT r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, ltrim(upper(r ->> 4), '0'), r ->> 5,
  r ->> 6
  FROM json_array_elements(:rows::json) r
ON CONFLICT (sidecar_uri) DO UPDATE
   SET etag = excluded.etag, size = excluded.size, sequencer = excluded.sequencer, event_time = excluded.event_time,
       seen_at = excluded.seen_at
 WHERE nodd_sidecars.sequencer IS NULL OR excluded.sequencer IS NULL
    OR (length(nodd_sidecars.sequencer), nodd_sidecars.sequencer) <= (length(excluded.sequencer), excluded.sequencer);

-- name: keep_rejected
INSERT INTO nodd_rejected (sha256, body, code, message, times, first_at, last_at)
SELECT r ->> 0, r ->> 1, r ->> 2, r ->> 3, (r ->> 4)::bigint, r ->> 5, r ->> 5
  FROM json_array_elements(:rows::json) r
ON CONFLICT (sha256) DO UPDATE SET times = nodd_rejected.times + excluded.times, last_at = excluded.last_at;

-- name: count_fates
INSERT INTO nodd_counts (dataset, fate, reason, n, last_at)
SELECT r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, r ->> 4 FROM json_array_elements(:rows::json) r
ON CONFLICT (dataset, fate, reason) DO UPDATE SET n = nodd_counts.n + excluded.n, last_at = excluded.last_at;

-- name: keep_ignored
INSERT INTO nodd_ignored (reason, shape, example, times, first_at, last_at)
SELECT r ->> 0, r ->> 1, r ->> 2, (r ->> 3)::bigint, r ->> 4, r ->> 4 FROM json_array_elements(:rows::json) r
ON CONFLICT (reason, shape) DO UPDATE
   SET example = excluded.example, times = nodd_ignored.times + excluded.times, last_at = excluded.last_at;
