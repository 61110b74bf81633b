-- What holds a job back although its time has come: limits, and jobs that it follows. See docs/adr/0015.
-- Every new column may be NULL: no row is rewritten.

-- Parked jobs and limits ----------------------------------------------------------------------------------------------

-- Why a pending job gets no lease; NULL: nothing holds it back. Parking a job is no move.
ALTER TABLE holdfast_jobs ADD COLUMN parked text CONSTRAINT holdfast_jobs_parked_check
  CHECK (parked IS NULL OR (state = 'pending' AND parked IN ('limit', 'after', 'depth')));
-- The bucket that a parked job waits for.
ALTER TABLE holdfast_jobs ADD COLUMN limit_key text CONSTRAINT holdfast_jobs_limit_key_check
  CHECK (limit_key IS NULL OR (parked IS NOT NULL AND limit_key <> ''));

-- What is parked is not in the index that a claim walks.
DROP INDEX holdfast_jobs_due;
CREATE INDEX holdfast_jobs_due ON holdfast_jobs (queue, priority, due_at, job_id) WHERE due_at IS NOT NULL AND parked IS NULL;
CREATE INDEX holdfast_jobs_parked ON holdfast_jobs (limit_key, priority DESC, run_at, job_id) WHERE parked IS NOT NULL;

-- The jobs that run within a limit on how many may run at once. The key makes it impossible to give a slot out twice.
CREATE TABLE holdfast_slots (
  bucket text NOT NULL CHECK (bucket <> ''),
  slot   integer NOT NULL CHECK (slot >= 1),
  job_id bigint NOT NULL REFERENCES holdfast_calls (job_id),
  PRIMARY KEY (bucket, slot)
);

CREATE UNIQUE INDEX holdfast_slots_job ON holdfast_slots (job_id, bucket);

-- The tokens of a rate at a time; the time is later than now while the bucket is held. `wake_at` is set while jobs wait.
CREATE TABLE holdfast_buckets (
  bucket  text NOT NULL PRIMARY KEY CHECK (bucket <> ''),
  tokens  double precision NOT NULL CHECK (tokens >= 0),
  at      timestamptz NOT NULL,
  wake_at timestamptz
);

CREATE INDEX holdfast_buckets_wake ON holdfast_buckets (wake_at) WHERE wake_at IS NOT NULL;

-- Unique work and deadlines -------------------------------------------------------------------------------------------

-- A scope is taken by the job that was last submitted under it. The row is locked while a submit looks at that job.
CREATE TABLE holdfast_unique (
  scope  text PRIMARY KEY CHECK (scope <> ''),
  job_id bigint REFERENCES holdfast_calls (job_id) -- NULL only while its submit has not ended
);

ALTER TABLE holdfast_jobs ADD COLUMN deadline_at timestamptz;
CREATE INDEX holdfast_jobs_deadline ON holdfast_jobs (deadline_at) WHERE deadline_at IS NOT NULL AND state = 'pending';

-- Traces --------------------------------------------------------------------------------------------------------------

-- The trace in which a job was submitted, as W3C writes it; only processes with telemetry write it. See docs/telemetry.md.
CREATE TABLE holdfast_traces (
  job_id      bigint PRIMARY KEY REFERENCES holdfast_calls (job_id),
  traceparent text NOT NULL CHECK (length(traceparent) <= 256),
  tracestate  text CHECK (length(tracestate) <= 512)
);
