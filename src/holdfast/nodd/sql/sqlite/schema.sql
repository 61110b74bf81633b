-- The application's own tables, in the database of the ledger.

-- One unit of work for each generation of each object: the fields of its write-ahead record that never change, the
-- generation after it, and its outcome, which its commit writes. It belongs to one job; if that job replaced another,
-- the columns with _before have the counts and the last error of the replaced job.
CREATE TABLE nodd_units (
  wal_id             TEXT PRIMARY KEY,
  job_id             INTEGER NOT NULL UNIQUE REFERENCES holdfast_calls (job_id),
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

-- Objects that belong to others, such as the index of a GRIB file.
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

-- Bodies of rejected messages, each once.
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

-- Counts of notices by fate, and the time of the last one.
CREATE TABLE nodd_counts (
  dataset TEXT NOT NULL,
  fate    TEXT NOT NULL,
  reason  TEXT NOT NULL,
  n       INTEGER NOT NULL,
  last_at TEXT NOT NULL,
  PRIMARY KEY (dataset, fate, reason)
) WITHOUT ROWID, STRICT;

-- The catalogue of record. `content` is the digest of the item without its times and links.
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

-- The catalogued files of one observation, as JSON in the order in which they were made.
CREATE TABLE nodd_observations (
  observation TEXT PRIMARY KEY,
  files       TEXT NOT NULL,
  version     INTEGER NOT NULL
) STRICT;

-- Provenance: PROV nodes and edges, and OpenLineage events. An id is the digest of its content.
CREATE TABLE nodd_provenance (
  record_id  TEXT PRIMARY KEY,
  wal_id     TEXT NOT NULL REFERENCES nodd_units (wal_id),
  kind       TEXT NOT NULL,
  content    TEXT NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

CREATE INDEX nodd_provenance_unit ON nodd_provenance (wal_id);
