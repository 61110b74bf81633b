-- The application's own tables, in the database of the ledger.

-- One unit of work for each generation of each object: the fields of its write-ahead record that never change, the
-- generation after it, and its outcome, which its commit writes. It belongs to one job; if that job replaced another,
-- the columns with _before have the counts and the last error of the replaced job.
CREATE TABLE nodd_units (
  wal_id             text PRIMARY KEY,
  job_id             bigint NOT NULL UNIQUE REFERENCES holdfast_calls (job_id),
  dataset            text NOT NULL,
  source_uri         text NOT NULL,
  object_uri         text NOT NULL,
  generation         bigint NOT NULL CHECK (generation >= 1),
  etag               text,
  size               bigint CHECK (size >= 0),
  sequencer          text,
  version_id         text,
  provider           text NOT NULL,
  queue              text NOT NULL,
  event_time         text,
  time_range_start   text NOT NULL,
  time_range_end     text CHECK (time_range_start <= time_range_end),
  supersedes         text REFERENCES nodd_units (wal_id),
  superseded_by      text,
  attempts_before    bigint NOT NULL DEFAULT 0,
  version_before     bigint NOT NULL DEFAULT 0,
  created_before     text,
  error_before       text,
  message_before     text,
  admitted_at        text NOT NULL,
  integrity_status   text,
  metadata_status    text,
  stac_status        text,
  provenance_status  text,
  stac_item_id       text,
  stac_collection_id text,
  stac_item_href     text,
  ingest_run_id      text,
  UNIQUE (dataset, object_uri, time_range_start),
  UNIQUE (source_uri, time_range_start, generation)
);

-- Objects that belong to others, such as the index of a GRIB file.
CREATE TABLE nodd_sidecars (
  sidecar_uri text PRIMARY KEY,
  object_uri  text NOT NULL,
  etag        text,
  size        bigint,
  sequencer   text,
  event_time  text,
  seen_at     text NOT NULL
);

CREATE INDEX nodd_sidecars_object ON nodd_sidecars (object_uri);

-- Bodies of rejected messages, each once.
CREATE TABLE nodd_rejected (
  sha256      text PRIMARY KEY,
  body        text NOT NULL,
  code        text NOT NULL,
  message     text NOT NULL,
  times       bigint NOT NULL DEFAULT 1,
  first_at    text NOT NULL,
  last_at     text NOT NULL,
  replayed_at text,
  fate        text
);

-- Counts of notices by fate, and the time of the last one.
CREATE TABLE nodd_counts (
  dataset text NOT NULL,
  fate    text NOT NULL,
  reason  text NOT NULL,
  n       bigint NOT NULL,
  last_at text NOT NULL,
  PRIMARY KEY (dataset, fate, reason)
);

-- The catalogue of record. `content` is the digest of the item without its times and links.
CREATE TABLE nodd_items (
  item_id       text PRIMARY KEY,
  collection_id text NOT NULL,
  dataset       text NOT NULL,
  wal_id        text NOT NULL REFERENCES nodd_units (wal_id),
  generation    bigint NOT NULL,
  href          text NOT NULL UNIQUE,
  item          text NOT NULL,
  content       text NOT NULL,
  created       text NOT NULL,
  updated       text NOT NULL
);

CREATE INDEX nodd_items_collection ON nodd_items (collection_id, item_id);

-- The catalogued files of one observation, as JSON in the order in which they were made.
CREATE TABLE nodd_observations (
  observation text PRIMARY KEY,
  files       text NOT NULL,
  version     bigint NOT NULL
);

-- Provenance: PROV nodes and edges, and OpenLineage events. An id is the digest of its content.
CREATE TABLE nodd_provenance (
  record_id  text PRIMARY KEY,
  wal_id     text NOT NULL REFERENCES nodd_units (wal_id),
  kind       text NOT NULL,
  content    text NOT NULL,
  created_at text NOT NULL
);

CREATE INDEX nodd_provenance_unit ON nodd_provenance (wal_id);
