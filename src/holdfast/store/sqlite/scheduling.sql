-- Statements of settings that a fleet follows.

-- name: insert_setting
INSERT INTO holdfast_settings (kind, name, value, state, version, created_at, updated_at, event, actor, reason, move_id)
SELECT :kind, :name, :value, :state, :version, :now, :now, :event, :actor, :reason, :move_id
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_settings WHERE kind = :kind AND name = :name AND state = 'active')
RETURNING setting_id;
