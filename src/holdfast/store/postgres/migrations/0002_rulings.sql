-- Rulings on running work, tracebacks, erasures, the depth of a queue. See docs/adr/0013.
-- Every column may be NULL: no row is rewritten.

-- A request to cancel the current attempt: who, why, and the move that the journal knows it by. `cancel_asked_at` says when.
ALTER TABLE holdfast_jobs ADD COLUMN cancel_by text;
ALTER TABLE holdfast_jobs ADD COLUMN cancel_reason text;
ALTER TABLE holdfast_jobs ADD COLUMN cancel_move_id text;
-- How many leases of the job were lost; NULL is none.
ALTER TABLE holdfast_jobs ADD COLUMN lost integer;

-- The most jobs that may wait in a queue; NULL is no limit.
ALTER TABLE holdfast_queues ADD COLUMN depth_max bigint CHECK (depth_max >= 0);

-- Where an attempt failed, for people; redacted by the worker that writes it. Retention and erasure delete it.
CREATE TABLE holdfast_tracebacks (
  job_id  bigint NOT NULL REFERENCES holdfast_calls (job_id),
  attempt integer NOT NULL CHECK (attempt >= 1),
  text    text NOT NULL CHECK (length(text) <= 65536),
  PRIMARY KEY (job_id, attempt)
);

-- The jobs whose personal data were erased. The hash of a key keeps the key from being used again.
CREATE TABLE holdfast_erased (
  job_id    bigint PRIMARY KEY REFERENCES holdfast_calls (job_id),
  client    text NOT NULL,
  key_hash  text CHECK (key_hash <> ''),
  erased_at timestamptz NOT NULL,
  actor     text NOT NULL CHECK (actor <> ''),
  reason    text NOT NULL CHECK (reason <> ''),
  grant_id  bigint NOT NULL REFERENCES holdfast_grants (grant_id),
  move_id   text NOT NULL
);

CREATE UNIQUE INDEX holdfast_erased_key ON holdfast_erased (client, key_hash) WHERE key_hash IS NOT NULL;

-- Speed.
-- A job's row is written three times. With room for the next version in its page, the row is not locked first (a record
-- of the WAL each time), and the versions before it make room for those after it.
ALTER TABLE holdfast_jobs SET (fillfactor = 50);
