-- Statements of settings that a fleet follows.

-- name: insert_setting
INSERT INTO holdfast_settings (kind, name, value, state, version, created_at, updated_at, event, actor, reason, move_id)
VALUES (:kind, :name, :value, :state, :version, coalesce(:now, statement_timestamp()), coalesce(:now, statement_timestamp()), :event, :actor, :reason, :move_id)
ON CONFLICT (kind, name) WHERE state = 'active' DO NOTHING
RETURNING setting_id;
