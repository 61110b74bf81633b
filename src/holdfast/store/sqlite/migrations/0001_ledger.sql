-- The ledger: work, its attempts, its history, its counts, what guards it, and governance. See docs/adr/0012.
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

-- What a client submitted, written once; a job keeps its call for life, and so its key. Foreign keys refer to it.
CREATE TABLE holdfast_calls (
  job_id            INTEGER PRIMARY KEY AUTOINCREMENT CHECK (job_id > 0),
  replaces          INTEGER REFERENCES holdfast_calls (job_id),
  max_attempts      INTEGER NOT NULL CHECK (max_attempts >= 1),
  replay_attempts   INTEGER NOT NULL CHECK (replay_attempts >= 0),
  operation_version TEXT NOT NULL,
  client            TEXT NOT NULL,
  key               TEXT CHECK (key <> ''),
  created_at        TEXT NOT NULL CHECK (created_at GLOB '????-??-??T??:??:??.??????Z'),
  digest            TEXT NOT NULL,
  payload           TEXT
) STRICT;

CREATE UNIQUE INDEX holdfast_calls_key ON holdfast_calls (client, key) WHERE key IS NOT NULL;
-- Jobs that replace another, by the one that they replace.
CREATE INDEX holdfast_calls_replaces ON holdfast_calls (replaces) WHERE replaces IS NOT NULL;

-- A job and its current attempt, in one row: the two cannot disagree, and a job can commit only once.
-- `due_at` is set while the job is pending, and `resting` while it is failed or quarantined: the indexes are over these,
-- so that a move of a job touches only the indexes that it enters or leaves.
CREATE TABLE holdfast_jobs (
  job_id             INTEGER PRIMARY KEY CHECK (job_id > 0),
  version            INTEGER NOT NULL CHECK (version >= 1),
  attempts           INTEGER NOT NULL DEFAULT 0 CHECK (attempts BETWEEN 0 AND 999999),
  excused            INTEGER NOT NULL DEFAULT 0 CHECK (excused BETWEEN 0 AND attempts),
  priority           INTEGER NOT NULL DEFAULT 0,
  history_from       INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1),
  lease_token        INTEGER,
  grant_id           INTEGER,
  operation          TEXT NOT NULL,
  queue              TEXT NOT NULL,
  state              TEXT NOT NULL,
  status             TEXT,
  event              TEXT NOT NULL,
  actor              TEXT NOT NULL,
  move_id            TEXT NOT NULL,
  lease_owner        TEXT,
  run_at             TEXT NOT NULL CHECK (run_at GLOB '????-??-??T??:??:??.??????Z'),
  due_at             TEXT,
  updated_at         TEXT NOT NULL CHECK (updated_at GLOB '????-??-??T??:??:??.??????Z'),
  lease_expires_at   TEXT CHECK (lease_expires_at GLOB '????-??-??T??:??:??.??????Z'),
  last_attempt_at    TEXT,
  started_at         TEXT,
  cancel_asked_at    TEXT,
  resting            TEXT,
  reason             TEXT,
  result             TEXT,
  last_error_code    TEXT,
  last_error_message TEXT,
  excuse_code        TEXT,
  excuse_message     TEXT,
  quarantine_code    TEXT,
  replay_reason      TEXT,
  progress           REAL,
  progress_note      TEXT,
  CONSTRAINT holdfast_jobs_due_check CHECK ((due_at IS NOT NULL) = (state = 'pending') AND (due_at IS NULL OR due_at = run_at)),
  CONSTRAINT holdfast_jobs_resting_check CHECK (CASE WHEN state IN ('failed', 'quarantined') THEN resting IS state ELSE resting IS NULL END),
  CONSTRAINT holdfast_jobs_status_check CHECK (CASE state
    WHEN 'running' THEN status IS NOT NULL AND status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED')
    WHEN 'succeeded' THEN status IS 'DONE' ELSE status IS NULL END),
  CONSTRAINT holdfast_jobs_lease_check CHECK ((lease_expires_at IS NOT NULL) = (state = 'running')
    AND (status IS NULL OR (lease_owner IS NOT NULL AND lease_token IS NOT NULL AND last_attempt_at IS NOT NULL)))
) STRICT;

CREATE INDEX holdfast_jobs_due ON holdfast_jobs (queue, priority, due_at, job_id) WHERE due_at IS NOT NULL;
CREATE INDEX holdfast_jobs_leased ON holdfast_jobs (lease_expires_at) WHERE lease_expires_at IS NOT NULL;
CREATE INDEX holdfast_jobs_resting ON holdfast_jobs (resting, job_id) WHERE resting IS NOT NULL;

-- The attempts that ended without success, written by the triggers of the jobs.
CREATE TABLE holdfast_aborted (
  job_id           INTEGER NOT NULL,
  attempt          INTEGER NOT NULL CHECK (attempt >= 1),
  version          INTEGER NOT NULL CHECK (version >= 1),
  excused          INTEGER NOT NULL CHECK (excused IN (0, 1)),
  lease_token      INTEGER NOT NULL,
  lease_owner      TEXT NOT NULL,
  lease_expires_at TEXT NOT NULL,
  created_at       TEXT NOT NULL,
  started_at       TEXT,
  finished_at      TEXT NOT NULL,
  cancel_asked_at  TEXT,
  event            TEXT NOT NULL,
  actor            TEXT NOT NULL,
  move_id          TEXT NOT NULL,
  reason           TEXT,
  error_code       TEXT,
  error_message    TEXT,
  progress         REAL,
  progress_note    TEXT,
  PRIMARY KEY (job_id, attempt)
) WITHOUT ROWID, STRICT;

-- Values that an attempt keeps for the next one; written only under a live lease.
CREATE TABLE holdfast_checkpoints (
  job_id     INTEGER NOT NULL REFERENCES holdfast_calls (job_id),
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
  history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1),
  requested_via TEXT, -- how the requester and the approver were known: JSON, with the signature where there is one
  approved_via TEXT,
  CHECK ((state = 'consumed') = (consumed_by IS NOT NULL))
) STRICT;

-- Of two grants alike, one would be left over when the other is used.
CREATE UNIQUE INDEX holdfast_grants_alike ON holdfast_grants (action, target, scope) WHERE state IN ('draft', 'active');
CREATE INDEX holdfast_grants_open ON holdfast_grants (action, target) WHERE state IN ('draft', 'active');

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
  move_id          TEXT NOT NULL,
  history_from     INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1),
  params           TEXT NOT NULL DEFAULT '{}',
  plan             TEXT NOT NULL DEFAULT '',
  lease            TEXT NOT NULL DEFAULT '',
  grant_id         INTEGER REFERENCES holdfast_grants (grant_id),
  failure          TEXT
) STRICT;

-- One row a move. `status_from` and `status_to` say what the move did with the attempt; the view holdfast_edges shows
-- every edge of both machines as a row of its own.
CREATE TABLE holdfast_journal (
  seq            INTEGER PRIMARY KEY AUTOINCREMENT CHECK (seq > 0),
  epoch          INTEGER NOT NULL,
  xid            INTEGER NOT NULL,
  subject        INTEGER NOT NULL,
  version        INTEGER NOT NULL,
  attempt        INTEGER,
  machine        TEXT NOT NULL,
  source         TEXT,
  target         TEXT NOT NULL,
  status_from    TEXT,
  status_to      TEXT,
  event          TEXT NOT NULL,
  actor          TEXT NOT NULL,
  reason         TEXT,
  move_id        TEXT NOT NULL,
  grant_id       INTEGER,
  maintenance_id INTEGER,
  at             TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_journal_subject ON holdfast_journal (subject, version, machine);
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

-- A seal closes the rows up to (epoch, last_xid, last_seq) that no seal before it has closed.
CREATE TABLE holdfast_seals (
  seal_id     INTEGER PRIMARY KEY CHECK (seal_id > 0),
  format      INTEGER NOT NULL, -- which values of a journal row are hashed, and in which order
  epoch       INTEGER NOT NULL,
  last_xid    INTEGER NOT NULL,
  last_seq    INTEGER NOT NULL,
  low_seq     INTEGER NOT NULL,
  high_seq    INTEGER NOT NULL,
  rows        INTEGER NOT NULL CHECK (rows > 0),
  digest      TEXT NOT NULL,
  previous    TEXT NOT NULL,
  hash        TEXT NOT NULL,
  sealed_at   TEXT NOT NULL,
  horizon_xid INTEGER NOT NULL,
  horizon_seq INTEGER NOT NULL
) STRICT;

CREATE TABLE holdfast_archives (
  archive_id INTEGER PRIMARY KEY CHECK (archive_id > 0),
  first_seal INTEGER NOT NULL REFERENCES holdfast_seals (seal_id),
  last_seal  INTEGER NOT NULL REFERENCES holdfast_seals (seal_id),
  file       TEXT NOT NULL UNIQUE,
  sha256     TEXT NOT NULL,
  rows       INTEGER NOT NULL,
  executions INTEGER NOT NULL,
  created_at TEXT NOT NULL
) STRICT;

-- An exclusive right to run something. A row outlives its lease, so that tokens only grow; the time limit heals it.
CREATE TABLE holdfast_leases (
  name        TEXT PRIMARY KEY CHECK (name <> ''),
  holder      TEXT NOT NULL CHECK (holder <> ''),
  token       INTEGER NOT NULL CHECK (token >= 1),
  acquired_at TEXT NOT NULL,
  expires_at  TEXT NOT NULL CHECK (expires_at GLOB '????-??-??T??:??:??.??????Z')
) WITHOUT ROWID, STRICT;

-- A step that was performed, once for each time. Undone, it may be performed again: that is another row.
CREATE TABLE holdfast_steps (
  step_id      INTEGER PRIMARY KEY AUTOINCREMENT CHECK (step_id > 0),
  run_id       INTEGER NOT NULL REFERENCES holdfast_procedures (run_id),
  number       INTEGER NOT NULL CHECK (number >= 0),
  name         TEXT NOT NULL,
  state        TEXT NOT NULL,
  version      INTEGER NOT NULL CHECK (version >= 1),
  outcome      TEXT NOT NULL,
  created_at   TEXT NOT NULL,
  updated_at   TEXT NOT NULL,
  event        TEXT NOT NULL,
  actor        TEXT NOT NULL,
  reason       TEXT,
  move_id      TEXT NOT NULL,
  history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1)
) STRICT;

CREATE UNIQUE INDEX holdfast_steps_performed ON holdfast_steps (run_id, number) WHERE state = 'performed';

-- The governed vocabulary.
CREATE TABLE holdfast_collections (
  collection      TEXT PRIMARY KEY CHECK (collection <> ''),
  schema          TEXT NOT NULL,
  schema_digest   TEXT NOT NULL,
  manifest_digest TEXT,
  standing        TEXT NOT NULL CHECK (standing IN ('staged', 'in force', 'withheld')),
  run_id          INTEGER NOT NULL REFERENCES holdfast_procedures (run_id),
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL
) WITHOUT ROWID, STRICT;

CREATE TABLE holdfast_values (
  value_id          INTEGER PRIMARY KEY AUTOINCREMENT CHECK (value_id > 0),
  vocab_id          TEXT NOT NULL UNIQUE,
  collection        TEXT NOT NULL REFERENCES holdfast_collections (collection),
  operation_code    TEXT NOT NULL CHECK (operation_code <> ''),
  protocol_version  TEXT NOT NULL CHECK (protocol_version <> ''),
  act_type          TEXT NOT NULL,
  semantics         TEXT NOT NULL,
  authority_ref     TEXT NOT NULL,
  digest            TEXT NOT NULL,
  standing          TEXT NOT NULL CHECK (standing IN ('staged', 'in force', 'withheld')),
  state             TEXT NOT NULL,
  version           INTEGER NOT NULL CHECK (version >= 1),
  successor_code    TEXT,
  successor_version TEXT,
  rollback_ref      TEXT,
  run_id            INTEGER REFERENCES holdfast_procedures (run_id),
  created_at        TEXT NOT NULL,
  updated_at        TEXT NOT NULL,
  event             TEXT NOT NULL,
  actor             TEXT NOT NULL,
  reason            TEXT,
  move_id           TEXT NOT NULL,
  grant_id          INTEGER REFERENCES holdfast_grants (grant_id),
  history_from      INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1),
  UNIQUE (operation_code, protocol_version),
  CHECK ((state = 'superseded') = (successor_code IS NOT NULL)),
  CHECK ((successor_code IS NULL) = (successor_version IS NULL)),
  CHECK (successor_code <> operation_code OR successor_version <> protocol_version),
  -- Deferred: a successor may be admitted after the value that names it, in one transaction.
  FOREIGN KEY (successor_code, successor_version) REFERENCES holdfast_values (operation_code, protocol_version)
    DEFERRABLE INITIALLY DEFERRED
) STRICT;

CREATE UNIQUE INDEX holdfast_values_active ON holdfast_values (operation_code, act_type)
 WHERE state = 'active' AND standing <> 'withheld';
CREATE INDEX holdfast_values_run ON holdfast_values (run_id);

-- What a governed act leaves behind for its reviewers. It is never changed or deleted; a compensation declares it void.
CREATE TABLE holdfast_evidence (
  evidence_id INTEGER PRIMARY KEY AUTOINCREMENT CHECK (evidence_id > 0),
  run_id      INTEGER REFERENCES holdfast_procedures (run_id),
  kind        TEXT NOT NULL,
  subject     TEXT NOT NULL,
  content     TEXT NOT NULL,
  digest      TEXT NOT NULL,
  actor       TEXT NOT NULL,
  grant_id    INTEGER REFERENCES holdfast_grants (grant_id),
  voided_at   TEXT,
  created_at  TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_evidence_once ON holdfast_evidence (run_id, kind) WHERE voided_at IS NULL;

-- A switch that was thrown, once for each time; to lift it takes a grant.
CREATE TABLE holdfast_switches (
  switch_id    INTEGER PRIMARY KEY AUTOINCREMENT CHECK (switch_id > 0),
  name         TEXT NOT NULL CHECK (name <> ''),
  state        TEXT NOT NULL,
  version      INTEGER NOT NULL CHECK (version >= 1),
  thrown_by    TEXT NOT NULL,
  created_at   TEXT NOT NULL,
  updated_at   TEXT NOT NULL,
  event        TEXT NOT NULL,
  actor        TEXT NOT NULL,
  reason       TEXT NOT NULL,
  move_id      TEXT NOT NULL,
  grant_id     INTEGER,
  history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1)
) STRICT;

CREATE UNIQUE INDEX holdfast_switches_on ON holdfast_switches (name) WHERE state = 'on';
-- A grant lifts one switch, once.
CREATE UNIQUE INDEX holdfast_switches_grant ON holdfast_switches (grant_id) WHERE grant_id IS NOT NULL;

-- Who may approve where an approval must be authentic: a name and the public key that speaks for it.
CREATE TABLE holdfast_approvers (
  name       TEXT PRIMARY KEY CHECK (name <> ''),
  public_key TEXT NOT NULL,
  added_by   TEXT NOT NULL,
  reason     TEXT NOT NULL,
  grant_id   INTEGER REFERENCES holdfast_grants (grant_id),
  added_at   TEXT NOT NULL,
  revoked_at TEXT,
  revoked_by TEXT
) WITHOUT ROWID, STRICT;

-- Which ledger this is, wherever a copy of it goes: the first seal follows it.
INSERT INTO holdfast_meta (name, value) VALUES ('ledger_id', lower(hex(randomblob(16))));
