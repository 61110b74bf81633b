-- What moved in each minute, for charts and trends. See docs/adr/0012. Every new column may be NULL: no row is rewritten.

-- Minutes ---------------------------------------------------------------------------------------------------------------

-- A move says its event, its error code and its time where it says which counts it changes.
ALTER TABLE holdfast_count_deltas ADD COLUMN event text;
ALTER TABLE holdfast_count_deltas ADD COLUMN code text;
ALTER TABLE holdfast_count_deltas ADD COLUMN at timestamptz;

-- The moves of a minute that are alike. A fold of the deltas adds to them, and deletes those of earlier days.
CREATE TABLE holdfast_minutes (
  minute    timestamptz NOT NULL,
  operation text NOT NULL,
  queue     text NOT NULL,
  source    text NOT NULL, -- empty: the job was new
  target    text NOT NULL,
  event     text NOT NULL,
  code      text NOT NULL, -- empty: no error
  n         bigint NOT NULL,
  PRIMARY KEY (minute, operation, queue, source, target, event, code)
);
