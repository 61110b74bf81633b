-- What guards the ledger: seals over the journal, the record of archives, and where each history begins.

-- Which ledger this is, wherever a copy of it goes: the first seal follows it.
INSERT INTO holdfast_meta (name, value) VALUES ('ledger_id', lower(hex(randomblob(16))));

-- The first version that the journal still tells of: later than 1 once older rows are archived, or known to be lost.
ALTER TABLE holdfast_jobs ADD COLUMN history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_executions ADD COLUMN history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_grants ADD COLUMN history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_procedures ADD COLUMN history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_values ADD COLUMN history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1);

-- A seal closes the rows up to (epoch, last_xid, last_seq) that no seal before it has closed.
CREATE TABLE holdfast_seals (
  seal_id     INTEGER PRIMARY KEY CHECK (seal_id > 0),
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
