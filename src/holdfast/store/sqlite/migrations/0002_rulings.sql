-- Rulings on running work, tracebacks, erasures, the depth of a queue. See docs/adr/0013.
-- Every column may be NULL: no row is rewritten.

-- A request to cancel the current attempt: who, why, and the move that the journal knows it by. `cancel_asked_at` says when.
ALTER TABLE holdfast_jobs ADD COLUMN cancel_by TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN cancel_reason TEXT;
ALTER TABLE holdfast_jobs ADD COLUMN cancel_move_id TEXT;
-- How many leases of the job were lost; NULL is none.
ALTER TABLE holdfast_jobs ADD COLUMN lost INTEGER;

-- The most jobs that may wait in a queue; NULL is no limit.
ALTER TABLE holdfast_queues ADD COLUMN depth_max INTEGER CHECK (depth_max >= 0);

-- Where an attempt failed, for people; redacted by the worker that writes it. Retention and erasure delete it.
CREATE TABLE holdfast_tracebacks (
  job_id  INTEGER NOT NULL REFERENCES holdfast_calls (job_id),
  attempt INTEGER NOT NULL CHECK (attempt >= 1),
  text    TEXT NOT NULL CHECK (length(text) <= 65536),
  PRIMARY KEY (job_id, attempt)
) WITHOUT ROWID, STRICT;

-- The jobs whose personal data were erased. The hash of a key keeps the key from being used again.
CREATE TABLE holdfast_erased (
  job_id    INTEGER PRIMARY KEY REFERENCES holdfast_calls (job_id),
  client    TEXT NOT NULL,
  key_hash  TEXT CHECK (key_hash <> ''),
  erased_at TEXT NOT NULL CHECK (erased_at GLOB '????-??-??T??:??:??.??????Z'),
  actor     TEXT NOT NULL CHECK (actor <> ''),
  reason    TEXT NOT NULL CHECK (reason <> ''),
  grant_id  INTEGER NOT NULL REFERENCES holdfast_grants (grant_id),
  move_id   TEXT NOT NULL
) STRICT;

CREATE UNIQUE INDEX holdfast_erased_key ON holdfast_erased (client, key_hash) WHERE key_hash IS NOT NULL;
