-- What moved in each minute, for charts and trends. See docs/adr/0012. Every new column may be NULL: no row is rewritten.

-- Minutes ---------------------------------------------------------------------------------------------------------------

-- A move says its event, its error code and its time where it says which counts it changes.
ALTER TABLE holdfast_count_deltas ADD COLUMN event TEXT;
ALTER TABLE holdfast_count_deltas ADD COLUMN code TEXT;
ALTER TABLE holdfast_count_deltas ADD COLUMN at TEXT;

-- The moves of a minute that are alike. A fold of the deltas adds to them, and deletes those of earlier days.
CREATE TABLE holdfast_minutes (
  minute    TEXT NOT NULL CHECK (minute GLOB '????-??-??T??:??:00.000000Z'),
  operation TEXT NOT NULL,
  queue     TEXT NOT NULL,
  source    TEXT NOT NULL, -- empty: the job was new
  target    TEXT NOT NULL,
  event     TEXT NOT NULL,
  code      TEXT NOT NULL, -- empty: no error
  n         INTEGER NOT NULL,
  PRIMARY KEY (minute, operation, queue, source, target, event, code)
) WITHOUT ROWID, STRICT;
