-- Settings that a whole fleet follows, and the ticks of schedules. See docs/adr/0014.

-- A value is written once: another value is another record. One record of a name is active.
CREATE TABLE holdfast_settings (
  setting_id   INTEGER PRIMARY KEY AUTOINCREMENT CHECK (setting_id > 0),
  kind         TEXT NOT NULL CHECK (kind <> ''),
  name         TEXT NOT NULL CHECK (name <> ''),
  value        TEXT NOT NULL, -- JSON
  state        TEXT NOT NULL,
  version      INTEGER NOT NULL CHECK (version >= 1),
  created_at   TEXT NOT NULL,
  updated_at   TEXT NOT NULL,
  event        TEXT NOT NULL,
  actor        TEXT NOT NULL,
  reason       TEXT NOT NULL,
  move_id      TEXT NOT NULL,
  history_from INTEGER NOT NULL DEFAULT 1 CHECK (history_from >= 1)
) STRICT;

CREATE UNIQUE INDEX holdfast_settings_active ON holdfast_settings (kind, name) WHERE state = 'active';

-- What became of each tick of a schedule. The key makes a tick fire once, whatever number of fleets try it.
CREATE TABLE holdfast_ticks (
  schedule TEXT NOT NULL,
  tick_at  TEXT NOT NULL CHECK (tick_at GLOB '????-??-??T??:??:??.??????Z'),
  outcome  TEXT NOT NULL CHECK (outcome IN ('fired', 'missed', 'overlapped')),
  job_id   INTEGER,
  at       TEXT NOT NULL,
  PRIMARY KEY (schedule, tick_at),
  CHECK ((outcome = 'fired') = (job_id IS NOT NULL))
) WITHOUT ROWID, STRICT;
