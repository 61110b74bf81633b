-- Ignored records by reason and shape: a subject with `#` for each run of digits, so that their number is small.
CREATE TABLE nodd_ignored (
  reason   TEXT NOT NULL,
  shape    TEXT NOT NULL,
  example  TEXT NOT NULL,
  times    INTEGER NOT NULL,
  first_at TEXT NOT NULL,
  last_at  TEXT NOT NULL,
  PRIMARY KEY (reason, shape)
) WITHOUT ROWID, STRICT;
