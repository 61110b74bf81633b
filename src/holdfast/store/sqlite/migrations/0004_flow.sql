-- What holds a job back although its time has come: limits, and jobs that it follows. See docs/adr/0015.
-- Every new column may be NULL: no row is rewritten.

-- Parked jobs and limits ----------------------------------------------------------------------------------------------

-- Why a pending job gets no lease; NULL: nothing holds it back. Parking a job is no move.
ALTER TABLE holdfast_jobs ADD COLUMN parked TEXT CONSTRAINT holdfast_jobs_parked_check
  CHECK (parked IS NULL OR (state = 'pending' AND parked IN ('limit', 'after', 'depth')));
-- The bucket that a parked job waits for.
ALTER TABLE holdfast_jobs ADD COLUMN limit_key TEXT CONSTRAINT holdfast_jobs_limit_key_check
  CHECK (limit_key IS NULL OR (parked IS NOT NULL AND limit_key <> ''));

-- What is parked is not in the index that a claim walks.
DROP INDEX holdfast_jobs_due;
CREATE INDEX holdfast_jobs_due ON holdfast_jobs (queue, priority, due_at, job_id) WHERE due_at IS NOT NULL AND parked IS NULL;
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (limit_key, priority DESC, run_at, job_id) WHERE parked IS NOT NULL;

-- The jobs that run within a limit on how many may run at once. The key makes it impossible to give a slot out twice.
CREATE TABLE holdfast_slots (
  bucket TEXT NOT NULL CHECK (bucket <> ''),
  slot   INTEGER NOT NULL CHECK (slot >= 1),
  job_id INTEGER NOT NULL REFERENCES holdfast_calls (job_id),
  PRIMARY KEY (bucket, slot)
) WITHOUT ROWID, STRICT;

CREATE UNIQUE INDEX holdfast_slots_job ON holdfast_slots (job_id, bucket);

-- The tokens of a rate at a time; the time is later than now while the bucket is held. `wake_at` is set while jobs wait.
CREATE TABLE holdfast_buckets (
  bucket  TEXT NOT NULL PRIMARY KEY CHECK (bucket <> ''),
  tokens  REAL NOT NULL CHECK (tokens >= 0),
  at      TEXT NOT NULL CHECK (at GLOB '????-??-??T??:??:??.??????Z'),
  wake_at TEXT CHECK (wake_at GLOB '????-??-??T??:??:??.??????Z')
) WITHOUT ROWID, STRICT;

CREATE INDEX holdfast_buckets_wake ON holdfast_buckets (wake_at) WHERE wake_at IS NOT NULL;

-- Unique work and deadlines -------------------------------------------------------------------------------------------

-- A scope is taken by the job that was last submitted under it. The row is locked while a submit looks at that job.
CREATE TABLE holdfast_unique (
  scope  TEXT PRIMARY KEY CHECK (scope <> ''),
  job_id INTEGER REFERENCES holdfast_calls (job_id) -- NULL only while its submit has not ended
) WITHOUT ROWID, STRICT;

ALTER TABLE holdfast_jobs ADD COLUMN deadline_at TEXT CHECK (deadline_at GLOB '????-??-??T??:??:??.??????Z');
CREATE INDEX holdfast_jobs_deadline ON holdfast_jobs (deadline_at) WHERE deadline_at IS NOT NULL AND state = 'pending';

-- Traces --------------------------------------------------------------------------------------------------------------

-- The trace in which a job was submitted, as W3C writes it; only processes with telemetry write it. See docs/telemetry.md.
CREATE TABLE holdfast_traces (
  job_id      INTEGER PRIMARY KEY REFERENCES holdfast_calls (job_id),
  traceparent TEXT NOT NULL CHECK (length(traceparent) <= 256),
  tracestate  TEXT CHECK (length(tracestate) <= 512)
) STRICT;

-- Jobs that follow other jobs, and batches -------------------------------------------------------------------------------

-- A row for each job that waits for others, and for each batch. `awaited` is the first of the jobs that held it back at
-- the last look; NULL: none does. So a look reads one job of each wait, however many it waits for.
CREATE TABLE holdfast_waits (
  wait_id    INTEGER PRIMARY KEY AUTOINCREMENT CHECK (wait_id > 0),
  kind       TEXT NOT NULL CHECK (kind IN ('after', 'batch')),
  name       TEXT,
  job_id     INTEGER REFERENCES holdfast_calls (job_id), -- the job that waits; NULL for a batch that no job follows
  policy     TEXT NOT NULL CHECK (policy IN ('wait', 'cancel', 'run')),
  parents    INTEGER NOT NULL CHECK (parents >= 1),
  awaited    INTEGER,
  created_at TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_waits_job ON holdfast_waits (job_id) WHERE job_id IS NOT NULL;
CREATE INDEX holdfast_waits_open ON holdfast_waits (wait_id) WHERE awaited IS NOT NULL;

CREATE TABLE holdfast_after (
  wait_id   INTEGER NOT NULL REFERENCES holdfast_waits (wait_id),
  parent_id INTEGER NOT NULL REFERENCES holdfast_calls (job_id),
  PRIMARY KEY (wait_id, parent_id)
) WITHOUT ROWID, STRICT;

CREATE INDEX holdfast_after_parent ON holdfast_after (parent_id);
