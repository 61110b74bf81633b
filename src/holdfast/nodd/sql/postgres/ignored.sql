-- Ignored records by reason and shape: a subject with `#` for each run of digits, so that their number is small.
CREATE TABLE nodd_ignored (
  reason   text NOT NULL,
  shape    text NOT NULL,
  example  text NOT NULL,
  times    bigint NOT NULL,
  first_at text NOT NULL,
  last_at  text NOT NULL,
  PRIMARY KEY (reason, shape)
);
