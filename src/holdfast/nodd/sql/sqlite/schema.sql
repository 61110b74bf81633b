-- The application's own tables, beside the ledger's: units, what was kept or counted, the catalogue, provenance.

-- One unit of work for each generation of each object: the part of the write-ahead record that never changes, which
-- generation follows it, and what came of it, written at its commit. A job carries it out; where that job was replaced,
-- what stood before it is kept.
CREATE TABLE nodd_units (
  wal_id             TEXT PRIMARY KEY,
  job_id             INTEGER NOT NULL UNIQUE REFERENCES holdfast_jobs (job_id),
  dataset            TEXT NOT NULL,
  source_uri         TEXT NOT NULL,
  object_uri         TEXT NOT NULL,
  generation         INTEGER NOT NULL CHECK (generation >= 1),
  etag               TEXT,
  size               INTEGER CHECK (size >= 0),
  sequencer          TEXT,
  version_id         TEXT,
  provider           TEXT NOT NULL,
  queue              TEXT NOT NULL,
  event_time         TEXT,
  time_range_start   TEXT NOT NULL,
  time_range_end     TEXT CHECK (time_range_start <= time_range_end),
  supersedes         TEXT REFERENCES nodd_units (wal_id),
  superseded_by      TEXT,
  attempts_before    INTEGER NOT NULL DEFAULT 0,
  version_before     INTEGER NOT NULL DEFAULT 0,
  created_before     TEXT,
  error_before       TEXT,
  message_before     TEXT,
  admitted_at        TEXT NOT NULL,
  integrity_status   TEXT,
  metadata_status    TEXT,
  stac_status        TEXT,
  provenance_status  TEXT,
  stac_item_id       TEXT,
  stac_collection_id TEXT,
  stac_item_href     TEXT,
  ingest_run_id      TEXT,
  UNIQUE (dataset, object_uri, time_range_start),
  UNIQUE (source_uri, time_range_start, generation)
) STRICT;

-- Objects that stand beside others, such as the index of a GRIB file.
CREATE TABLE nodd_sidecars (
  sidecar_uri TEXT PRIMARY KEY,
  object_uri  TEXT NOT NULL,
  etag        TEXT,
  size        INTEGER,
  sequencer   TEXT,
  event_time  TEXT,
  seen_at     TEXT NOT NULL
) STRICT;

CREATE INDEX nodd_sidecars_object ON nodd_sidecars (object_uri);

-- Bodies that could not be understood, once each.
CREATE TABLE nodd_rejected (
  sha256      TEXT PRIMARY KEY,
  body        TEXT NOT NULL,
  code        TEXT NOT NULL,
  message     TEXT NOT NULL,
  times       INTEGER NOT NULL DEFAULT 1,
  first_at    TEXT NOT NULL,
  last_at     TEXT NOT NULL,
  replayed_at TEXT,
  fate        TEXT
) STRICT;

-- What was only counted, and when each feed was last heard.
CREATE TABLE nodd_counts (
  dataset TEXT NOT NULL,
  fate    TEXT NOT NULL,
  reason  TEXT NOT NULL,
  n       INTEGER NOT NULL,
  last_at TEXT NOT NULL,
  PRIMARY KEY (dataset, fate, reason)
) WITHOUT ROWID, STRICT;

-- The catalogue of record. `content` is the digest of what the item says, its own times and links left out.
CREATE TABLE nodd_items (
  item_id       TEXT PRIMARY KEY,
  collection_id TEXT NOT NULL,
  dataset       TEXT NOT NULL,
  wal_id        TEXT NOT NULL REFERENCES nodd_units (wal_id),
  generation    INTEGER NOT NULL,
  href          TEXT NOT NULL UNIQUE,
  item          TEXT NOT NULL,
  content       TEXT NOT NULL,
  created       TEXT NOT NULL,
  updated       TEXT NOT NULL
) STRICT;

CREATE INDEX nodd_items_collection ON nodd_items (collection_id, item_id);

-- The files of one observation that are catalogued, as JSON in the order in which they were made.
CREATE TABLE nodd_observations (
  observation TEXT PRIMARY KEY,
  files       TEXT NOT NULL,
  version     INTEGER NOT NULL
) STRICT;

-- Provenance: nodes and edges of PROV, and OpenLineage events, each under an id that follows from what it says.
CREATE TABLE nodd_provenance (
  record_id  TEXT PRIMARY KEY,
  wal_id     TEXT NOT NULL REFERENCES nodd_units (wal_id),
  kind       TEXT NOT NULL,
  content    TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE INDEX nodd_provenance_unit ON nodd_provenance (wal_id);

-- What came of a unit is what its commit has written with it, whoever takes its result or its item away since; before
-- that it is what its checkpoints tell. A refusal is told while the unit rests: its next attempt has not judged it yet.
CREATE VIEW nodd_wal_records AS
SELECT u.wal_id, u.dataset, u.object_uri, u.provider, u.queue, u.event_time, u.time_range_start, u.time_range_end,
  CASE j.state WHEN 'running' THEN 'in_progress' ELSE j.state END AS status,
  u.attempts_before + j.attempts AS attempts, j.last_attempt_at,
  coalesce(j.last_error_code, u.error_before) AS last_error_code,
  coalesce(j.last_error_message, u.message_before) AS last_error_message,
  coalesce(u.integrity_status, (SELECT c.value ->> 'status' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'integrity-check'), 'unknown') AS integrity_status,
  coalesce(u.metadata_status, (SELECT c.value ->> 'status' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'metadata-extract'), 'unknown') AS metadata_status,
  coalesce(u.stac_status, CASE WHEN j.last_error_code LIKE 'stac_%' AND j.state <> 'running' THEN 'failed' END,
    'unknown') AS stac_status,
  coalesce(u.provenance_status, CASE WHEN j.last_error_code LIKE 'prov%' AND j.state <> 'running' THEN 'failed' END,
    'unknown') AS provenance_status,
  u.stac_item_id, u.stac_collection_id, u.stac_item_href,
  coalesce(u.ingest_run_id, (SELECT c.value -> 'data' ->> 'ingest_run_id' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'message-parse')) AS ingest_run_id,
  (SELECT e.lease_owner FROM holdfast_executions e WHERE e.job_id = j.job_id ORDER BY e.attempt DESC LIMIT 1)
    AS worker_id,
  j.replay_reason, coalesce(u.created_before, j.created_at) AS created_at, j.updated_at,
  u.version_before + j.version AS version,
  u.generation AS ext_generation, u.supersedes AS ext_supersedes, u.superseded_by AS ext_superseded_by,
  j.quarantine_code AS ext_quarantine_code, j.job_id AS ext_job_id
  FROM nodd_units u JOIN holdfast_jobs j ON j.job_id = u.job_id;
