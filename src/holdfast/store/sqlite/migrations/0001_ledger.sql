-- The ledger: work, its attempts, its history, its counts.
-- Times are text in one fixed-width UTC format, so that text order is time order.
-- Ids are checked to be positive: before it gives a row its id, SQLite shows triggers -1 in its place.
-- Triggers are not here: they are generated from the transition table and written after every migration.

CREATE TABLE holdfast_meta (
  name  TEXT PRIMARY KEY CHECK (name <> 'must be gone at commit'), -- what an open maintenance door refers to in vain
  value TEXT NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_machines (
  machine TEXT PRIMARY KEY,
  digest  TEXT NOT NULL
) WITHOUT ROWID, STRICT;

-- For people: the legal edges. Nothing reads it; the triggers carry the edges themselves.
CREATE TABLE holdfast_transitions (
  machine TEXT NOT NULL,
  event   TEXT NOT NULL,
  step    INTEGER NOT NULL,
  source  TEXT,
  target  TEXT NOT NULL,
  path    TEXT NOT NULL,
  rule    TEXT NOT NULL
) STRICT;

CREATE TABLE holdfast_operations (
  operation   TEXT PRIMARY KEY,
  version     TEXT NOT NULL,
  defaults    TEXT NOT NULL DEFAULT '{}',
  declared_at TEXT NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_queues (
  queue     TEXT PRIMARY KEY,
  paused_at TEXT,
  paused_by TEXT,
  reason    TEXT
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_jobs (
  job_id             INTEGER PRIMARY KEY AUTOINCREMENT CHECK (job_id > 0),
  operation          TEXT NOT NULL,
  operation_version  TEXT NOT NULL,
  client             TEXT NOT NULL,
  key                TEXT CHECK (key <> ''),
  queue              TEXT NOT NULL,
  state              TEXT NOT NULL,
  version            INTEGER NOT NULL CHECK (version >= 1),
  attempts           INTEGER NOT NULL DEFAULT 0 CHECK (attempts >= 0),
  excused            INTEGER NOT NULL DEFAULT 0 CHECK (excused BETWEEN 0 AND attempts),
  max_attempts       INTEGER NOT NULL CHECK (max_attempts >= 1),
  replay_attempts    INTEGER NOT NULL CHECK (replay_attempts >= 0),
  priority           INTEGER NOT NULL DEFAULT 0,
  run_at             TEXT NOT NULL CHECK (run_at GLOB '????-??-??T??:??:??.??????Z'),
  payload            TEXT,
  digest             TEXT NOT NULL,
  result             TEXT,
  last_attempt_at    TEXT,
  last_error_code    TEXT,
  last_error_message TEXT,
  quarantine_code    TEXT,
  replay_reason      TEXT,
  replaces           INTEGER REFERENCES holdfast_jobs (job_id),
  created_at         TEXT NOT NULL CHECK (created_at GLOB '????-??-??T??:??:??.??????Z'),
  updated_at         TEXT NOT NULL CHECK (updated_at GLOB '????-??-??T??:??:??.??????Z'),
  event              TEXT NOT NULL,
  actor              TEXT NOT NULL,
  reason             TEXT,
  move_id            TEXT NOT NULL,
  grant_id           INTEGER,
  CHECK (created_at <= updated_at)
) STRICT;

CREATE UNIQUE INDEX holdfast_jobs_key ON holdfast_jobs (client, key) WHERE key IS NOT NULL;
CREATE INDEX holdfast_jobs_due ON holdfast_jobs (queue, priority, run_at, job_id) WHERE state = 'pending';
CREATE INDEX holdfast_jobs_resting ON holdfast_jobs (state, job_id) WHERE state IN ('failed', 'quarantined', 'running');

-- An execution is one lease, so its id, which only grows, is also the fencing token.
CREATE TABLE holdfast_executions (
  exec_id          INTEGER PRIMARY KEY AUTOINCREMENT CHECK (exec_id > 0),
  job_id           INTEGER NOT NULL REFERENCES holdfast_jobs (job_id),
  attempt          INTEGER NOT NULL CHECK (attempt >= 1),
  status           TEXT NOT NULL,
  version          INTEGER NOT NULL CHECK (version >= 1),
  lease_owner      TEXT NOT NULL,
  lease_token      INTEGER NOT NULL GENERATED ALWAYS AS (exec_id) VIRTUAL,
  lease_expires_at TEXT NOT NULL CHECK (lease_expires_at GLOB '????-??-??T??:??:??.??????Z'),
  excused          INTEGER NOT NULL DEFAULT 0 CHECK (excused IN (0, 1)),
  error_code       TEXT,
  error_message    TEXT,
  progress         REAL,
  progress_note    TEXT,
  cancel_asked_at  TEXT,
  started_at       TEXT,
  finished_at      TEXT,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  event            TEXT NOT NULL,
  actor            TEXT NOT NULL,
  reason           TEXT,
  move_id          TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_executions_attempt ON holdfast_executions (job_id, attempt);
CREATE UNIQUE INDEX holdfast_executions_one_commit ON holdfast_executions (job_id)
  WHERE status IN ('COMMITTED', 'DONE');
CREATE INDEX holdfast_executions_open ON holdfast_executions (lease_expires_at)
  WHERE status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED');

-- Values that an attempt keeps for the next one; written only under a live lease.
CREATE TABLE holdfast_checkpoints (
  job_id     INTEGER NOT NULL REFERENCES holdfast_jobs (job_id),
  name       TEXT NOT NULL,
  value      TEXT NOT NULL,
  exec_id    INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID, STRICT;

-- Who works here: for people and for `explain`. Nothing is decided by it.
CREATE TABLE holdfast_workers (
  worker_id   TEXT PRIMARY KEY,
  queues      TEXT NOT NULL,
  operations  TEXT NOT NULL,
  concurrency INTEGER NOT NULL,
  started_at  TEXT NOT NULL,
  seen_at     TEXT NOT NULL,
  stopped_at  TEXT
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_grants (
  grant_id     INTEGER PRIMARY KEY AUTOINCREMENT CHECK (grant_id > 0),
  state        TEXT NOT NULL,
  version      INTEGER NOT NULL CHECK (version >= 1),
  action       TEXT NOT NULL,
  target       TEXT NOT NULL,
  scope        TEXT NOT NULL,
  requested_by TEXT NOT NULL,
  approved_by  TEXT,
  consumed_by  TEXT,
  expires_at   TEXT NOT NULL,
  created_at   TEXT NOT NULL,
  updated_at   TEXT NOT NULL,
  event        TEXT NOT NULL,
  actor        TEXT NOT NULL,
  reason       TEXT NOT NULL,
  move_id      TEXT NOT NULL,
  CHECK ((state = 'consumed') = (consumed_by IS NOT NULL))
) STRICT;

CREATE TABLE holdfast_procedures (
  run_id           INTEGER PRIMARY KEY AUTOINCREMENT CHECK (run_id > 0),
  idempotency_root TEXT NOT NULL UNIQUE,
  procedure        TEXT NOT NULL,
  state            TEXT NOT NULL,
  version          INTEGER NOT NULL CHECK (version >= 1),
  step             INTEGER NOT NULL DEFAULT 0 CHECK (step >= 0),
  stop_state       TEXT,
  created_at       TEXT NOT NULL,
  updated_at       TEXT NOT NULL,
  event            TEXT NOT NULL,
  actor            TEXT NOT NULL,
  reason           TEXT,
  move_id          TEXT NOT NULL
) STRICT;

CREATE TABLE holdfast_values (
  value_id          INTEGER PRIMARY KEY AUTOINCREMENT CHECK (value_id > 0),
  operation_code    TEXT NOT NULL,
  protocol_version  TEXT NOT NULL,
  state             TEXT NOT NULL,
  version           INTEGER NOT NULL CHECK (version >= 1),
  semantics         TEXT NOT NULL,
  successor_code    TEXT,
  successor_version TEXT,
  created_at        TEXT NOT NULL,
  updated_at        TEXT NOT NULL,
  event             TEXT NOT NULL,
  actor             TEXT NOT NULL,
  reason            TEXT,
  move_id           TEXT NOT NULL,
  grant_id          INTEGER REFERENCES holdfast_grants (grant_id),
  UNIQUE (operation_code, protocol_version)
) STRICT;

CREATE TABLE holdfast_journal (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT CHECK (seq > 0),
  epoch          INTEGER NOT NULL,
  xid            INTEGER NOT NULL,
  machine        TEXT NOT NULL,
  subject        INTEGER NOT NULL,
  version        INTEGER NOT NULL,
  source         TEXT,
  target         TEXT NOT NULL,
  event          TEXT NOT NULL,
  actor          TEXT NOT NULL,
  reason         TEXT,
  attempt        INTEGER,
  move_id        TEXT NOT NULL,
  grant_id       INTEGER,
  maintenance_id INTEGER,
  at             TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_journal_subject ON holdfast_journal (subject, machine, version);
-- A grant moves one job, once.
CREATE UNIQUE INDEX holdfast_journal_grant ON holdfast_journal (grant_id) WHERE machine = 'JOB' AND grant_id IS NOT NULL;

-- The maintenance door. A row here opens it, and must be gone again when its transaction ends: the deferred
-- reference to nothing makes COMMIT refuse a row that is left standing.
CREATE TABLE holdfast_maintenance (
  maintenance_id INTEGER PRIMARY KEY AUTOINCREMENT,
  who            TEXT NOT NULL CHECK (who <> ''),
  why            TEXT NOT NULL CHECK (why <> ''),
  grant_id       INTEGER,
  opened_at      TEXT NOT NULL,
  shut_before_commit TEXT NOT NULL DEFAULT 'must be gone at commit' CHECK (shut_before_commit = 'must be gone at commit')
    REFERENCES holdfast_meta (name) DEFERRABLE INITIALLY DEFERRED
) STRICT;

-- Counts are never counted: every move writes a delta, a keeper folds them.
CREATE TABLE holdfast_counts (
  operation TEXT NOT NULL,
  queue     TEXT NOT NULL,
  state     TEXT NOT NULL,
  n         INTEGER NOT NULL,
  PRIMARY KEY (operation, queue, state)
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_count_deltas (
  delta_id  INTEGER PRIMARY KEY AUTOINCREMENT,
  operation TEXT NOT NULL,
  queue     TEXT NOT NULL,
  source    TEXT,
  target    TEXT NOT NULL,
  n         INTEGER NOT NULL
) STRICT;
