-- Governance: named leases, what a grant is known by, runs of procedures step by step, the registry, switches, approvers.

-- An exclusive right to run something. A row outlives its lease, so that tokens only grow; the time limit heals it.
CREATE TABLE holdfast_leases (
  name        TEXT PRIMARY KEY CHECK (name <> ''),
  holder      TEXT NOT NULL CHECK (holder <> ''),
  token       INTEGER NOT NULL CHECK (token >= 1),
  acquired_at TEXT NOT NULL,
  expires_at  TEXT NOT NULL CHECK (expires_at GLOB '????-??-??T??:??:??.??????Z')
) WITHOUT ROWID, STRICT;

-- How the requester and the approver were known: as JSON, with the signature where there is one.
ALTER TABLE holdfast_grants ADD COLUMN requested_via TEXT;
ALTER TABLE holdfast_grants ADD COLUMN approved_via TEXT;
-- Of two grants alike, one would be left over when the other is used.
CREATE UNIQUE INDEX holdfast_grants_alike ON holdfast_grants (action, target, scope) WHERE state IN ('draft', 'active');
CREATE INDEX holdfast_grants_open ON holdfast_grants (action, target) WHERE state IN ('draft', 'active');

ALTER TABLE holdfast_procedures ADD COLUMN params TEXT NOT NULL DEFAULT '{}';
ALTER TABLE holdfast_procedures ADD COLUMN plan TEXT NOT NULL DEFAULT '';
ALTER TABLE holdfast_procedures ADD COLUMN lease TEXT NOT NULL DEFAULT '';
ALTER TABLE holdfast_procedures ADD COLUMN grant_id INTEGER REFERENCES holdfast_grants (grant_id);
ALTER TABLE holdfast_procedures ADD COLUMN failure TEXT;

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

-- The governed vocabulary. No version before this one wrote values, so the table is made anew, with its references.
DROP TABLE holdfast_values;

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

-- Jobs that replace another, by the one that they replace.
CREATE INDEX holdfast_jobs_replaces ON holdfast_jobs (replaces) WHERE replaces IS NOT NULL;
