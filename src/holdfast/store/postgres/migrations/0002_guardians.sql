-- What guards the ledger: seals over the journal, the record of archives, and where each history begins.

-- Which ledger this is, wherever a copy of it goes: the first seal follows it.
INSERT INTO holdfast_meta (name, value) VALUES ('ledger_id', replace(gen_random_uuid()::text, '-', ''));

-- The first version that the journal still tells of: later than 1 once older rows are archived, or known to be lost.
ALTER TABLE holdfast_jobs ADD COLUMN history_from integer NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_executions ADD COLUMN history_from integer NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_grants ADD COLUMN history_from integer NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_procedures ADD COLUMN history_from integer NOT NULL DEFAULT 1 CHECK (history_from >= 1);
ALTER TABLE holdfast_values ADD COLUMN history_from integer NOT NULL DEFAULT 1 CHECK (history_from >= 1);

-- A seal closes the rows up to (epoch, last_xid, last_seq) that no seal before it has closed.
CREATE TABLE holdfast_seals (
  seal_id     bigint PRIMARY KEY CHECK (seal_id > 0),
  epoch       integer NOT NULL,
  last_xid    bigint NOT NULL,
  last_seq    bigint NOT NULL,
  low_seq     bigint NOT NULL,
  high_seq    bigint NOT NULL,
  rows        bigint NOT NULL CHECK (rows > 0),
  digest      text NOT NULL,
  previous    text NOT NULL,
  hash        text NOT NULL,
  sealed_at   text NOT NULL,
  horizon_xid bigint NOT NULL,
  horizon_seq bigint NOT NULL
);

CREATE TABLE holdfast_archives (
  archive_id bigint PRIMARY KEY CHECK (archive_id > 0),
  first_seal bigint NOT NULL REFERENCES holdfast_seals (seal_id),
  last_seal  bigint NOT NULL REFERENCES holdfast_seals (seal_id),
  file       text NOT NULL UNIQUE,
  sha256     text NOT NULL,
  rows       bigint NOT NULL,
  executions bigint NOT NULL,
  created_at text NOT NULL
);
