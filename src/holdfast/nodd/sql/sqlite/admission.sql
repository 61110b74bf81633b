-- Statements of admission. `rows` is a JSON list; each row is a list of values.

-- name: known_units
-- rows: source_uri, time_range_start
SELECT u.source_uri, u.time_range_start, u.wal_id, u.job_id, u.generation, u.etag, u.sequencer, u.size
  FROM json_each(:rows) r CROSS JOIN nodd_units u
    ON u.source_uri = r.value ->> 0 AND u.time_range_start = r.value ->> 1
 ORDER BY u.generation;

-- name: add_units
INSERT INTO nodd_units (wal_id, job_id, dataset, source_uri, object_uri, generation, etag, size, sequencer, version_id,
  provider, queue, event_time, time_range_start, time_range_end, supersedes, admitted_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 6,
  r.value ->> 7, r.value ->> 8, r.value ->> 9, r.value ->> 10, r.value ->> 11, r.value ->> 12, r.value ->> 13,
  r.value ->> 14, r.value ->> 15, r.value ->> 16
  FROM json_each(:rows) r;

-- name: follow_units
-- rows: wal_id, wal_id of the later generation
UPDATE nodd_units SET superseded_by = r.value ->> 1 FROM json_each(:rows) r WHERE nodd_units.wal_id = r.value ->> 0;

-- name: keep_sidecars
-- Sequencers are hexadecimal: the longer one is greater; with equal length, compare the text.
INSERT INTO nodd_sidecars (sidecar_uri, object_uri, etag, size, sequencer, event_time, seen_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, ltrim(upper(r.value ->> 4), '0'), r.value ->> 5,
  r.value ->> 6
  FROM json_each(:rows) r WHERE true
ON CONFLICT (sidecar_uri) DO UPDATE
   SET etag = excluded.etag, size = excluded.size, sequencer = excluded.sequencer, event_time = excluded.event_time,
       seen_at = excluded.seen_at
 WHERE nodd_sidecars.sequencer IS NULL OR excluded.sequencer IS NULL
    OR (length(nodd_sidecars.sequencer), nodd_sidecars.sequencer) <= (length(excluded.sequencer), excluded.sequencer);

-- name: keep_rejected
INSERT INTO nodd_rejected (sha256, body, code, message, times, first_at, last_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 5, r.value ->> 5
  FROM json_each(:rows) r WHERE true
ON CONFLICT (sha256) DO UPDATE SET times = nodd_rejected.times + excluded.times, last_at = excluded.last_at;

-- name: count_fates
INSERT INTO nodd_counts (dataset, fate, reason, n, last_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4 FROM json_each(:rows) r WHERE true
ON CONFLICT (dataset, fate, reason) DO UPDATE SET n = nodd_counts.n + excluded.n, last_at = excluded.last_at;

-- name: keep_ignored
INSERT INTO nodd_ignored (reason, shape, example, times, first_at, last_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3, r.value ->> 4, r.value ->> 4 FROM json_each(:rows) r WHERE true
ON CONFLICT (reason, shape) DO UPDATE
   SET example = excluded.example, times = nodd_ignored.times + excluded.times, last_at = excluded.last_at;
