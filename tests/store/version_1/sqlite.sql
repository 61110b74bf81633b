-- A ledger of schema version 1 with jobs in every state, as it was when migration 0002 was written: tests upgrade it.
-- Frozen: never written anew. Statements are separated by a line of dashes.
-- ----
CREATE TABLE holdfast_migrations (number integer PRIMARY KEY, name text NOT NULL, digest text NOT NULL, applied_at text NOT NULL)
-- ----
CREATE TABLE holdfast_meta (
  name  TEXT PRIMARY KEY CHECK (name <> 'must be gone at commit'), -- what an open maintenance door refers to in vain
  value TEXT NOT NULL
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_machines (
  machine TEXT PRIMARY KEY,
  digest  TEXT NOT NULL
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_transitions (
  machine TEXT NOT NULL,
  event   TEXT NOT NULL,
  step    INTEGER NOT NULL,
  source  TEXT,
  target  TEXT NOT NULL,
  path    TEXT NOT NULL,
  rule    TEXT NOT NULL
) STRICT
-- ----
CREATE TABLE holdfast_operations (
  operation   TEXT PRIMARY KEY,
  version     TEXT NOT NULL,
  defaults    TEXT NOT NULL DEFAULT '{}',
  declared_at TEXT NOT NULL
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_queues (
  queue     TEXT PRIMARY KEY,
  paused_at TEXT,
  paused_by TEXT,
  reason    TEXT
) WITHOUT ROWID, STRICT
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_calls_key ON holdfast_calls (client, key) WHERE key IS NOT NULL
-- ----
CREATE INDEX holdfast_calls_replaces ON holdfast_calls (replaces) WHERE replaces IS NOT NULL
-- ----
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
) STRICT
-- ----
CREATE INDEX holdfast_jobs_due ON holdfast_jobs (queue, priority, due_at, job_id) WHERE due_at IS NOT NULL
-- ----
CREATE INDEX holdfast_jobs_leased ON holdfast_jobs (lease_expires_at) WHERE lease_expires_at IS NOT NULL
-- ----
CREATE INDEX holdfast_jobs_resting ON holdfast_jobs (resting, job_id) WHERE resting IS NOT NULL
-- ----
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
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_checkpoints (
  job_id     INTEGER NOT NULL REFERENCES holdfast_calls (job_id),
  name       TEXT NOT NULL,
  value      TEXT NOT NULL,
  exec_id    INTEGER NOT NULL,
  created_at TEXT NOT NULL,
  PRIMARY KEY (job_id, name)
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_workers (
  worker_id   TEXT PRIMARY KEY,
  queues      TEXT NOT NULL,
  operations  TEXT NOT NULL,
  concurrency INTEGER NOT NULL,
  started_at  TEXT NOT NULL,
  seen_at     TEXT NOT NULL,
  stopped_at  TEXT
) WITHOUT ROWID, STRICT
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_grants_alike ON holdfast_grants (action, target, scope) WHERE state IN ('draft', 'active')
-- ----
CREATE INDEX holdfast_grants_open ON holdfast_grants (action, target) WHERE state IN ('draft', 'active')
-- ----
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
) STRICT
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_journal_subject ON holdfast_journal (subject, version, machine)
-- ----
CREATE UNIQUE INDEX holdfast_journal_grant ON holdfast_journal (grant_id) WHERE machine = 'JOB' AND grant_id IS NOT NULL
-- ----
CREATE TABLE holdfast_maintenance (
  maintenance_id INTEGER PRIMARY KEY AUTOINCREMENT,
  who            TEXT NOT NULL CHECK (who <> ''),
  why            TEXT NOT NULL CHECK (why <> ''),
  grant_id       INTEGER,
  opened_at      TEXT NOT NULL,
  shut_before_commit TEXT NOT NULL DEFAULT 'must be gone at commit' CHECK (shut_before_commit = 'must be gone at commit')
    REFERENCES holdfast_meta (name) DEFERRABLE INITIALLY DEFERRED
) STRICT
-- ----
CREATE TABLE holdfast_counts (
  operation TEXT NOT NULL,
  queue     TEXT NOT NULL,
  state     TEXT NOT NULL,
  n         INTEGER NOT NULL,
  PRIMARY KEY (operation, queue, state)
) WITHOUT ROWID, STRICT
-- ----
CREATE TABLE holdfast_count_deltas (
  delta_id  INTEGER PRIMARY KEY AUTOINCREMENT,
  operation TEXT NOT NULL,
  queue     TEXT NOT NULL,
  source    TEXT,
  target    TEXT NOT NULL,
  n         INTEGER NOT NULL
) STRICT
-- ----
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
) STRICT
-- ----
CREATE TABLE holdfast_archives (
  archive_id INTEGER PRIMARY KEY CHECK (archive_id > 0),
  first_seal INTEGER NOT NULL REFERENCES holdfast_seals (seal_id),
  last_seal  INTEGER NOT NULL REFERENCES holdfast_seals (seal_id),
  file       TEXT NOT NULL UNIQUE,
  sha256     TEXT NOT NULL,
  rows       INTEGER NOT NULL,
  executions INTEGER NOT NULL,
  created_at TEXT NOT NULL
) STRICT
-- ----
CREATE TABLE holdfast_leases (
  name        TEXT PRIMARY KEY CHECK (name <> ''),
  holder      TEXT NOT NULL CHECK (holder <> ''),
  token       INTEGER NOT NULL CHECK (token >= 1),
  acquired_at TEXT NOT NULL,
  expires_at  TEXT NOT NULL CHECK (expires_at GLOB '????-??-??T??:??:??.??????Z')
) WITHOUT ROWID, STRICT
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_steps_performed ON holdfast_steps (run_id, number) WHERE state = 'performed'
-- ----
CREATE TABLE holdfast_collections (
  collection      TEXT PRIMARY KEY CHECK (collection <> ''),
  schema          TEXT NOT NULL,
  schema_digest   TEXT NOT NULL,
  manifest_digest TEXT,
  standing        TEXT NOT NULL CHECK (standing IN ('staged', 'in force', 'withheld')),
  run_id          INTEGER NOT NULL REFERENCES holdfast_procedures (run_id),
  created_at      TEXT NOT NULL,
  updated_at      TEXT NOT NULL
) WITHOUT ROWID, STRICT
-- ----
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
  FOREIGN KEY (successor_code, successor_version) REFERENCES holdfast_values (operation_code, protocol_version)
    DEFERRABLE INITIALLY DEFERRED
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_values_active ON holdfast_values (operation_code, act_type)
 WHERE state = 'active' AND standing <> 'withheld'
-- ----
CREATE INDEX holdfast_values_run ON holdfast_values (run_id)
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_evidence_once ON holdfast_evidence (run_id, kind) WHERE voided_at IS NULL
-- ----
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
) STRICT
-- ----
CREATE UNIQUE INDEX holdfast_switches_on ON holdfast_switches (name) WHERE state = 'on'
-- ----
CREATE UNIQUE INDEX holdfast_switches_grant ON holdfast_switches (grant_id) WHERE grant_id IS NOT NULL
-- ----
CREATE TABLE holdfast_approvers (
  name       TEXT PRIMARY KEY CHECK (name <> ''),
  public_key TEXT NOT NULL,
  added_by   TEXT NOT NULL,
  reason     TEXT NOT NULL,
  grant_id   INTEGER REFERENCES holdfast_grants (grant_id),
  added_at   TEXT NOT NULL,
  revoked_at TEXT,
  revoked_by TEXT
) WITHOUT ROWID, STRICT
-- ----
INSERT INTO holdfast_grants
  (grant_id, state, version, action, target, scope, requested_by, approved_by, consumed_by, expires_at, requested_via, approved_via, created_at, updated_at, event, actor, reason, move_id, history_from)
VALUES
  (1, 'consumed', 3, 'release', 'job', 'one job', 'operator-1', 'approver-1', 'operator-1', '2026-01-03T03:04:51.000000Z', NULL, NULL, '2026-01-02T03:04:51.000000Z', '2026-01-02T03:04:52.000000Z', 'consume', 'operator-1', 'it was mended', 'consume-11', 1),
  (2, 'draft', 1, 'release', 'job', 'one job', 'operator-1', NULL, NULL, '2026-01-03T03:05:05.000000Z', NULL, NULL, '2026-01-02T03:05:05.000000Z', '2026-01-02T03:05:05.000000Z', 'request', 'operator-1', 'it was mended', 'TWMH87MEbLg', 1),
  (3, 'consumed', 3, 'registry.build', 'operations', 'one operations', 'operator-1', 'approver-1', 'operator-1', '2026-01-03T03:05:05.000000Z', NULL, NULL, '2026-01-02T03:05:05.000000Z', '2026-01-02T03:05:06.000000Z', 'consume', 'operator-1', 'it was mended', 'consume-build', 1),
  (4, 'consumed', 3, 'registry.supersede', 'echo', 'one echo', 'operator-1', 'approver-1', 'operator-1', '2026-01-03T03:05:07.000000Z', NULL, NULL, '2026-01-02T03:05:07.000000Z', '2026-01-02T03:05:08.000000Z', 'consume', 'operator-1', 'it was mended', 'supersede-echo', 1),
  (5, 'consumed', 3, 'switch.lift', 'registration', 'one registration', 'operator-1', 'approver-1', 'operator-1', '2026-01-03T03:05:08.000000Z', NULL, NULL, '2026-01-02T03:05:08.000000Z', '2026-01-02T03:05:09.000000Z', 'consume', 'operator-1', 'it was mended', 'lift-registration', 1),
  (6, 'active', 2, 'registry.retire', 'echo.two', 'one echo.two', 'operator-1', 'approver-1', NULL, '2026-01-03T03:05:09.000000Z', NULL, NULL, '2026-01-02T03:05:09.000000Z', '2026-01-02T03:05:10.000000Z', 'approve', 'approver-1', 'it was mended', 'approve-6', 1)
-- ----
INSERT INTO holdfast_procedures
  (run_id, idempotency_root, procedure, state, version, step, stop_state, params, plan, lease, grant_id, failure, created_at, updated_at, event, actor, reason, move_id, history_from)
VALUES
  (1, 'build-1', 'build', 'running', 2, 0, NULL, '{}', 'p', 'registry:operations', 3, NULL, '2026-01-02T03:05:06.000000Z', '2026-01-02T03:05:06.000000Z', 'run', 'operator-1', NULL, 'LmXAF3uOBCk', 1)
-- ----
INSERT INTO holdfast_seals
  (seal_id, format, epoch, last_xid, last_seq, low_seq, high_seq, rows, digest, previous, hash, sealed_at, horizon_xid, horizon_seq)
VALUES
  (1, 2, 1, 0, 9, 1, 9, 9, '39b564d560d13240767e3f20b9c958a1683055d39e39e867992387436de75669', '595016f524e0cc33677bb1ac58f1b4bad6812a9e4fa3d45e73926354e35de9bf', '5f4afd8b5fdd22ee6e91e8118add86d4f0fa776001d3efb3ae3f42ba82c6847d', '2026-01-02T03:04:12.000000Z', 0, 9),
  (2, 2, 1, 0, 23, 10, 23, 14, '0d875fecc4a63513fd2ecd901e34a1f6da0dfaf5202c267afe8304211f859094', '5f4afd8b5fdd22ee6e91e8118add86d4f0fa776001d3efb3ae3f42ba82c6847d', '905b6d059c745f6b207e6a8ca094bc424871eca21d495216e36b9784c382ab2c', '2026-01-02T03:04:35.000000Z', 0, 23)
-- ----
INSERT INTO holdfast_collections
  (collection, schema, schema_digest, manifest_digest, standing, run_id, created_at, updated_at)
VALUES
  ('operations', '{}', '0000000000000000000000000000000000000000000000000000000000000000', NULL, 'in force', 1, '2026-01-02T03:05:07.000000Z', '2026-01-02T03:05:07.000000Z')
-- ----
INSERT INTO holdfast_calls
  (job_id, operation_version, client, key, payload, digest, max_attempts, replay_attempts, replaces, created_at)
VALUES
  (1, '1.0.0', 'web', 'slimmed', NULL, '5ff7330a15a017a89ff306a54237d981dc5e31e8732e649d94f2e3299290b2b4', 5, 5, NULL, '2026-01-02T03:04:06.000000Z'),
  (2, '1.0.0', 'web', 'slimmed-quarantined', NULL, 'cb915bdcdac05ecbf3253b558fe722439b7c878576f670bd0ec094cbfc3c69b4', 5, 5, NULL, '2026-01-02T03:04:07.000000Z'),
  (3, '1.0.0', 'web', 'done', '{"of":"done"}', 'b2cfebc62f7f94f4347a596f3145b6d7153c1e45415faf2e02048e52da47ecad', 5, 5, NULL, '2026-01-02T03:04:13.000000Z'),
  (4, '1.0.0', 'holdfast', '3/1', '{}', 'c4a840e895acbf679053335160533f9fee7f3095ae94f320f05193f7d9e2409d', 5, 5, NULL, '2026-01-02T03:04:15.000000Z'),
  (5, '1.0.0', 'web', 'done-late', '{"of":"done-late"}', 'd06f7d645e60c839a594bb31396fa0e8b7e7fc1fa84b387de0459e84438b454b', 5, 5, NULL, '2026-01-02T03:04:16.000000Z'),
  (6, '1.0.0', 'web', 'failed', '{"of":"failed"}', '6c6683fedf70f5c028b67b3990b10d450014495c466f332bc5919537ec1423e3', 1, 5, NULL, '2026-01-02T03:04:36.000000Z'),
  (7, '1.0.0', 'web', 'replayed', '{"of":"replayed"}', '6979f4576ac2d52cb1d1b01c64c794b4b638a56ac9eb3c7bec087a44bfaad1ce', 1, 5, NULL, '2026-01-02T03:04:37.000000Z'),
  (8, '1.0.0', 'web', 'retried', '{"of":"retried"}', '9d5f73118b77fd694fd6c5d319ee9380a67c2bbb184af544065cfb0170a134f9', 5, 5, NULL, '2026-01-02T03:04:43.000000Z'),
  (9, '1.0.0', 'web', 'quarantined', '{"of":"quarantined"}', '8739d8b76d870a4eec037678276ecf7e80701858016c05c84a2c30ec12c18692', 5, 5, NULL, '2026-01-02T03:04:46.000000Z'),
  (10, '1.0.0', 'web', 'cancelled', '{"of":"cancelled"}', 'b89dd87c3432942eaf5510a004337cdedbfc701efc7e414f765627c746ed4c83', 5, 5, NULL, '2026-01-02T03:04:47.000000Z'),
  (11, '1.0.0', 'web', 'released', '{"of":"released"}', '51bd344ceb02a41c788fc2091f55c2fd0baf3d55903b4eb84d4af84e632cb9f9', 5, 5, NULL, '2026-01-02T03:04:48.000000Z'),
  (12, '1.0.0', 'web', 'poisoned', '{"of":"poisoned"}', 'a5314f85159ed4b0e85641e09f8c9152935887d524d2aa0dc32288c9aac41bcb', 5, 5, NULL, '2026-01-02T03:04:53.000000Z'),
  (13, '1.0.0', 'web', 'running', '{"of":"running"}', '4c1317cc9f6f6a41f132dec041732a6c80875a636b04c0daa464f75fe59ce8a1', 5, 5, NULL, '2026-01-02T03:04:56.000000Z'),
  (14, '1.0.0', 'web', 'leased', '{"of":"leased"}', '34286a983b6f55b2355e5109f20253ee6a6c1f287bae7097c843a5e101a57837', 5, 5, NULL, '2026-01-02T03:04:57.000000Z'),
  (15, '1.0.0', 'web', 'committed', '{"of":"committed"}', '764aa91160961612979462c4b04560bd2e64080206c3593bf3326ecfeaf425ce', 5, 5, NULL, '2026-01-02T03:04:58.000000Z'),
  (16, '1.0.0', 'web', 'waiting', '{"of":"waiting"}', '31547df179570653a621b121d29c8de1510b965899378464a9dc8de320027c72', 5, 5, NULL, '2026-01-02T03:05:03.000000Z'),
  (17, '1.0.0', 'web', 'scheduled', '{"of":"scheduled"}', 'b346a1213ec16cb422305a8caa7032a112bf154415e117ad2d9a3cb8928f4b8e', 5, 5, NULL, '2026-01-02T03:05:04.000000Z'),
  (18, '1.0.0', 'web', 'replacing', '{"of":"replacing"}', '33dbefb2a4ddcd3b18011abbccfe62f0397acafbc983a16a66a2b24e0d5f5a96', 5, 5, 3, '2026-01-02T03:05:05.000000Z')
-- ----
INSERT INTO holdfast_meta
  (name, value)
VALUES
  ('environment', 'dev'),
  ('epoch', '1'),
  ('governed', 'no'),
  ('ledger_id', '474ce11a67626bdda05c959d7d94176c'),
  ('seal_head', '2 905b6d059c745f6b207e6a8ca094bc424871eca21d495216e36b9784c382ab2c')
-- ----
INSERT INTO holdfast_operations
  (operation, version, defaults, declared_at)
VALUES
  ('echo', '1.0.0', '{"version":"1.0.0","queue":"default","max_attempts":5,"replay_attempts":5,"priority":0}', '2026-01-02T03:04:05.000000Z'),
  ('noop', '1.0.0', '{"version":"1.0.0","queue":"default","max_attempts":5,"replay_attempts":5,"priority":0}', '2026-01-02T03:04:05.000000Z')
-- ----
INSERT INTO holdfast_queues
  (queue, paused_at, paused_by, reason)
VALUES
  ('slow', '2026-01-02T03:05:10.000000Z', 'operator-1', 'too many')
-- ----
INSERT INTO holdfast_approvers
  (name, public_key, added_by, reason, grant_id, added_at, revoked_at, revoked_by)
VALUES
  ('approver-1', '0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a0a', 'operator-1', 'a key', NULL, '2026-01-02T03:05:09.000000Z', NULL, NULL)
-- ----
INSERT INTO holdfast_steps
  (step_id, run_id, number, name, state, version, outcome, created_at, updated_at, event, actor, reason, move_id, history_from)
VALUES
  (1, 1, 0, 'S2_SCHEMA', 'undone', 2, '{}', '2026-01-02T03:05:06.000000Z', '2026-01-02T03:05:07.000000Z', 'undo', 'operator-1', NULL, 'UiLWCx6mdqA', 1),
  (2, 1, 0, 'S2_SCHEMA', 'performed', 1, '{}', '2026-01-02T03:05:07.000000Z', '2026-01-02T03:05:07.000000Z', 'perform', 'operator-1', NULL, 'EKqeSe-UeiQ', 1)
-- ----
INSERT INTO holdfast_values
  (value_id, vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref, digest, standing, state, version, successor_code, successor_version, rollback_ref, run_id, created_at, updated_at, event, actor, reason, move_id, grant_id, history_from)
VALUES
  (2, 'vocab-echo.two', 'operations', 'echo.two', '1.0.0', 'operation', '{}', 'charter', '0000000000000000000000000000000000000000000000000000000000000000', 'in force', 'active', 1, NULL, NULL, NULL, 1, '2026-01-02T03:05:07.000000Z', '2026-01-02T03:05:07.000000Z', 'admit', 'operator-1', 'new', 'admit-echo.two', 3, 1),
  (1, 'vocab-echo', 'operations', 'echo', '1.0.0', 'operation', '{}', 'charter', '0000000000000000000000000000000000000000000000000000000000000000', 'in force', 'superseded', 2, 'echo.two', '1.0.0', NULL, 1, '2026-01-02T03:05:07.000000Z', '2026-01-02T03:05:07.000000Z', 'supersede', 'operator-1', 'new', 'supersede-echo', 4, 1)
-- ----
INSERT INTO holdfast_evidence
  (evidence_id, run_id, kind, subject, content, digest, actor, grant_id, voided_at, created_at)
VALUES
  (1, 1, 'readback', 'operations', '{"values":2}', '40064dfebbff9aadb2806e1c8bd7854b0885ba890596177df34a29d19ffdd197', 'operator-1', NULL, NULL, '2026-01-02T03:05:07.000000Z')
-- ----
INSERT INTO holdfast_switches
  (switch_id, name, state, version, thrown_by, created_at, updated_at, event, actor, reason, move_id, grant_id, history_from)
VALUES
  (1, 'replay', 'on', 1, 'operator-1', '2026-01-02T03:05:08.000000Z', '2026-01-02T03:05:08.000000Z', 'throw', 'operator-1', 'harm was seen', '2Ro0hSUhTcY', NULL, 1),
  (2, 'registration', 'off', 2, 'operator-1', '2026-01-02T03:05:08.000000Z', '2026-01-02T03:05:09.000000Z', 'lift', 'operator-1', 'it is over', 'lift-registration', 5, 1)
-- ----
INSERT INTO holdfast_jobs
  (job_id, operation, queue, priority, state, version, attempts, excused, run_at, due_at, resting, status, lease_owner, lease_token, lease_expires_at, last_attempt_at, started_at, progress, progress_note, cancel_asked_at, result, last_error_code, last_error_message, excuse_code, excuse_message, quarantine_code, replay_reason, updated_at, event, actor, reason, move_id, grant_id, history_from)
VALUES
  (1, 'echo', 'default', 0, 'succeeded', 3, 1, 0, '2026-01-02T03:04:06.000000Z', NULL, NULL, 'DONE', 'worker-1', 1767323048000000, NULL, '2026-01-02T03:04:08.000000Z', '2026-01-02T03:04:08.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:04:09.000000Z', 'succeed', 'worker-1', NULL, 'Ct7CT5gkcKM', NULL, 1),
  (2, 'echo', 'default', 0, 'quarantined', 4, 1, 0, '2026-01-02T03:04:07.000000Z', NULL, 'quarantined', NULL, 'worker-1', 1767323050000000, NULL, '2026-01-02T03:04:10.000000Z', '2026-01-02T03:04:10.000000Z', NULL, NULL, NULL, NULL, 'io_error', 'the disk said no', NULL, NULL, 'io_error', NULL, '2026-01-02T03:04:11.000000Z', 'quarantine', 'worker-1', NULL, 'B8imACTMNTs', NULL, 1),
  (3, 'echo', 'default', 0, 'succeeded', 3, 1, 0, '2026-01-02T03:04:13.000000Z', NULL, NULL, 'DONE', 'worker-1', 1767323054000000, NULL, '2026-01-02T03:04:14.000000Z', '2026-01-02T03:04:14.000000Z', NULL, NULL, NULL, '[1]', NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:04:15.000000Z', 'succeed', 'worker-1', NULL, 'GhWmvK6szko', NULL, 1),
  (4, 'noop', 'default', 0, 'pending', 1, 0, 0, '2026-01-02T03:04:15.000000Z', '2026-01-02T03:04:15.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:04:15.000000Z', 'submit', 'holdfast', NULL, '5sFC2Ly4Ybw', NULL, 1),
  (5, 'echo', 'default', 0, 'succeeded', 12, 4, 1, '2026-01-02T03:04:31.000000Z', NULL, NULL, 'DONE', 'worker-1', 1767323073000000, NULL, '2026-01-02T03:04:33.000000Z', '2026-01-02T03:04:33.000000Z', NULL, NULL, NULL, '"late"', 'lease_expired', 'the lease of worker-1 expired during attempt 2', NULL, NULL, NULL, NULL, '2026-01-02T03:04:35.000000Z', 'succeed', 'worker-1', NULL, 'i1zi_0qqPeY', NULL, 1),
  (6, 'echo', 'default', 0, 'failed', 3, 1, 0, '2026-01-02T03:04:36.000000Z', NULL, 'failed', NULL, 'worker-1', 1767323078000000, NULL, '2026-01-02T03:04:38.000000Z', '2026-01-02T03:04:38.000000Z', NULL, NULL, NULL, NULL, 'io_error', 'the disk said no', NULL, NULL, NULL, NULL, '2026-01-02T03:04:39.000000Z', 'fail', 'worker-1', NULL, '8c0Gab1oQIw', NULL, 1),
  (7, 'echo', 'default', 0, 'pending', 4, 1, 0, '2026-01-02T03:04:37.000000Z', '2026-01-02T03:04:37.000000Z', NULL, NULL, 'worker-1', 1767323080000000, NULL, '2026-01-02T03:04:40.000000Z', '2026-01-02T03:04:40.000000Z', NULL, NULL, NULL, NULL, 'io_error', 'the disk said no', NULL, NULL, NULL, 'incident', '2026-01-02T03:04:42.000000Z', 'replay', 'operator-1', 'as asked', 'LlQyJgOx07A', NULL, 1),
  (8, 'echo', 'default', 0, 'pending', 4, 1, 0, '2026-01-02T03:04:48.000000Z', '2026-01-02T03:04:48.000000Z', NULL, NULL, 'worker-1', 1767323084000000, NULL, '2026-01-02T03:04:44.000000Z', '2026-01-02T03:04:44.000000Z', NULL, NULL, NULL, NULL, 'io_error', 'the disk said no', NULL, NULL, NULL, NULL, '2026-01-02T03:04:45.000000Z', 'retry', 'worker-1', NULL, 'IdflkIduyBE', NULL, 1),
  (9, 'echo', 'default', 0, 'quarantined', 2, 0, 0, '2026-01-02T03:04:46.000000Z', NULL, 'quarantined', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'poison', 'it cannot be read', NULL, NULL, 'poison', NULL, '2026-01-02T03:04:49.000000Z', 'quarantine', 'operator-1', 'as asked', 'LwCzHIF-pzo', NULL, 1),
  (10, 'echo', 'default', 0, 'quarantined', 2, 0, 0, '2026-01-02T03:04:47.000000Z', NULL, 'quarantined', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'cancelled', NULL, NULL, NULL, 'cancelled', NULL, '2026-01-02T03:04:50.000000Z', 'cancel', 'operator-1', 'as asked', 'oHPIotyvSQY', NULL, 1),
  (11, 'echo', 'default', 0, 'pending', 3, 0, 0, '2026-01-02T03:04:48.000000Z', '2026-01-02T03:04:48.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, 'poison', NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:04:52.000000Z', 'release', 'operator-1', 'mended', 'consume-11', 1, 1),
  (12, 'echo', 'default', 0, 'quarantined', 4, 1, 0, '2026-01-02T03:04:53.000000Z', NULL, 'quarantined', NULL, 'worker-1', 1767323094000000, NULL, '2026-01-02T03:04:54.000000Z', '2026-01-02T03:04:54.000000Z', NULL, NULL, NULL, NULL, 'io_error', 'the disk said no', NULL, NULL, 'io_error', NULL, '2026-01-02T03:04:55.000000Z', 'quarantine', 'worker-1', NULL, 'z-6oV_FtMbQ', NULL, 1),
  (13, 'echo', 'default', 0, 'running', 2, 1, 0, '2026-01-02T03:04:56.000000Z', NULL, NULL, 'IN_PROGRESS', 'worker-1', 1767323099000000, '2026-01-03T03:04:59.000000Z', '2026-01-02T03:04:59.000000Z', '2026-01-02T03:04:59.000000Z', NULL, NULL, '2026-01-02T03:05:10.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:04:59.000000Z', 'claim', 'worker-1', NULL, 'opSH4MbJf2A', NULL, 1),
  (14, 'echo', 'default', 0, 'running', 2, 1, 0, '2026-01-02T03:04:57.000000Z', NULL, NULL, 'LEASED', 'worker-1', 1767323100000000, '2026-01-03T03:05:00.000000Z', '2026-01-02T03:05:00.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:05:00.000000Z', 'claim', 'worker-1', NULL, 'S_oO6OaY6CE', NULL, 1),
  (15, 'echo', 'default', 0, 'running', 2, 1, 0, '2026-01-02T03:04:58.000000Z', NULL, NULL, 'COMMITTED', 'worker-1', 1767323101000000, '2026-01-03T03:05:01.000000Z', '2026-01-02T03:05:01.000000Z', '2026-01-02T03:05:01.000000Z', NULL, NULL, NULL, 'null', NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:05:02.000000Z', 'commit', 'worker-1', NULL, 'dezvH6ZBGfs', NULL, 1),
  (16, 'echo', 'default', 0, 'pending', 1, 0, 0, '2026-01-02T03:05:03.000000Z', '2026-01-02T03:05:03.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:05:03.000000Z', 'submit', 'web', NULL, 'J71vkh5vP30', NULL, 1),
  (17, 'echo', 'default', 0, 'pending', 1, 0, 0, '2026-01-03T03:05:03.000000Z', '2026-01-03T03:05:03.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:05:04.000000Z', 'submit', 'web', NULL, 'EfaoK5Uk9D4', NULL, 1),
  (18, 'echo', 'default', 0, 'pending', 1, 0, 0, '2026-01-02T03:05:05.000000Z', '2026-01-02T03:05:05.000000Z', NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, '2026-01-02T03:05:05.000000Z', 'submit', 'web', NULL, 'yi2kTdXp3rk', NULL, 1)
-- ----
INSERT INTO holdfast_aborted
  (job_id, attempt, version, lease_owner, lease_token, lease_expires_at, excused, error_code, error_message, progress, progress_note, cancel_asked_at, started_at, finished_at, created_at, event, actor, reason, move_id)
VALUES
  (2, 1, 3, 'worker-1', 1767323050000000, '2026-01-03T03:04:10.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:10.000000Z', '2026-01-02T03:04:11.000000Z', '2026-01-02T03:04:10.000000Z', 'quarantine', 'worker-1', NULL, 'B8imACTMNTs'),
  (5, 1, 3, 'worker-1', 1767323057000000, '2026-01-03T03:04:17.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:17.000000Z', '2026-01-02T03:04:18.000000Z', '2026-01-02T03:04:17.000000Z', 'retry', 'worker-1', NULL, 'hdwPOWVDW6M'),
  (5, 2, 3, 'worker-1', 1767323059000000, '2026-01-02T03:04:29.000000Z', 0, 'lease_expired', 'the lease of worker-1 expired during attempt 2', NULL, NULL, NULL, '2026-01-02T03:04:19.000000Z', '2026-01-02T03:04:30.000000Z', '2026-01-02T03:04:19.000000Z', 'expire', 'reaper-1', NULL, '3WXim_gIpFU'),
  (5, 3, 3, 'worker-1', 1767323071000000, '2026-01-03T03:04:31.000000Z', 1, 'worker_stopped', NULL, NULL, NULL, NULL, '2026-01-02T03:04:31.000000Z', '2026-01-02T03:04:32.000000Z', '2026-01-02T03:04:31.000000Z', 'give_back', 'worker-1', NULL, 'xsqFDZYXDiM'),
  (6, 1, 3, 'worker-1', 1767323078000000, '2026-01-03T03:04:38.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:38.000000Z', '2026-01-02T03:04:39.000000Z', '2026-01-02T03:04:38.000000Z', 'fail', 'worker-1', NULL, '8c0Gab1oQIw'),
  (7, 1, 3, 'worker-1', 1767323080000000, '2026-01-03T03:04:40.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:40.000000Z', '2026-01-02T03:04:41.000000Z', '2026-01-02T03:04:40.000000Z', 'fail', 'worker-1', NULL, 'APkbDWd7KU0'),
  (8, 1, 3, 'worker-1', 1767323084000000, '2026-01-03T03:04:44.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:44.000000Z', '2026-01-02T03:04:45.000000Z', '2026-01-02T03:04:44.000000Z', 'retry', 'worker-1', NULL, 'IdflkIduyBE'),
  (12, 1, 3, 'worker-1', 1767323094000000, '2026-01-03T03:04:54.000000Z', 0, 'io_error', 'the disk said no', NULL, NULL, NULL, '2026-01-02T03:04:54.000000Z', '2026-01-02T03:04:55.000000Z', '2026-01-02T03:04:54.000000Z', 'quarantine', 'worker-1', NULL, 'z-6oV_FtMbQ')
-- ----
INSERT INTO holdfast_checkpoints
  (job_id, name, value, exec_id, created_at)
VALUES
  (3, 'page', '1', 3000001, '2026-01-02T03:04:15.000000Z')
-- ----
INSERT INTO holdfast_journal
  (seq, epoch, xid, machine, subject, version, source, target, event, actor, reason, attempt, move_id, grant_id, maintenance_id, at, status_from, status_to)
VALUES
  (1, 1, 0, 'JOB', 1, 1, NULL, 'pending', 'submit', 'web', NULL, 0, '2cWJiWhp-NY', NULL, NULL, '2026-01-02T03:04:06.000000Z', NULL, NULL),
  (2, 1, 0, 'JOB', 2, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'B4rbVklPQCs', NULL, NULL, '2026-01-02T03:04:07.000000Z', NULL, NULL),
  (3, 1, 0, 'JOB', 1, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'r4n5cpGzZUQ', NULL, NULL, '2026-01-02T03:04:08.000000Z', NULL, 'IN_PROGRESS'),
  (4, 1, 0, 'JOB', 1, 3, 'running', 'succeeded', 'succeed', 'worker-1', NULL, 1, 'Ct7CT5gkcKM', NULL, NULL, '2026-01-02T03:04:09.000000Z', 'IN_PROGRESS', 'DONE'),
  (5, 1, 0, 'JOB', 2, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'e6-pla7vNvQ', NULL, NULL, '2026-01-02T03:04:10.000000Z', NULL, 'IN_PROGRESS'),
  (6, 1, 0, 'JOB', 2, 4, 'running', 'quarantined', 'quarantine', 'worker-1', NULL, 1, 'B8imACTMNTs', NULL, NULL, '2026-01-02T03:04:11.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (7, 1, 0, 'MAINTENANCE', 1, 1, NULL, 'open', 'open', 'keeper', 'retention', NULL, 'maintenance-1', NULL, 1, '2026-01-02T03:04:12.000000Z', NULL, NULL),
  (8, 1, 0, 'MAINTENANCE', 1, 2, 'open', 'open', 'slim', 'keeper', '{"jobs":[1,2]}', NULL, 'maintenance-1', NULL, 1, '2026-01-02T03:04:12.000000Z', NULL, NULL),
  (9, 1, 0, 'MAINTENANCE', 1, 3, 'open', 'shut', 'shut', 'keeper', 'retention', NULL, 'maintenance-1', NULL, 1, '2026-01-02T03:04:12.000000Z', NULL, NULL),
  (10, 1, 0, 'JOB', 3, 1, NULL, 'pending', 'submit', 'web', NULL, 0, '87j0yrPh1KA', NULL, NULL, '2026-01-02T03:04:13.000000Z', NULL, NULL),
  (11, 1, 0, 'JOB', 3, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'zAfKWjrYf6M', NULL, NULL, '2026-01-02T03:04:14.000000Z', NULL, 'IN_PROGRESS'),
  (12, 1, 0, 'JOB', 3, 3, 'running', 'succeeded', 'succeed', 'worker-1', NULL, 1, 'GhWmvK6szko', NULL, NULL, '2026-01-02T03:04:15.000000Z', 'IN_PROGRESS', 'DONE'),
  (13, 1, 0, 'JOB', 4, 1, NULL, 'pending', 'submit', 'holdfast', NULL, 0, '5sFC2Ly4Ybw', NULL, NULL, '2026-01-02T03:04:15.000000Z', NULL, NULL),
  (14, 1, 0, 'JOB', 5, 1, NULL, 'pending', 'submit', 'web', NULL, 0, '5Di9VPXl8rE', NULL, NULL, '2026-01-02T03:04:16.000000Z', NULL, NULL),
  (15, 1, 0, 'JOB', 5, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'jS_-5r2e5v4', NULL, NULL, '2026-01-02T03:04:17.000000Z', NULL, 'IN_PROGRESS'),
  (16, 1, 0, 'JOB', 5, 4, 'running', 'pending', 'retry', 'worker-1', NULL, 1, 'hdwPOWVDW6M', NULL, NULL, '2026-01-02T03:04:18.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (17, 1, 0, 'JOB', 5, 5, 'pending', 'running', 'claim', 'worker-1', NULL, 2, 'TY1rudqi1BI', NULL, NULL, '2026-01-02T03:04:19.000000Z', NULL, 'IN_PROGRESS'),
  (18, 1, 0, 'JOB', 5, 7, 'running', 'pending', 'expire', 'reaper-1', NULL, 2, '3WXim_gIpFU', NULL, NULL, '2026-01-02T03:04:30.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (19, 1, 0, 'JOB', 5, 8, 'pending', 'running', 'claim', 'worker-1', NULL, 3, 'NjJr8jnVvcg', NULL, NULL, '2026-01-02T03:04:31.000000Z', NULL, 'IN_PROGRESS'),
  (20, 1, 0, 'JOB', 5, 10, 'running', 'pending', 'give_back', 'worker-1', NULL, 3, 'xsqFDZYXDiM', NULL, NULL, '2026-01-02T03:04:32.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (21, 1, 0, 'JOB', 5, 11, 'pending', 'running', 'claim', 'worker-1', NULL, 4, 'zWAXnHiZFNk', NULL, NULL, '2026-01-02T03:04:33.000000Z', NULL, 'IN_PROGRESS'),
  (22, 1, 0, 'EXECUTION', 5000004, 3, 'IN_PROGRESS', 'COMMITTED', 'commit', 'worker-1', NULL, 4, 'AFCJMtrnY2I', NULL, NULL, '2026-01-02T03:04:34.000000Z', NULL, NULL),
  (23, 1, 0, 'JOB', 5, 12, 'running', 'succeeded', 'succeed', 'worker-1', NULL, 4, 'i1zi_0qqPeY', NULL, NULL, '2026-01-02T03:04:35.000000Z', 'COMMITTED', 'DONE'),
  (24, 1, 0, 'JOB', 6, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'tTlk5KO2YK4', NULL, NULL, '2026-01-02T03:04:36.000000Z', NULL, NULL),
  (25, 1, 0, 'JOB', 7, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'qS-y-Rck6Xs', NULL, NULL, '2026-01-02T03:04:37.000000Z', NULL, NULL),
  (26, 1, 0, 'JOB', 6, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'FxebsmhZfX4', NULL, NULL, '2026-01-02T03:04:38.000000Z', NULL, 'IN_PROGRESS'),
  (27, 1, 0, 'JOB', 6, 3, 'running', 'failed', 'fail', 'worker-1', NULL, 1, '8c0Gab1oQIw', NULL, NULL, '2026-01-02T03:04:39.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (28, 1, 0, 'JOB', 7, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, '7cZ41i6F8q0', NULL, NULL, '2026-01-02T03:04:40.000000Z', NULL, 'IN_PROGRESS'),
  (29, 1, 0, 'JOB', 7, 3, 'running', 'failed', 'fail', 'worker-1', NULL, 1, 'APkbDWd7KU0', NULL, NULL, '2026-01-02T03:04:41.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (30, 1, 0, 'JOB', 7, 4, 'failed', 'pending', 'replay', 'operator-1', 'as asked', 1, 'LlQyJgOx07A', NULL, NULL, '2026-01-02T03:04:42.000000Z', NULL, NULL),
  (31, 1, 0, 'JOB', 8, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'cLtxTsYNlm0', NULL, NULL, '2026-01-02T03:04:43.000000Z', NULL, NULL),
  (32, 1, 0, 'JOB', 8, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'ptuk1E98mRg', NULL, NULL, '2026-01-02T03:04:44.000000Z', NULL, 'IN_PROGRESS'),
  (33, 1, 0, 'JOB', 8, 4, 'running', 'pending', 'retry', 'worker-1', NULL, 1, 'IdflkIduyBE', NULL, NULL, '2026-01-02T03:04:45.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (34, 1, 0, 'JOB', 9, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'GO9fIdhJvd0', NULL, NULL, '2026-01-02T03:04:46.000000Z', NULL, NULL),
  (35, 1, 0, 'JOB', 10, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'aWNusgFnu6Y', NULL, NULL, '2026-01-02T03:04:47.000000Z', NULL, NULL),
  (36, 1, 0, 'JOB', 11, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'ymaEgsfqz3o', NULL, NULL, '2026-01-02T03:04:48.000000Z', NULL, NULL),
  (37, 1, 0, 'JOB', 9, 2, 'pending', 'quarantined', 'quarantine', 'operator-1', 'as asked', 0, 'LwCzHIF-pzo', NULL, NULL, '2026-01-02T03:04:49.000000Z', NULL, NULL),
  (38, 1, 0, 'JOB', 10, 2, 'pending', 'quarantined', 'cancel', 'operator-1', 'as asked', 0, 'oHPIotyvSQY', NULL, NULL, '2026-01-02T03:04:50.000000Z', NULL, NULL),
  (39, 1, 0, 'JOB', 11, 2, 'pending', 'quarantined', 'quarantine', 'operator-1', 'as asked', 0, 'uiHtAB28BGg', NULL, NULL, '2026-01-02T03:04:51.000000Z', NULL, NULL),
  (40, 1, 0, 'GRANT', 1, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'ZRlw4EV_11E', 1, NULL, '2026-01-02T03:04:51.000000Z', NULL, NULL),
  (41, 1, 0, 'GRANT', 1, 2, 'draft', 'active', 'approve', 'approver-1', 'it was mended', NULL, 'approve-1', 1, NULL, '2026-01-02T03:04:52.000000Z', NULL, NULL),
  (42, 1, 0, 'GRANT', 1, 3, 'active', 'consumed', 'consume', 'operator-1', 'it was mended', NULL, 'consume-11', 1, NULL, '2026-01-02T03:04:52.000000Z', NULL, NULL),
  (43, 1, 0, 'JOB', 11, 3, 'quarantined', 'pending', 'release', 'operator-1', 'mended', 0, 'consume-11', 1, NULL, '2026-01-02T03:04:52.000000Z', NULL, NULL),
  (44, 1, 0, 'JOB', 12, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'Pimpsn4LN8M', NULL, NULL, '2026-01-02T03:04:53.000000Z', NULL, NULL),
  (45, 1, 0, 'JOB', 12, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'qkJIPc1xoRs', NULL, NULL, '2026-01-02T03:04:54.000000Z', NULL, 'IN_PROGRESS'),
  (46, 1, 0, 'JOB', 12, 4, 'running', 'quarantined', 'quarantine', 'worker-1', NULL, 1, 'z-6oV_FtMbQ', NULL, NULL, '2026-01-02T03:04:55.000000Z', 'IN_PROGRESS', 'ABORTED'),
  (47, 1, 0, 'JOB', 13, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'maK1a3MJHOU', NULL, NULL, '2026-01-02T03:04:56.000000Z', NULL, NULL),
  (48, 1, 0, 'JOB', 14, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'JxunzkJggqc', NULL, NULL, '2026-01-02T03:04:57.000000Z', NULL, NULL),
  (49, 1, 0, 'JOB', 15, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'S6nMygaPmXs', NULL, NULL, '2026-01-02T03:04:58.000000Z', NULL, NULL),
  (50, 1, 0, 'JOB', 13, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'opSH4MbJf2A', NULL, NULL, '2026-01-02T03:04:59.000000Z', NULL, 'IN_PROGRESS'),
  (51, 1, 0, 'JOB', 14, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'S_oO6OaY6CE', NULL, NULL, '2026-01-02T03:05:00.000000Z', NULL, 'LEASED'),
  (52, 1, 0, 'JOB', 15, 2, 'pending', 'running', 'claim', 'worker-1', NULL, 1, 'IEvUDU2o94I', NULL, NULL, '2026-01-02T03:05:01.000000Z', NULL, 'IN_PROGRESS'),
  (53, 1, 0, 'EXECUTION', 15000001, 3, 'IN_PROGRESS', 'COMMITTED', 'commit', 'worker-1', NULL, 1, 'dezvH6ZBGfs', NULL, NULL, '2026-01-02T03:05:02.000000Z', NULL, NULL),
  (54, 1, 0, 'JOB', 16, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'J71vkh5vP30', NULL, NULL, '2026-01-02T03:05:03.000000Z', NULL, NULL),
  (55, 1, 0, 'JOB', 17, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'EfaoK5Uk9D4', NULL, NULL, '2026-01-02T03:05:04.000000Z', NULL, NULL),
  (56, 1, 0, 'JOB', 18, 1, NULL, 'pending', 'submit', 'web', NULL, 0, 'yi2kTdXp3rk', NULL, NULL, '2026-01-02T03:05:05.000000Z', NULL, NULL),
  (57, 1, 0, 'GRANT', 2, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'TWMH87MEbLg', 2, NULL, '2026-01-02T03:05:05.000000Z', NULL, NULL),
  (58, 1, 0, 'GRANT', 3, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'UirI-7Nuy-k', 3, NULL, '2026-01-02T03:05:05.000000Z', NULL, NULL),
  (59, 1, 0, 'GRANT', 3, 2, 'draft', 'active', 'approve', 'approver-1', 'it was mended', NULL, 'approve-3', 3, NULL, '2026-01-02T03:05:06.000000Z', NULL, NULL),
  (60, 1, 0, 'GRANT', 3, 3, 'active', 'consumed', 'consume', 'operator-1', 'it was mended', NULL, 'consume-build', 3, NULL, '2026-01-02T03:05:06.000000Z', NULL, NULL),
  (61, 1, 0, 'PROCEDURE', 1, 1, NULL, 'planned', 'plan', 'operator-1', 'new', NULL, 'UwQLoJe5Qys', NULL, NULL, '2026-01-02T03:05:06.000000Z', NULL, NULL),
  (62, 1, 0, 'PROCEDURE', 1, 2, 'planned', 'running', 'run', 'operator-1', NULL, NULL, 'LmXAF3uOBCk', NULL, NULL, '2026-01-02T03:05:06.000000Z', NULL, NULL),
  (63, 1, 0, 'STEP', 1, 1, NULL, 'performed', 'perform', 'operator-1', NULL, NULL, 'TXCqjcKv4Ug', NULL, NULL, '2026-01-02T03:05:06.000000Z', NULL, NULL),
  (64, 1, 0, 'STEP', 1, 2, 'performed', 'undone', 'undo', 'operator-1', NULL, NULL, 'UiLWCx6mdqA', NULL, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (65, 1, 0, 'STEP', 2, 1, NULL, 'performed', 'perform', 'operator-1', NULL, NULL, 'EKqeSe-UeiQ', NULL, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (66, 1, 0, 'VALUE', 1, 1, NULL, 'active', 'admit', 'operator-1', 'new', NULL, 'admit-echo', 3, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (67, 1, 0, 'VALUE', 2, 1, NULL, 'active', 'admit', 'operator-1', 'new', NULL, 'admit-echo.two', 3, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (68, 1, 0, 'GRANT', 4, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'ybmCyP9E-B8', 4, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (69, 1, 0, 'GRANT', 4, 2, 'draft', 'active', 'approve', 'approver-1', 'it was mended', NULL, 'approve-4', 4, NULL, '2026-01-02T03:05:08.000000Z', NULL, NULL),
  (70, 1, 0, 'GRANT', 4, 3, 'active', 'consumed', 'consume', 'operator-1', 'it was mended', NULL, 'supersede-echo', 4, NULL, '2026-01-02T03:05:08.000000Z', NULL, NULL),
  (71, 1, 0, 'VALUE', 1, 2, 'active', 'superseded', 'supersede', 'operator-1', 'new', NULL, 'supersede-echo', 4, NULL, '2026-01-02T03:05:07.000000Z', NULL, NULL),
  (72, 1, 0, 'SWITCH', 1, 1, NULL, 'on', 'throw', 'operator-1', 'harm was seen', NULL, '2Ro0hSUhTcY', NULL, NULL, '2026-01-02T03:05:08.000000Z', NULL, NULL),
  (73, 1, 0, 'SWITCH', 2, 1, NULL, 'on', 'throw', 'operator-1', 'harm was seen', NULL, 'cDLxfEXXPGI', NULL, NULL, '2026-01-02T03:05:08.000000Z', NULL, NULL),
  (74, 1, 0, 'GRANT', 5, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'uq5VFEueWdk', 5, NULL, '2026-01-02T03:05:08.000000Z', NULL, NULL),
  (75, 1, 0, 'GRANT', 5, 2, 'draft', 'active', 'approve', 'approver-1', 'it was mended', NULL, 'approve-5', 5, NULL, '2026-01-02T03:05:09.000000Z', NULL, NULL),
  (76, 1, 0, 'GRANT', 5, 3, 'active', 'consumed', 'consume', 'operator-1', 'it was mended', NULL, 'lift-registration', 5, NULL, '2026-01-02T03:05:09.000000Z', NULL, NULL),
  (77, 1, 0, 'SWITCH', 2, 2, 'on', 'off', 'lift', 'operator-1', 'it is over', NULL, 'lift-registration', 5, NULL, '2026-01-02T03:05:09.000000Z', NULL, NULL),
  (78, 1, 0, 'GRANT', 6, 1, NULL, 'draft', 'request', 'operator-1', 'it was mended', NULL, 'lcgvFRU47OA', 6, NULL, '2026-01-02T03:05:09.000000Z', NULL, NULL),
  (79, 1, 0, 'GRANT', 6, 2, 'draft', 'active', 'approve', 'approver-1', 'it was mended', NULL, 'approve-6', 6, NULL, '2026-01-02T03:05:10.000000Z', NULL, NULL)
-- ----
INSERT INTO holdfast_machines
  (machine, digest)
VALUES
  ('EXECUTION', '4d443d487fdac5846698521d4aa91c2bfa442be6bc1286a310736af593a2b0d2'),
  ('GRANT', 'af2d793dc1780a0f78b21129a7711f60eae5d8689eac63684e8deb438f80ac31'),
  ('JOB', '605fd8a3e30ad66bf4701c34e1dbc65c7021ac90b813b447d2f1f5ca1ec66025'),
  ('PROCEDURE', '089803ef79bf71f02e391dda07a68994b0320c7f2dd5c5e53c56832d5713020e'),
  ('STEP', '20531868b313506cc0bd3877d64666f0ca7646536d3ec269a26085774b3e89c7'),
  ('SWITCH', 'd007901754746ba842023d78c0734b909711e96cc88b10fc073c2be92f830949'),
  ('VALUE', '9a2e1a7baf5fd9f143414ead48a39e04f08533b2b20ce06248a66a8b22703709')
-- ----
INSERT INTO holdfast_transitions
  (machine, event, step, source, target, path, rule)
VALUES
  ('EXECUTION', 'abort', 1, 'LEASED', 'ABORTED', 'LEASED → ABORTED', 'routine'),
  ('EXECUTION', 'abort', 1, 'IN_PROGRESS', 'ABORTED', 'IN_PROGRESS → ABORTED', 'routine'),
  ('EXECUTION', 'begin', 1, NULL, 'LEASED', '∅ → LEASED → IN_PROGRESS', 'routine'),
  ('EXECUTION', 'begin', 2, 'LEASED', 'IN_PROGRESS', '∅ → LEASED → IN_PROGRESS', 'routine'),
  ('EXECUTION', 'commit', 1, 'IN_PROGRESS', 'COMMITTED', 'IN_PROGRESS → COMMITTED', 'routine'),
  ('EXECUTION', 'complete', 1, 'IN_PROGRESS', 'COMMITTED', 'IN_PROGRESS → COMMITTED → DONE', 'routine'),
  ('EXECUTION', 'complete', 2, 'COMMITTED', 'DONE', 'IN_PROGRESS → COMMITTED → DONE', 'routine'),
  ('EXECUTION', 'finish', 1, 'COMMITTED', 'DONE', 'COMMITTED → DONE', 'routine'),
  ('EXECUTION', 'lease', 1, NULL, 'LEASED', '∅ → LEASED', 'routine'),
  ('EXECUTION', 'start', 1, 'LEASED', 'IN_PROGRESS', 'LEASED → IN_PROGRESS', 'routine'),
  ('GRANT', 'approve', 1, 'draft', 'active', 'draft → active', 'routine'),
  ('GRANT', 'consume', 1, 'active', 'consumed', 'active → consumed', 'routine'),
  ('GRANT', 'expire', 1, 'active', 'expired', 'active → expired', 'routine'),
  ('GRANT', 'request', 1, NULL, 'draft', '∅ → draft', 'routine'),
  ('GRANT', 'revoke', 1, 'draft', 'revoked', 'draft → revoked', 'routine'),
  ('GRANT', 'revoke', 1, 'active', 'revoked', 'active → revoked', 'routine'),
  ('JOB', 'cancel', 1, 'running', 'failed', 'running → failed → quarantined', 'routine'),
  ('JOB', 'cancel', 2, 'failed', 'quarantined', 'running → failed → quarantined', 'routine'),
  ('JOB', 'cancel', 1, 'failed', 'quarantined', 'failed → quarantined', 'routine'),
  ('JOB', 'cancel', 1, 'pending', 'quarantined', 'pending → quarantined', 'routine'),
  ('JOB', 'claim', 1, 'pending', 'running', 'pending → running', 'routine'),
  ('JOB', 'expire', 1, 'running', 'failed', 'running → failed → pending', 'routine'),
  ('JOB', 'expire', 2, 'failed', 'pending', 'running → failed → pending', 'routine'),
  ('JOB', 'fail', 1, 'running', 'failed', 'running → failed', 'routine'),
  ('JOB', 'give_back', 1, 'running', 'failed', 'running → failed → pending', 'routine'),
  ('JOB', 'give_back', 2, 'failed', 'pending', 'running → failed → pending', 'routine'),
  ('JOB', 'quarantine', 1, 'running', 'failed', 'running → failed → quarantined', 'routine'),
  ('JOB', 'quarantine', 2, 'failed', 'quarantined', 'running → failed → quarantined', 'routine'),
  ('JOB', 'quarantine', 1, 'failed', 'quarantined', 'failed → quarantined', 'routine'),
  ('JOB', 'quarantine', 1, 'pending', 'quarantined', 'pending → quarantined', 'routine'),
  ('JOB', 'release', 1, 'quarantined', 'pending', 'quarantined → pending', 'governed'),
  ('JOB', 'replay', 1, 'failed', 'pending', 'failed → pending', 'routine'),
  ('JOB', 'retry', 1, 'running', 'failed', 'running → failed → pending', 'routine'),
  ('JOB', 'retry', 2, 'failed', 'pending', 'running → failed → pending', 'routine'),
  ('JOB', 'retry', 1, 'failed', 'pending', 'failed → pending', 'routine'),
  ('JOB', 'submit', 1, NULL, 'pending', '∅ → pending', 'routine'),
  ('JOB', 'succeed', 1, 'running', 'succeeded', 'running → succeeded', 'routine'),
  ('PROCEDURE', 'abort', 1, 'planned', 'stopped', 'planned → stopped', 'routine'),
  ('PROCEDURE', 'abort', 1, 'running', 'stopped', 'running → stopped', 'routine'),
  ('PROCEDURE', 'compensate', 1, 'running', 'compensating', 'running → compensating', 'routine'),
  ('PROCEDURE', 'finish', 1, 'running', 'done', 'running → done', 'routine'),
  ('PROCEDURE', 'plan', 1, NULL, 'planned', '∅ → planned', 'routine'),
  ('PROCEDURE', 'resume', 1, 'stopped', 'running', 'stopped → running', 'routine'),
  ('PROCEDURE', 'run', 1, 'planned', 'running', 'planned → running', 'routine'),
  ('PROCEDURE', 'stop', 1, 'compensating', 'stopped', 'compensating → stopped', 'routine'),
  ('STEP', 'perform', 1, NULL, 'performed', '∅ → performed', 'routine'),
  ('STEP', 'undo', 1, 'performed', 'undone', 'performed → undone', 'routine'),
  ('SWITCH', 'lift', 1, 'on', 'off', 'on → off', 'governed'),
  ('SWITCH', 'throw', 1, NULL, 'on', '∅ → on', 'routine'),
  ('VALUE', 'admit', 1, NULL, 'active', '∅ → active', 'governed'),
  ('VALUE', 'retire', 1, 'active', 'retired', 'active → retired', 'governed'),
  ('VALUE', 'supersede', 1, 'active', 'superseded', 'active → superseded', 'governed')
-- ----
INSERT INTO holdfast_migrations
  (number, name, digest, applied_at)
VALUES
  (1, 'ledger', 'e60e848103c436bf2ffbf13112cecb0619075cfe657489266a8716c236f61263', '2026-01-02T03:04:05+00:00')
-- ----
INSERT INTO holdfast_counts
  (operation, queue, state, n)
VALUES
  ('echo', 'default', 'pending', 0),
  ('echo', 'default', 'quarantined', 1),
  ('echo', 'default', 'running', 0),
  ('echo', 'default', 'succeeded', 3),
  ('noop', 'default', 'pending', 1)
-- ----
INSERT INTO holdfast_count_deltas
  (delta_id, operation, queue, source, target, n)
VALUES
  (20, 'echo', 'default', NULL, 'pending', 1),
  (21, 'echo', 'default', NULL, 'pending', 1),
  (22, 'echo', 'default', 'pending', 'running', 1),
  (23, 'echo', 'default', 'running', 'failed', 1),
  (24, 'echo', 'default', 'pending', 'running', 1),
  (25, 'echo', 'default', 'running', 'failed', 1),
  (26, 'echo', 'default', 'failed', 'pending', 1),
  (27, 'echo', 'default', NULL, 'pending', 1),
  (28, 'echo', 'default', 'pending', 'running', 1),
  (29, 'echo', 'default', 'running', 'pending', 1),
  (30, 'echo', 'default', NULL, 'pending', 1),
  (31, 'echo', 'default', NULL, 'pending', 1),
  (32, 'echo', 'default', NULL, 'pending', 1),
  (33, 'echo', 'default', 'pending', 'quarantined', 1),
  (34, 'echo', 'default', 'pending', 'quarantined', 1),
  (35, 'echo', 'default', 'pending', 'quarantined', 1),
  (36, 'echo', 'default', 'quarantined', 'pending', 1),
  (37, 'echo', 'default', NULL, 'pending', 1),
  (38, 'echo', 'default', 'pending', 'running', 1),
  (39, 'echo', 'default', 'running', 'quarantined', 1),
  (40, 'echo', 'default', NULL, 'pending', 1),
  (41, 'echo', 'default', NULL, 'pending', 1),
  (42, 'echo', 'default', NULL, 'pending', 1),
  (43, 'echo', 'default', 'pending', 'running', 1),
  (44, 'echo', 'default', 'pending', 'running', 1),
  (45, 'echo', 'default', 'pending', 'running', 1),
  (46, 'echo', 'default', NULL, 'pending', 1),
  (47, 'echo', 'default', NULL, 'pending', 1),
  (48, 'echo', 'default', NULL, 'pending', 1)
-- ----
INSERT INTO sqlite_sequence (name, seq) VALUES ('holdfast_maintenance', 1)
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_once
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_move
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_born
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_born_count
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_stepped
-- ----
DROP TRIGGER IF EXISTS holdfast_jobs_aborted
-- ----
DROP TRIGGER IF EXISTS holdfast_calls_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_calls_once
-- ----
DROP TRIGGER IF EXISTS holdfast_calls_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_aborted_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_aborted_update
-- ----
DROP TRIGGER IF EXISTS holdfast_aborted_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_once
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_move
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_born
-- ----
DROP TRIGGER IF EXISTS holdfast_grants_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_once
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_move
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_born
-- ----
DROP TRIGGER IF EXISTS holdfast_procedures_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_once
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_move
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_born
-- ----
DROP TRIGGER IF EXISTS holdfast_steps_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_values_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_values_once
-- ----
DROP TRIGGER IF EXISTS holdfast_values_move
-- ----
DROP TRIGGER IF EXISTS holdfast_values_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_values_born
-- ----
DROP TRIGGER IF EXISTS holdfast_values_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_birth
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_once
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_move
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_born
-- ----
DROP TRIGGER IF EXISTS holdfast_switches_moved
-- ----
DROP TRIGGER IF EXISTS holdfast_journal_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_journal_update
-- ----
DROP TRIGGER IF EXISTS holdfast_journal_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_seals_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_seals_update
-- ----
DROP TRIGGER IF EXISTS holdfast_seals_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_archives_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_archives_update
-- ----
DROP TRIGGER IF EXISTS holdfast_archives_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_evidence_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_evidence_update
-- ----
DROP TRIGGER IF EXISTS holdfast_evidence_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_leases_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_leases_update
-- ----
DROP TRIGGER IF EXISTS holdfast_leases_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_meta_insert
-- ----
DROP TRIGGER IF EXISTS holdfast_meta_update
-- ----
DROP TRIGGER IF EXISTS holdfast_meta_delete
-- ----
DROP TRIGGER IF EXISTS holdfast_maintenance_opened
-- ----
DROP TRIGGER IF EXISTS holdfast_maintenance_shut
-- ----
DROP TRIGGER IF EXISTS holdfast_maintenance_one
-- ----
DROP TRIGGER IF EXISTS holdfast_maintenance_update
-- ----
CREATE TRIGGER holdfast_jobs_birth BEFORE INSERT ON holdfast_jobs
WHEN (
    EXISTS (SELECT 1 FROM holdfast_jobs WHERE job_id = NEW.job_id AND 1)
  ) OR (
    (
      NOT (
        ((NEW.state = 'pending' AND NEW.event = 'submit' AND NEW.version = 1))
        AND NEW.attempts = 0
        AND NEW.excused = 0
        AND NEW.status IS NULL
        AND NEW.lease_token IS NULL
        AND NEW.lease_owner IS NULL
        AND NEW.result IS NULL
        AND NEW.last_error_code IS NULL
        AND NEW.quarantine_code IS NULL
        AND NEW.grant_id IS NULL
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_jobs WHERE job_id = NEW.job_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (
      NOT (
        ((NEW.state = 'pending' AND NEW.event = 'submit' AND NEW.version = 1))
        AND NEW.attempts = 0
        AND NEW.excused = 0
        AND NEW.status IS NULL
        AND NEW.lease_token IS NULL
        AND NEW.lease_owner IS NULL
        AND NEW.result IS NULL
        AND NEW.last_error_code IS NULL
        AND NEW.quarantine_code IS NULL
        AND NEW.grant_id IS NULL
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_jobs_once BEFORE UPDATE OF
    operation,
    queue,
    priority,
    history_from
  ON holdfast_jobs
WHEN (
    (
      NEW.operation IS DISTINCT FROM OLD.operation
      OR NEW.queue IS DISTINCT FROM OLD.queue
      OR NEW.priority IS DISTINCT FROM OLD.priority
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.operation IS DISTINCT FROM OLD.operation
      OR NEW.queue IS DISTINCT FROM OLD.queue
      OR NEW.priority IS DISTINCT FROM OLD.priority
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_jobs_move BEFORE UPDATE ON holdfast_jobs
WHEN (
    NEW.job_id <> OLD.job_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (
      NEW.version < OLD.version
      OR NEW.attempts < OLD.attempts
      OR NEW.excused < OLD.excused
      OR NEW.lease_token < OLD.lease_token
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
    AND (
      NEW.move_id = OLD.move_id
      OR NEW.updated_at < OLD.updated_at
      OR (NEW.state <> OLD.state AND NEW.version <= OLD.version)
    )
  ) OR (
    (
      (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NOT (
          (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'succeeded'
            AND OLD.status IN ('IN_PROGRESS', 'COMMITTED')
            AND NEW.status = 'DONE'
            AND NEW.event IN ('succeed')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('LEASED')
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('start')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'LEASED'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'failed'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('fail')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'pending'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'expire', 'give_back')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'replay')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'quarantined'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'quarantined'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('release')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('IN_PROGRESS')
            AND NEW.status = 'COMMITTED'
            AND NEW.event IN ('commit')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
        )
      )
      OR (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.version <> OLD.version
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
    )
  ) OR (
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id AND c.payload IS NULL)
  ) OR (
    (
      (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND (
          NEW.attempts IS DISTINCT FROM OLD.attempts
          OR NEW.excused IS DISTINCT FROM OLD.excused
          OR NEW.lease_token IS DISTINCT FROM OLD.lease_token
          OR NEW.run_at IS DISTINCT FROM OLD.run_at
          OR NEW.due_at IS DISTINCT FROM OLD.due_at
          OR NEW.resting IS DISTINCT FROM OLD.resting
          OR NEW.lease_owner IS DISTINCT FROM OLD.lease_owner
          OR NEW.last_attempt_at IS DISTINCT FROM OLD.last_attempt_at
          OR NEW.started_at IS DISTINCT FROM OLD.started_at
          OR NEW.result IS DISTINCT FROM OLD.result
          OR NEW.last_error_code IS DISTINCT FROM OLD.last_error_code
          OR NEW.last_error_message IS DISTINCT FROM OLD.last_error_message
          OR NEW.excuse_code IS DISTINCT FROM OLD.excuse_code
          OR NEW.excuse_message IS DISTINCT FROM OLD.excuse_message
          OR NEW.quarantine_code IS DISTINCT FROM OLD.quarantine_code
          OR NEW.replay_reason IS DISTINCT FROM OLD.replay_reason
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR (
            OLD.state <> 'running'
            AND (
              NEW.progress IS DISTINCT FROM OLD.progress
              OR NEW.progress_note IS DISTINCT FROM OLD.progress_note
              OR NEW.cancel_asked_at IS DISTINCT FROM OLD.cancel_asked_at
            )
          )
          OR (OLD.cancel_asked_at IS NOT NULL AND NEW.cancel_asked_at IS DISTINCT FROM OLD.cancel_asked_at)
        )
      )
      OR (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.result IS DISTINCT FROM OLD.result
        AND (OLD.result IS NOT NULL OR NEW.status IS NULL OR NEW.status NOT IN ('COMMITTED', 'DONE'))
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.job_id <> OLD.job_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (
      NEW.version < OLD.version
      OR NEW.attempts < OLD.attempts
      OR NEW.excused < OLD.excused
      OR NEW.lease_token < OLD.lease_token
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
    AND (
      NEW.move_id = OLD.move_id
      OR NEW.updated_at < OLD.updated_at
      OR (NEW.state <> OLD.state AND NEW.version <= OLD.version)
    );
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NOT (
          (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'succeeded'
            AND OLD.status IN ('IN_PROGRESS', 'COMMITTED')
            AND NEW.status = 'DONE'
            AND NEW.event IN ('succeed')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('LEASED')
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('start')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'LEASED'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'failed'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('fail')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'pending'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'expire', 'give_back')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'replay')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'quarantined'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'quarantined'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('release')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('IN_PROGRESS')
            AND NEW.status = 'COMMITTED'
            AND NEW.event IN ('commit')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
        )
      )
      OR (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.version <> OLD.version
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
    );
  SELECT RAISE(ABORT, 'HF012 retention has deleted the payload, so the record cannot change its state') WHERE
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id AND c.payload IS NULL);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND (
          NEW.attempts IS DISTINCT FROM OLD.attempts
          OR NEW.excused IS DISTINCT FROM OLD.excused
          OR NEW.lease_token IS DISTINCT FROM OLD.lease_token
          OR NEW.run_at IS DISTINCT FROM OLD.run_at
          OR NEW.due_at IS DISTINCT FROM OLD.due_at
          OR NEW.resting IS DISTINCT FROM OLD.resting
          OR NEW.lease_owner IS DISTINCT FROM OLD.lease_owner
          OR NEW.last_attempt_at IS DISTINCT FROM OLD.last_attempt_at
          OR NEW.started_at IS DISTINCT FROM OLD.started_at
          OR NEW.result IS DISTINCT FROM OLD.result
          OR NEW.last_error_code IS DISTINCT FROM OLD.last_error_code
          OR NEW.last_error_message IS DISTINCT FROM OLD.last_error_message
          OR NEW.excuse_code IS DISTINCT FROM OLD.excuse_code
          OR NEW.excuse_message IS DISTINCT FROM OLD.excuse_message
          OR NEW.quarantine_code IS DISTINCT FROM OLD.quarantine_code
          OR NEW.replay_reason IS DISTINCT FROM OLD.replay_reason
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR (
            OLD.state <> 'running'
            AND (
              NEW.progress IS DISTINCT FROM OLD.progress
              OR NEW.progress_note IS DISTINCT FROM OLD.progress_note
              OR NEW.cancel_asked_at IS DISTINCT FROM OLD.cancel_asked_at
            )
          )
          OR (OLD.cancel_asked_at IS NOT NULL AND NEW.cancel_asked_at IS DISTINCT FROM OLD.cancel_asked_at)
        )
      )
      OR (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.result IS DISTINCT FROM OLD.result
        AND (OLD.result IS NOT NULL OR NEW.status IS NULL OR NEW.status NOT IN ('COMMITTED', 'DONE'))
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_jobs_born AFTER INSERT ON holdfast_jobs
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    ('JOB',
    NEW.job_id,
    NEW.version,
    NULL,
    NEW.state,
    NULL,
    NULL,
    NULL,
    1, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_jobs_born_count AFTER INSERT ON holdfast_jobs
WHEN 1
BEGIN
  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n) VALUES
    (NEW.operation, NEW.queue, NULL, NEW.state, 1);
END
-- ----
CREATE TRIGGER holdfast_jobs_moved AFTER UPDATE OF state, status ON holdfast_jobs
WHEN NEW.state <> OLD.state
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    (CASE WHEN NEW.state = OLD.state THEN 'EXECUTION' ELSE 'JOB' END,
    CASE WHEN NEW.state = OLD.state THEN NEW.job_id * 1000000 + NEW.attempts ELSE NEW.job_id END,
    CASE
    WHEN NEW.state = OLD.state
    THEN CASE NEW.status
    WHEN 'IN_PROGRESS'
    THEN 2
    ELSE 3
    END
    ELSE NEW.version
    END,
    CASE WHEN NEW.state = OLD.state THEN OLD.status ELSE OLD.state END,
    CASE WHEN NEW.state = OLD.state THEN NEW.status ELSE NEW.state END,
    CASE WHEN NEW.state = OLD.state THEN NULL ELSE OLD.status END,
    CASE
    WHEN NEW.state = OLD.state
    THEN NULL
    WHEN NEW.status IS NOT NULL
    THEN NEW.status
    WHEN OLD.status IS NOT NULL
    THEN 'ABORTED'
    END,
    CASE WHEN NEW.event = 'release' THEN NEW.grant_id END,
    1, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n) VALUES
    (NEW.operation, NEW.queue, OLD.state, NEW.state, 1);
END
-- ----
CREATE TRIGGER holdfast_jobs_stepped AFTER UPDATE OF state, status ON holdfast_jobs
WHEN NEW.state = OLD.state AND NEW.status IS DISTINCT FROM OLD.status
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    (CASE WHEN NEW.state = OLD.state THEN 'EXECUTION' ELSE 'JOB' END,
    CASE WHEN NEW.state = OLD.state THEN NEW.job_id * 1000000 + NEW.attempts ELSE NEW.job_id END,
    CASE
    WHEN NEW.state = OLD.state
    THEN CASE NEW.status
    WHEN 'IN_PROGRESS'
    THEN 2
    ELSE 3
    END
    ELSE NEW.version
    END,
    CASE WHEN NEW.state = OLD.state THEN OLD.status ELSE OLD.state END,
    CASE WHEN NEW.state = OLD.state THEN NEW.status ELSE NEW.state END,
    CASE WHEN NEW.state = OLD.state THEN NULL ELSE OLD.status END,
    CASE
    WHEN NEW.state = OLD.state
    THEN NULL
    WHEN NEW.status IS NOT NULL
    THEN NEW.status
    WHEN OLD.status IS NOT NULL
    THEN 'ABORTED'
    END,
    CASE WHEN NEW.event = 'release' THEN NEW.grant_id END,
    1, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_jobs_aborted AFTER UPDATE OF state, status ON holdfast_jobs
WHEN OLD.status IS NOT NULL AND NEW.status IS NULL
BEGIN
  INSERT INTO holdfast_aborted
    (job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at,
    created_at, started_at, finished_at, cancel_asked_at, progress, progress_note,
    event, actor, reason, move_id, error_code, error_message)
  VALUES
    (NEW.job_id, NEW.attempts,
    CASE OLD.status WHEN 'LEASED' THEN 2 WHEN 'IN_PROGRESS' THEN 3 WHEN 'COMMITTED' THEN 4 WHEN 'DONE' THEN 5 END,
    NEW.excused > OLD.excused,
    OLD.lease_owner, OLD.lease_token, coalesce(OLD.lease_expires_at, OLD.updated_at),
    OLD.last_attempt_at, OLD.started_at, NEW.updated_at, OLD.cancel_asked_at, OLD.progress,
    OLD.progress_note, NEW.event, NEW.actor, NEW.reason, NEW.move_id,
    CASE WHEN NEW.excused > OLD.excused THEN NEW.excuse_code ELSE NEW.last_error_code END,
    CASE WHEN NEW.excused > OLD.excused THEN NEW.excuse_message ELSE NEW.last_error_message END);
END
-- ----
CREATE TRIGGER holdfast_calls_birth BEFORE INSERT ON holdfast_calls
WHEN (
    EXISTS (SELECT 1 FROM holdfast_calls WHERE job_id = NEW.job_id AND 1)
  ) OR (
    EXISTS (SELECT 1 FROM holdfast_calls WHERE client = NEW.client AND key = NEW.key AND 1)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_calls WHERE job_id = NEW.job_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_calls WHERE client = NEW.client AND key = NEW.key AND 1);
END
-- ----
CREATE TRIGGER holdfast_calls_once BEFORE UPDATE ON holdfast_calls
WHEN (
    (
      NEW.job_id IS DISTINCT FROM OLD.job_id
      OR NEW.operation_version IS DISTINCT FROM OLD.operation_version
      OR NEW.client IS DISTINCT FROM OLD.client
      OR NEW.key IS DISTINCT FROM OLD.key
      OR NEW.payload IS DISTINCT FROM OLD.payload
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.max_attempts IS DISTINCT FROM OLD.max_attempts
      OR NEW.replay_attempts IS DISTINCT FROM OLD.replay_attempts
      OR NEW.replaces IS DISTINCT FROM OLD.replaces
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.job_id IS DISTINCT FROM OLD.job_id
      OR NEW.operation_version IS DISTINCT FROM OLD.operation_version
      OR NEW.client IS DISTINCT FROM OLD.client
      OR NEW.key IS DISTINCT FROM OLD.key
      OR NEW.payload IS DISTINCT FROM OLD.payload
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.max_attempts IS DISTINCT FROM OLD.max_attempts
      OR NEW.replay_attempts IS DISTINCT FROM OLD.replay_attempts
      OR NEW.replaces IS DISTINCT FROM OLD.replaces
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_calls_delete BEFORE DELETE ON holdfast_calls
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_aborted_insert BEFORE INSERT ON holdfast_aborted
WHEN (
    EXISTS (SELECT 1 FROM holdfast_aborted WHERE job_id = NEW.job_id AND attempt = NEW.attempt AND 1)
    OR (
      NOT EXISTS (
        SELECT 1 FROM holdfast_jobs r
        WHERE r.job_id = NEW.job_id
        AND r.attempts = NEW.attempt
        AND r.status IS NULL
        AND r.move_id = NEW.move_id
        AND r.lease_token = NEW.lease_token
        AND r.lease_owner = NEW.lease_owner
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    )
  )
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (SELECT 1 FROM holdfast_aborted WHERE job_id = NEW.job_id AND attempt = NEW.attempt AND 1)
    OR (
      NOT EXISTS (
        SELECT 1 FROM holdfast_jobs r
        WHERE r.job_id = NEW.job_id
        AND r.attempts = NEW.attempt
        AND r.status IS NULL
        AND r.move_id = NEW.move_id
        AND r.lease_token = NEW.lease_token
        AND r.lease_owner = NEW.lease_owner
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END
-- ----
CREATE TRIGGER holdfast_aborted_update BEFORE UPDATE ON holdfast_aborted
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_aborted_delete BEFORE DELETE ON holdfast_aborted
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_grants_birth BEFORE INSERT ON holdfast_grants
WHEN (
    EXISTS (SELECT 1 FROM holdfast_grants WHERE grant_id = NEW.grant_id AND 1)
  ) OR (
    NEW.state IN ('draft', 'active')
    AND EXISTS (
      SELECT 1 FROM holdfast_grants
      WHERE action = NEW.action
      AND target = NEW.target
      AND scope = NEW.scope
      AND state IN ('draft', 'active')
      AND grant_id IS NOT NEW.grant_id
    )
  ) OR (
    (NOT (((NEW.state = 'draft' AND NEW.event = 'request' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_grants WHERE grant_id = NEW.grant_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('draft', 'active')
    AND EXISTS (
      SELECT 1 FROM holdfast_grants
      WHERE action = NEW.action
      AND target = NEW.target
      AND scope = NEW.scope
      AND state IN ('draft', 'active')
      AND grant_id IS NOT NEW.grant_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'draft' AND NEW.event = 'request' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_grants_once BEFORE UPDATE OF
    action,
    target,
    scope,
    requested_by,
    expires_at,
    requested_via,
    created_at,
    history_from
  ON holdfast_grants
WHEN (
    (
      NEW.action IS DISTINCT FROM OLD.action
      OR NEW.target IS DISTINCT FROM OLD.target
      OR NEW.scope IS DISTINCT FROM OLD.scope
      OR NEW.requested_by IS DISTINCT FROM OLD.requested_by
      OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
      OR NEW.requested_via IS DISTINCT FROM OLD.requested_via
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.action IS DISTINCT FROM OLD.action
      OR NEW.target IS DISTINCT FROM OLD.target
      OR NEW.scope IS DISTINCT FROM OLD.scope
      OR NEW.requested_by IS DISTINCT FROM OLD.requested_by
      OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
      OR NEW.requested_via IS DISTINCT FROM OLD.requested_via
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_grants_move BEFORE UPDATE ON holdfast_grants
WHEN (
    NEW.grant_id <> OLD.grant_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version)
  ) OR (
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'draft'
            AND NEW.state = 'active'
            AND NEW.event IN ('approve')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'consumed'
            AND NEW.event IN ('consume')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'draft'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'expired'
            AND NEW.event IN ('expire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.approved_by IS DISTINCT FROM OLD.approved_by
          OR NEW.consumed_by IS DISTINCT FROM OLD.consumed_by
          OR NEW.approved_via IS DISTINCT FROM OLD.approved_via
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
      OR (NEW.approved_by IS DISTINCT FROM OLD.approved_by AND NEW.event <> 'approve')
      OR (NEW.approved_via IS DISTINCT FROM OLD.approved_via AND NEW.event <> 'approve')
      OR (NEW.consumed_by IS DISTINCT FROM OLD.consumed_by AND NEW.event <> 'consume')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.grant_id <> OLD.grant_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'draft'
            AND NEW.state = 'active'
            AND NEW.event IN ('approve')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'consumed'
            AND NEW.event IN ('consume')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'draft'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'expired'
            AND NEW.event IN ('expire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.approved_by IS DISTINCT FROM OLD.approved_by
          OR NEW.consumed_by IS DISTINCT FROM OLD.consumed_by
          OR NEW.approved_via IS DISTINCT FROM OLD.approved_via
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
      OR (NEW.approved_by IS DISTINCT FROM OLD.approved_by AND NEW.event <> 'approve')
      OR (NEW.approved_via IS DISTINCT FROM OLD.approved_via AND NEW.event <> 'approve')
      OR (NEW.consumed_by IS DISTINCT FROM OLD.consumed_by AND NEW.event <> 'consume')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_grants_delete BEFORE DELETE ON holdfast_grants
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_grants_born AFTER INSERT ON holdfast_grants
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'GRANT', NEW.grant_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NEW.grant_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_grants_moved AFTER UPDATE OF state ON holdfast_grants
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'GRANT', NEW.grant_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NEW.grant_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_procedures_birth BEFORE INSERT ON holdfast_procedures
WHEN (
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE run_id = NEW.run_id AND 1)
  ) OR (
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE idempotency_root = NEW.idempotency_root AND 1)
  ) OR (
    (NOT (((NEW.state = 'planned' AND NEW.event = 'plan' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE run_id = NEW.run_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE idempotency_root = NEW.idempotency_root AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'planned' AND NEW.event = 'plan' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_procedures_once BEFORE UPDATE OF
    idempotency_root,
    procedure,
    params,
    plan,
    lease,
    created_at,
    history_from
  ON holdfast_procedures
WHEN (
    (
      NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
      OR NEW.procedure IS DISTINCT FROM OLD.procedure
      OR NEW.params IS DISTINCT FROM OLD.params
      OR NEW.plan IS DISTINCT FROM OLD.plan
      OR NEW.lease IS DISTINCT FROM OLD.lease
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
      OR NEW.procedure IS DISTINCT FROM OLD.procedure
      OR NEW.params IS DISTINCT FROM OLD.params
      OR NEW.plan IS DISTINCT FROM OLD.plan
      OR NEW.lease IS DISTINCT FROM OLD.lease
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_procedures_move BEFORE UPDATE ON holdfast_procedures
WHEN (
    NEW.run_id <> OLD.run_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.version < OLD.version OR NEW.step < OLD.step) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version)
  ) OR (
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'planned'
            AND NEW.state = 'running'
            AND NEW.event IN ('run')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'done'
            AND NEW.event IN ('finish')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'planned'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'compensating'
            AND NEW.event IN ('compensate')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'compensating'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('stop')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'stopped'
            AND NEW.state = 'running'
            AND NEW.event IN ('resume')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.stop_state IS DISTINCT FROM OLD.stop_state
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.run_id <> OLD.run_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version OR NEW.step < OLD.step) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'planned'
            AND NEW.state = 'running'
            AND NEW.event IN ('run')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'done'
            AND NEW.event IN ('finish')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'planned'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'compensating'
            AND NEW.event IN ('compensate')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'compensating'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('stop')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'stopped'
            AND NEW.state = 'running'
            AND NEW.event IN ('resume')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.stop_state IS DISTINCT FROM OLD.stop_state
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_procedures_delete BEFORE DELETE ON holdfast_procedures
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_procedures_born AFTER INSERT ON holdfast_procedures
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'PROCEDURE', NEW.run_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_procedures_moved AFTER UPDATE OF state ON holdfast_procedures
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'PROCEDURE', NEW.run_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_steps_birth BEFORE INSERT ON holdfast_steps
WHEN (
    EXISTS (SELECT 1 FROM holdfast_steps WHERE step_id = NEW.step_id AND 1)
  ) OR (
    NEW.state IN ('performed')
    AND EXISTS (
      SELECT 1 FROM holdfast_steps
      WHERE run_id = NEW.run_id
      AND number = NEW.number
      AND state IN ('performed')
      AND step_id IS NOT NEW.step_id
    )
  ) OR (
    (NOT (((NEW.state = 'performed' AND NEW.event = 'perform' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_steps WHERE step_id = NEW.step_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('performed')
    AND EXISTS (
      SELECT 1 FROM holdfast_steps
      WHERE run_id = NEW.run_id
      AND number = NEW.number
      AND state IN ('performed')
      AND step_id IS NOT NEW.step_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'performed' AND NEW.event = 'perform' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_steps_once BEFORE UPDATE OF
    run_id,
    number,
    name,
    outcome,
    created_at,
    history_from
  ON holdfast_steps
WHEN (
    (
      NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.number IS DISTINCT FROM OLD.number
      OR NEW.name IS DISTINCT FROM OLD.name
      OR NEW.outcome IS DISTINCT FROM OLD.outcome
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.number IS DISTINCT FROM OLD.number
      OR NEW.name IS DISTINCT FROM OLD.name
      OR NEW.outcome IS DISTINCT FROM OLD.outcome
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_steps_move BEFORE UPDATE ON holdfast_steps
WHEN (
    NEW.step_id <> OLD.step_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version)
  ) OR (
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'performed'
            AND NEW.state = 'undone'
            AND NEW.event IN ('undo')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.step_id <> OLD.step_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'performed'
            AND NEW.state = 'undone'
            AND NEW.event IN ('undo')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_steps_delete BEFORE DELETE ON holdfast_steps
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_steps_born AFTER INSERT ON holdfast_steps
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'STEP', NEW.step_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_steps_moved AFTER UPDATE OF state ON holdfast_steps
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'STEP', NEW.step_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_values_birth BEFORE INSERT ON holdfast_values
WHEN (
    EXISTS (SELECT 1 FROM holdfast_values WHERE value_id = NEW.value_id AND 1)
  ) OR (
    EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND protocol_version = NEW.protocol_version
      AND 1
    )
  ) OR (
    EXISTS (SELECT 1 FROM holdfast_values WHERE vocab_id = NEW.vocab_id AND 1)
  ) OR (
    NEW.state IN ('active')
    AND NEW.standing <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND standing <> 'withheld'
      AND value_id IS NOT NEW.value_id
    )
  ) OR (
    (NOT (((NEW.state = 'active' AND NEW.event = 'admit' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IN ('active')
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND (
        g.move_id = NEW.move_id
        OR EXISTS (
          SELECT 1 FROM holdfast_procedures p
          WHERE p.run_id = NEW.run_id
          AND p.grant_id = g.grant_id
          AND p.state = 'running'
          AND NEW.standing = 'staged'
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_values WHERE value_id = NEW.value_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND protocol_version = NEW.protocol_version
      AND 1
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_values WHERE vocab_id = NEW.vocab_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('active')
    AND NEW.standing <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND standing <> 'withheld'
      AND value_id IS NOT NEW.value_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'active' AND NEW.event = 'admit' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NEW.state IN ('active')
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND (
        g.move_id = NEW.move_id
        OR EXISTS (
          SELECT 1 FROM holdfast_procedures p
          WHERE p.run_id = NEW.run_id
          AND p.grant_id = g.grant_id
          AND p.state = 'running'
          AND NEW.standing = 'staged'
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_values_once BEFORE UPDATE OF
    vocab_id,
    collection,
    operation_code,
    protocol_version,
    act_type,
    semantics,
    authority_ref,
    digest,
    run_id,
    created_at,
    history_from
  ON holdfast_values
WHEN (
    (
      NEW.vocab_id IS DISTINCT FROM OLD.vocab_id
      OR NEW.collection IS DISTINCT FROM OLD.collection
      OR NEW.operation_code IS DISTINCT FROM OLD.operation_code
      OR NEW.protocol_version IS DISTINCT FROM OLD.protocol_version
      OR NEW.act_type IS DISTINCT FROM OLD.act_type
      OR NEW.semantics IS DISTINCT FROM OLD.semantics
      OR NEW.authority_ref IS DISTINCT FROM OLD.authority_ref
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.vocab_id IS DISTINCT FROM OLD.vocab_id
      OR NEW.collection IS DISTINCT FROM OLD.collection
      OR NEW.operation_code IS DISTINCT FROM OLD.operation_code
      OR NEW.protocol_version IS DISTINCT FROM OLD.protocol_version
      OR NEW.act_type IS DISTINCT FROM OLD.act_type
      OR NEW.semantics IS DISTINCT FROM OLD.semantics
      OR NEW.authority_ref IS DISTINCT FROM OLD.authority_ref
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_values_move BEFORE UPDATE ON holdfast_values
WHEN (
    NEW.value_id <> OLD.value_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version)
  ) OR (
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'active'
            AND NEW.state = 'superseded'
            AND NEW.event IN ('supersede')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'retired'
            AND NEW.event IN ('retire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    ((OLD.state = 'active' AND NEW.state = 'superseded') OR (OLD.state = 'active' AND NEW.state = 'retired'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_values r
        WHERE r.grant_id = NEW.grant_id
        AND r.value_id <> NEW.value_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.value_id
          AND j.machine = 'VALUE'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    )
  ) OR (
    NEW.standing IS DISTINCT FROM OLD.standing
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_procedures p
      WHERE p.lease = 'registry:' || NEW.collection
      AND p.state IN ('running', 'compensating')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.successor_code IS DISTINCT FROM OLD.successor_code
          OR NEW.successor_version IS DISTINCT FROM OLD.successor_version
          OR NEW.rollback_ref IS DISTINCT FROM OLD.rollback_ref
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.standing <> OLD.standing
    AND NEW.state IN ('active')
    AND NEW.standing <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND standing <> 'withheld'
      AND value_id IS NOT NEW.value_id
    )
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.value_id <> OLD.value_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'active'
            AND NEW.state = 'superseded'
            AND NEW.event IN ('supersede')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'retired'
            AND NEW.event IN ('retire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    ((OLD.state = 'active' AND NEW.state = 'superseded') OR (OLD.state = 'active' AND NEW.state = 'retired'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_values r
        WHERE r.grant_id = NEW.grant_id
        AND r.value_id <> NEW.value_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.value_id
          AND j.machine = 'VALUE'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    );
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NEW.standing IS DISTINCT FROM OLD.standing
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_procedures p
      WHERE p.lease = 'registry:' || NEW.collection
      AND p.state IN ('running', 'compensating')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.successor_code IS DISTINCT FROM OLD.successor_code
          OR NEW.successor_version IS DISTINCT FROM OLD.successor_version
          OR NEW.rollback_ref IS DISTINCT FROM OLD.rollback_ref
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.standing <> OLD.standing
    AND NEW.state IN ('active')
    AND NEW.standing <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND standing <> 'withheld'
      AND value_id IS NOT NEW.value_id
    );
END
-- ----
CREATE TRIGGER holdfast_values_delete BEFORE DELETE ON holdfast_values
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_values_born AFTER INSERT ON holdfast_values
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'VALUE', NEW.value_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE WHEN NEW.state = 'active' THEN NEW.grant_id END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_values_moved AFTER UPDATE OF state ON holdfast_values
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'VALUE', NEW.value_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE
    WHEN OLD.state = 'active'
    AND NEW.state = 'superseded'
    OR OLD.state = 'active'
    AND NEW.state = 'retired'
    THEN NEW.grant_id
    END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_switches_birth BEFORE INSERT ON holdfast_switches
WHEN (
    EXISTS (SELECT 1 FROM holdfast_switches WHERE switch_id = NEW.switch_id AND 1)
  ) OR (
    NEW.state IN ('on')
    AND EXISTS (
      SELECT 1 FROM holdfast_switches
      WHERE name = NEW.name
      AND state IN ('on')
      AND switch_id IS NOT NEW.switch_id
    )
  ) OR (
    (NOT (((NEW.state = 'on' AND NEW.event = 'throw' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_switches WHERE switch_id = NEW.switch_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('on')
    AND EXISTS (
      SELECT 1 FROM holdfast_switches
      WHERE name = NEW.name
      AND state IN ('on')
      AND switch_id IS NOT NEW.switch_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'on' AND NEW.event = 'throw' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_switches_once BEFORE UPDATE OF
    name,
    thrown_by,
    created_at,
    history_from
  ON holdfast_switches
WHEN (
    (
      NEW.name IS DISTINCT FROM OLD.name
      OR NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.name IS DISTINCT FROM OLD.name
      OR NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_switches_move BEFORE UPDATE ON holdfast_switches
WHEN (
    NEW.switch_id <> OLD.switch_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version)
  ) OR (
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (OLD.state = 'on' AND NEW.state = 'off' AND NEW.event IN ('lift') AND NEW.version = OLD.version + 1)
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  ) OR (
    ((OLD.state = 'on' AND NEW.state = 'off'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_switches r
        WHERE r.grant_id = NEW.grant_id
        AND r.switch_id <> NEW.switch_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.switch_id
          AND j.machine = 'SWITCH'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    )
  ) OR (
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.switch_id <> OLD.switch_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (OLD.state = 'on' AND NEW.state = 'off' AND NEW.event IN ('lift') AND NEW.version = OLD.version + 1)
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    ((OLD.state = 'on' AND NEW.state = 'off'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_switches r
        WHERE r.grant_id = NEW.grant_id
        AND r.switch_id <> NEW.switch_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.switch_id
          AND j.machine = 'SWITCH'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    );
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_switches_delete BEFORE DELETE ON holdfast_switches
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_switches_born AFTER INSERT ON holdfast_switches
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'SWITCH', NEW.switch_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_switches_moved AFTER UPDATE OF state ON holdfast_switches
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'SWITCH', NEW.switch_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE WHEN OLD.state = 'on' AND NEW.state = 'off' THEN NEW.grant_id END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END
-- ----
CREATE TRIGGER holdfast_journal_insert BEFORE INSERT ON holdfast_journal
WHEN (
    EXISTS (
      SELECT 1 FROM holdfast_journal
      WHERE machine = NEW.machine
      AND subject = NEW.subject
      AND version = NEW.version
    )
    OR (NEW.seq <> -1 AND EXISTS (SELECT 1 FROM holdfast_journal WHERE seq = NEW.seq))
    OR (
      NOT (
        typeof(NEW.version) = 'integer'
        AND CASE NEW.machine
        WHEN 'JOB'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'GRANT'
        THEN EXISTS (
          SELECT 1 FROM holdfast_grants r
          WHERE r.grant_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'PROCEDURE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_procedures r
          WHERE r.run_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'STEP'
        THEN EXISTS (
          SELECT 1 FROM holdfast_steps r
          WHERE r.step_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'VALUE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_values r
          WHERE r.value_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'SWITCH'
        THEN EXISTS (
          SELECT 1 FROM holdfast_switches r
          WHERE r.switch_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'EXECUTION'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject / 1000000
          AND r.attempts = NEW.subject % 1000000
          AND r.status = NEW.target
          AND r.move_id = NEW.move_id
        )
        WHEN 'MAINTENANCE'
        THEN EXISTS (SELECT 1 FROM holdfast_maintenance WHERE maintenance_id = NEW.subject)
        ELSE 0
        END
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    )
  )
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (
      SELECT 1 FROM holdfast_journal
      WHERE machine = NEW.machine
      AND subject = NEW.subject
      AND version = NEW.version
    )
    OR (NEW.seq <> -1 AND EXISTS (SELECT 1 FROM holdfast_journal WHERE seq = NEW.seq))
    OR (
      NOT (
        typeof(NEW.version) = 'integer'
        AND CASE NEW.machine
        WHEN 'JOB'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'GRANT'
        THEN EXISTS (
          SELECT 1 FROM holdfast_grants r
          WHERE r.grant_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'PROCEDURE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_procedures r
          WHERE r.run_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'STEP'
        THEN EXISTS (
          SELECT 1 FROM holdfast_steps r
          WHERE r.step_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'VALUE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_values r
          WHERE r.value_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'SWITCH'
        THEN EXISTS (
          SELECT 1 FROM holdfast_switches r
          WHERE r.switch_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'EXECUTION'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject / 1000000
          AND r.attempts = NEW.subject % 1000000
          AND r.status = NEW.target
          AND r.move_id = NEW.move_id
        )
        WHEN 'MAINTENANCE'
        THEN EXISTS (SELECT 1 FROM holdfast_maintenance WHERE maintenance_id = NEW.subject)
        ELSE 0
        END
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END
-- ----
CREATE TRIGGER holdfast_journal_update BEFORE UPDATE ON holdfast_journal
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_journal_delete BEFORE DELETE ON holdfast_journal
WHEN (
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_seals_insert BEFORE INSERT ON holdfast_seals
WHEN (
    NEW.seal_id <> 1 + (SELECT coalesce(max(seal_id), 0) FROM holdfast_seals)
    OR NEW.previous IS NOT coalesce(
      (SELECT hash FROM holdfast_seals ORDER BY seal_id DESC LIMIT 1), NEW.previous
    )
  )
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    NEW.seal_id <> 1 + (SELECT coalesce(max(seal_id), 0) FROM holdfast_seals)
    OR NEW.previous IS NOT coalesce(
      (SELECT hash FROM holdfast_seals ORDER BY seal_id DESC LIMIT 1), NEW.previous
    );
END
-- ----
CREATE TRIGGER holdfast_seals_update BEFORE UPDATE ON holdfast_seals
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_seals_delete BEFORE DELETE ON holdfast_seals
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_archives_insert BEFORE INSERT ON holdfast_archives
WHEN (
    EXISTS (SELECT 1 FROM holdfast_archives WHERE archive_id = NEW.archive_id)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (SELECT 1 FROM holdfast_archives WHERE archive_id = NEW.archive_id);
END
-- ----
CREATE TRIGGER holdfast_archives_update BEFORE UPDATE ON holdfast_archives
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_archives_delete BEFORE DELETE ON holdfast_archives
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_evidence_insert BEFORE INSERT ON holdfast_evidence
WHEN (
    EXISTS (SELECT 1 FROM holdfast_evidence WHERE evidence_id = NEW.evidence_id AND 1)
    OR (
      NEW.voided_at IS NULL
      AND EXISTS (
        SELECT 1 FROM holdfast_evidence
        WHERE run_id = NEW.run_id
        AND kind = NEW.kind
        AND voided_at IS NULL
      )
    )
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    EXISTS (SELECT 1 FROM holdfast_evidence WHERE evidence_id = NEW.evidence_id AND 1)
    OR (
      NEW.voided_at IS NULL
      AND EXISTS (
        SELECT 1 FROM holdfast_evidence
        WHERE run_id = NEW.run_id
        AND kind = NEW.kind
        AND voided_at IS NULL
      )
    );
END
-- ----
CREATE TRIGGER holdfast_evidence_update BEFORE UPDATE ON holdfast_evidence
WHEN (
    OLD.voided_at IS NOT NULL
    OR NEW.evidence_id IS DISTINCT FROM OLD.evidence_id
    OR NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.subject IS DISTINCT FROM OLD.subject
    OR NEW.content IS DISTINCT FROM OLD.content
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    OLD.voided_at IS NOT NULL
    OR NEW.evidence_id IS DISTINCT FROM OLD.evidence_id
    OR NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.subject IS DISTINCT FROM OLD.subject
    OR NEW.content IS DISTINCT FROM OLD.content
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
    OR NEW.created_at IS DISTINCT FROM OLD.created_at;
END
-- ----
CREATE TRIGGER holdfast_evidence_delete BEFORE DELETE ON holdfast_evidence
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_leases_insert BEFORE INSERT ON holdfast_leases
WHEN (
    EXISTS (SELECT 1 FROM holdfast_leases WHERE name = NEW.name AND token >= NEW.token)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    EXISTS (SELECT 1 FROM holdfast_leases WHERE name = NEW.name AND token >= NEW.token);
END
-- ----
CREATE TRIGGER holdfast_leases_update BEFORE UPDATE ON holdfast_leases
WHEN (
    NEW.name <> OLD.name OR NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    NEW.name <> OLD.name OR NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token);
END
-- ----
CREATE TRIGGER holdfast_leases_delete BEFORE DELETE ON holdfast_leases
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    1;
END
-- ----
CREATE TRIGGER holdfast_meta_insert BEFORE INSERT ON holdfast_meta
WHEN (
    EXISTS (SELECT 1 FROM holdfast_meta WHERE name = NEW.name AND 1)
    AND NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    EXISTS (SELECT 1 FROM holdfast_meta WHERE name = NEW.name AND 1)
    AND NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_meta_update BEFORE UPDATE ON holdfast_meta
WHEN (
    OLD.name = 'environment'
    AND NEW.name = 'environment'
    AND (
      CASE NEW.value
      WHEN 'dev'
      THEN 0
      WHEN 'stage'
      THEN 1
      WHEN 'prod'
      THEN 2
      ELSE 2
      END
    ) < (CASE OLD.value WHEN 'dev' THEN 0 WHEN 'stage' THEN 1 WHEN 'prod' THEN 2 ELSE 2 END)
  ) OR (
    (
      OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed')
      OR NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    )
    AND (NEW.name <> OLD.name OR NEW.value <> OLD.value)
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    OLD.name = 'environment'
    AND NEW.name = 'environment'
    AND (
      CASE NEW.value
      WHEN 'dev'
      THEN 0
      WHEN 'stage'
      THEN 1
      WHEN 'prod'
      THEN 2
      ELSE 2
      END
    ) < (CASE OLD.value WHEN 'dev' THEN 0 WHEN 'stage' THEN 1 WHEN 'prod' THEN 2 ELSE 2 END);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed')
      OR NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    )
    AND (NEW.name <> OLD.name OR NEW.value <> OLD.value)
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_meta_delete BEFORE DELETE ON holdfast_meta
WHEN (
    OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed')
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_maintenance_opened AFTER INSERT ON holdfast_maintenance
WHEN 1
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'MAINTENANCE', NEW.maintenance_id,
    1,
    NULL, 'open', 'open', NEW.who, NEW.why, NULL, 'maintenance-' || NEW.maintenance_id,
    NEW.grant_id, NEW.maintenance_id, NEW.opened_at);
END
-- ----
CREATE TRIGGER holdfast_maintenance_shut BEFORE DELETE ON holdfast_maintenance
WHEN 1
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    (1, 0, 'MAINTENANCE', OLD.maintenance_id,
    (SELECT coalesce(max(version), 0) + 1 FROM holdfast_journal
      WHERE machine = 'MAINTENANCE' AND subject = OLD.maintenance_id),
    'open', 'shut', 'shut', OLD.who, OLD.why, NULL, 'maintenance-' || OLD.maintenance_id,
    OLD.grant_id, OLD.maintenance_id, OLD.opened_at);
END
-- ----
CREATE TRIGGER holdfast_maintenance_one BEFORE INSERT ON holdfast_maintenance
WHEN (
    NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
  )
BEGIN
  SELECT RAISE(ABORT, 'HF011 the maintenance door must be shut before the transaction ends or opens it again') WHERE
    NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END
-- ----
CREATE TRIGGER holdfast_maintenance_update BEFORE UPDATE ON holdfast_maintenance
WHEN (
    1
  )
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    1;
END
-- ----
DROP VIEW IF EXISTS holdfast_executions
-- ----
DROP VIEW IF EXISTS holdfast_edges
-- ----
CREATE VIEW holdfast_executions AS
SELECT j.job_id * 1000000 + j.attempts AS exec_id,
  j.job_id AS job_id,
  j.attempts AS attempt,
  j.status AS status,
  CASE j.status WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 ELSE 4 END AS version,
  j.lease_owner AS lease_owner,
  j.lease_token AS lease_token,
  coalesce(j.lease_expires_at, j.updated_at) AS lease_expires_at,
  j.status IS NULL AS excused,
  NULL AS error_code,
  NULL AS error_message,
  j.progress AS progress,
  j.progress_note AS progress_note,
  j.cancel_asked_at AS cancel_asked_at,
  j.started_at AS started_at,
  CASE WHEN j.status = 'DONE' THEN j.updated_at END AS finished_at,
  j.last_attempt_at AS created_at,
  j.updated_at AS updated_at,
  j.event AS event,
  j.actor AS actor,
  j.reason AS reason,
  j.move_id AS move_id
FROM holdfast_jobs j WHERE j.status IS NOT NULL
UNION ALL
SELECT a.job_id * 1000000 + a.attempt,
  a.job_id,
  a.attempt,
  'ABORTED',
  a.version,
  a.lease_owner,
  a.lease_token,
  a.lease_expires_at,
  a.excused,
  a.error_code,
  a.error_message,
  a.progress,
  a.progress_note,
  a.cancel_asked_at,
  a.started_at,
  a.finished_at,
  a.created_at,
  a.finished_at,
  a.event,
  a.actor,
  a.reason,
  a.move_id
FROM holdfast_aborted a
-- ----
CREATE VIEW holdfast_edges AS
SELECT g.seq, g.subject AS record, g.epoch, g.xid,
  10 - coalesce(e.column3, 0) AS step,
  'EXECUTION' AS machine,
  g.subject * 1000000 + g.attempt AS subject,
  coalesce(e.column7, 
    CASE g.status_to WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 WHEN 'DONE' THEN 4
    ELSE 1 +
    CASE g.status_from WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 WHEN 'DONE' THEN 4
    ELSE 0 END END) AS version,
  CASE WHEN e.column2 IS NULL THEN g.status_from ELSE nullif(e.column5, '') END AS source,
  coalesce(e.column6, g.status_to) AS target,
  coalesce(e.column4, g.event) AS event,
  g.actor, g.reason, g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
FROM holdfast_journal g LEFT JOIN (VALUES
  ('', 'LEASED', 0, 'lease', '', 'LEASED', 1),
  ('', 'IN_PROGRESS', 1, 'begin', '', 'LEASED', 1),
  ('', 'IN_PROGRESS', 0, 'begin', 'LEASED', 'IN_PROGRESS', 2),
  ('LEASED', 'IN_PROGRESS', 0, 'start', 'LEASED', 'IN_PROGRESS', 2),
  ('IN_PROGRESS', 'COMMITTED', 0, 'commit', 'IN_PROGRESS', 'COMMITTED', 3),
  ('COMMITTED', 'DONE', 0, 'finish', 'COMMITTED', 'DONE', 4),
  ('IN_PROGRESS', 'DONE', 1, 'complete', 'IN_PROGRESS', 'COMMITTED', 3),
  ('IN_PROGRESS', 'DONE', 0, 'complete', 'COMMITTED', 'DONE', 4),
  ('LEASED', 'ABORTED', 0, 'abort', 'LEASED', 'ABORTED', 2),
  ('IN_PROGRESS', 'ABORTED', 0, 'abort', 'IN_PROGRESS', 'ABORTED', 3)) e
  ON e.column1 = coalesce(g.status_from, '') AND e.column2 = g.status_to
WHERE g.status_to IS NOT NULL
UNION ALL
SELECT g.seq, g.subject AS record, g.epoch, g.xid,
  20 - coalesce(e.column3, 0),
  g.machine,
  g.subject,
  g.version - coalesce(e.column3, 0),
  CASE WHEN e.column2 IS NULL THEN g.source ELSE e.column4 END,
  coalesce(e.column5, g.target),
  g.event,
  g.actor, g.reason, g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
FROM holdfast_journal g LEFT JOIN (VALUES
  ('running', 'pending', 1, 'running', 'failed'),
  ('running', 'pending', 0, 'failed', 'pending'),
  ('running', 'quarantined', 1, 'running', 'failed'),
  ('running', 'quarantined', 0, 'failed', 'quarantined')) e
  ON g.machine = 'JOB' AND g.event <> 'repair' AND e.column1 = g.source AND e.column2 = g.target
