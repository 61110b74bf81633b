-- Statements of settings that a fleet follows, and of the ticks of schedules.

-- name: active_settings
SELECT {setting_columns} FROM holdfast_settings s WHERE s.kind = :kind AND s.state = 'active' ORDER BY s.name;

-- name: get_setting
SELECT {setting_columns} FROM holdfast_settings s WHERE s.kind = :kind AND s.name = :name AND s.state = 'active';

-- name: setting_history
SELECT {setting_columns} FROM holdfast_settings s WHERE s.kind = :kind AND s.name = :name
 ORDER BY s.setting_id DESC LIMIT :n;

-- name: move_setting
UPDATE holdfast_settings
   SET state = :state, version = version + :edges, updated_at = {greatest}(updated_at, {now}), event = :event, actor = :actor,
       reason = :reason, move_id = :move_id
 WHERE setting_id = :setting_id AND state = :source AND version = :version
RETURNING setting_id;

-- name: any_schedule
SELECT 1 FROM holdfast_settings s WHERE s.kind = 'schedule' AND s.state = 'active' LIMIT 1;

-- name: last_ticks
-- rows: names of schedules. The job is the last one that the schedule submitted.
SELECT l.schedule, l.tick_at, l.job_id, j.state
  FROM (SELECT k.value AS schedule,
               (SELECT max(t.tick_at) FROM holdfast_ticks t WHERE t.schedule = k.value) AS tick_at,
               (SELECT t.job_id FROM holdfast_ticks t WHERE t.schedule = k.value AND t.outcome = 'fired'
                 ORDER BY t.tick_at DESC LIMIT 1) AS job_id
          FROM {each}(:rows) k) l
  LEFT JOIN holdfast_jobs j ON j.job_id = l.job_id
 WHERE l.tick_at IS NOT NULL;

-- name: list_ticks
SELECT t.schedule, t.tick_at, t.outcome, t.job_id, t.at FROM holdfast_ticks t WHERE t.schedule = :schedule
 ORDER BY t.tick_at DESC LIMIT :n;

-- name: record_tick
INSERT INTO holdfast_ticks (schedule, tick_at, outcome, job_id, at)
VALUES (:schedule, :tick_at, :outcome, :job_id, {now})
ON CONFLICT (schedule, tick_at) DO NOTHING
RETURNING schedule;

-- name: forget_ticks
DELETE FROM holdfast_ticks WHERE schedule = :schedule
   AND tick_at < (SELECT min(k.tick_at) FROM (SELECT tick_at FROM holdfast_ticks WHERE schedule = :schedule
                                               ORDER BY tick_at DESC LIMIT :n) k);
