-- Generated from core/machines.py and store/tables.py by `make golden`: do not edit.

-- digest of the tables: 1a0ef98adb1b6ec05102bcbc76899416e01e45b3d25ed02fdef4e567b2446294

-- trigger: holdfast_jobs_birth
CREATE TRIGGER holdfast_jobs_birth BEFORE INSERT ON holdfast_jobs
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_jobs WHERE job_id = NEW.job_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (
      NOT (
        ((NEW.state = 'pending' AND NEW.event = 'submit' AND NEW.version = 1))
        AND NEW.attempts = 0
        AND NEW.excused = 0
        AND NEW.status IS NULL
        AND NEW.lease_token IS NULL
        AND NEW.lease_owner IS NULL
        AND NEW.result IS NULL
        AND NEW.last_error_code IS NULL
        AND NEW.quarantine_code IS NULL
        AND NEW.grant_id IS NULL
        AND NEW.cancel_requested_at IS NULL
        AND NEW.cancel_by IS NULL
        AND NEW.lost IS NULL
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_jobs_once
CREATE TRIGGER holdfast_jobs_once BEFORE UPDATE OF
    operation,
    queue,
    priority,
    history_from
  ON holdfast_jobs
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.operation IS DISTINCT FROM OLD.operation
      OR NEW.queue IS DISTINCT FROM OLD.queue
      OR NEW.priority IS DISTINCT FROM OLD.priority
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_jobs_move
CREATE TRIGGER holdfast_jobs_move BEFORE UPDATE ON holdfast_jobs
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.job_id <> OLD.job_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (
      NEW.version < OLD.version
      OR NEW.attempts < OLD.attempts
      OR NEW.excused < OLD.excused
      OR NEW.lease_token < OLD.lease_token
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
    AND (
      NEW.move_id = OLD.move_id
      OR NEW.updated_at < OLD.updated_at
      OR (NEW.state <> OLD.state AND NEW.version <= OLD.version)
    );
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NOT (
          (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'succeeded'
            AND OLD.status IN ('IN_PROGRESS', 'COMMITTED')
            AND NEW.status = 'DONE'
            AND NEW.event IN ('succeed')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('LEASED')
            AND NEW.status = 'IN_PROGRESS'
            AND NEW.event IN ('start')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'running'
            AND OLD.status IS NULL
            AND NEW.status = 'LEASED'
            AND NEW.event IN ('claim')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts + 1
            AND NEW.lease_token > coalesce(OLD.lease_token, 0)
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'failed'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('fail')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'pending'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'expire', 'revoke', 'give_back')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('retry', 'replay')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'quarantined'
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 2
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused <= OLD.excused + 1
          )
          OR (
            OLD.state = 'failed'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'pending'
            AND NEW.state = 'quarantined'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('quarantine', 'cancel', 'lapse')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'quarantined'
            AND NEW.state = 'pending'
            AND OLD.status IS NULL
            AND NEW.status IS NULL
            AND NEW.event IN ('release')
            AND NEW.version = OLD.version + 1
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'running'
            AND OLD.status IN ('IN_PROGRESS')
            AND NEW.status = 'COMMITTED'
            AND NEW.event IN ('commit')
            AND NEW.version = OLD.version + 0
            AND NEW.attempts = OLD.attempts
            AND NEW.lease_token IS NOT DISTINCT FROM OLD.lease_token
            AND NEW.lease_owner IS NOT DISTINCT FROM OLD.lease_owner
            AND NEW.excused = OLD.excused
          )
        )
      )
      OR (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.version <> OLD.version
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
    );
  SELECT RAISE(ABORT, 'HF012 retention has deleted the payload, so the record cannot change its state') WHERE
    OLD.state = 'quarantined'
    AND NEW.state = 'pending'
    AND EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = NEW.job_id AND c.payload IS NULL);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    OLD.cancel_requested_at IS NOT NULL
    AND OLD.status IS NOT NULL
    AND NEW.status IS NULL
    AND NEW.event <> 'cancel'
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NOT (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND (
          NEW.attempts IS DISTINCT FROM OLD.attempts
          OR NEW.excused IS DISTINCT FROM OLD.excused
          OR NEW.lease_token IS DISTINCT FROM OLD.lease_token
          OR NEW.run_at IS DISTINCT FROM OLD.run_at
          OR NEW.due_at IS DISTINCT FROM OLD.due_at
          OR NEW.resting IS DISTINCT FROM OLD.resting
          OR NEW.lease_owner IS DISTINCT FROM OLD.lease_owner
          OR NEW.last_attempt_at IS DISTINCT FROM OLD.last_attempt_at
          OR NEW.started_at IS DISTINCT FROM OLD.started_at
          OR NEW.result IS DISTINCT FROM OLD.result
          OR NEW.last_error_code IS DISTINCT FROM OLD.last_error_code
          OR NEW.last_error_message IS DISTINCT FROM OLD.last_error_message
          OR NEW.excuse_code IS DISTINCT FROM OLD.excuse_code
          OR NEW.excuse_message IS DISTINCT FROM OLD.excuse_message
          OR NEW.quarantine_code IS DISTINCT FROM OLD.quarantine_code
          OR NEW.replay_reason IS DISTINCT FROM OLD.replay_reason
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.lost IS DISTINCT FROM OLD.lost
          OR (
            OLD.state <> 'running'
            AND (
              NEW.progress IS DISTINCT FROM OLD.progress
              OR NEW.progress_note IS DISTINCT FROM OLD.progress_note
            )
          )
        )
      )
      OR (
        (NEW.state <> OLD.state OR NEW.status IS DISTINCT FROM OLD.status)
        AND NEW.result IS DISTINCT FROM OLD.result
        AND (OLD.result IS NOT NULL OR NEW.status IS NULL OR NEW.status NOT IN ('COMMITTED', 'DONE'))
      )
      OR (
        (
          NEW.cancel_requested_at IS DISTINCT FROM OLD.cancel_requested_at
          OR NEW.cancel_by IS DISTINCT FROM OLD.cancel_by
          OR NEW.cancel_reason IS DISTINCT FROM OLD.cancel_reason
          OR NEW.cancel_move_id IS DISTINCT FROM OLD.cancel_move_id
        )
        AND (
          (
            OLD.cancel_requested_at IS NULL
            AND NEW.cancel_requested_at IS NOT NULL
            AND NEW.cancel_by IS NOT NULL
            AND NEW.cancel_move_id IS NOT NULL
            AND OLD.status IN ('LEASED', 'IN_PROGRESS')
            AND NEW.status = OLD.status
          )
          OR (
            NEW.cancel_requested_at IS NULL
            AND NEW.cancel_by IS NULL
            AND NEW.cancel_reason IS NULL
            AND NEW.cancel_move_id IS NULL
            AND (NEW.state = 'pending' OR NEW.attempts > OLD.attempts)
          )
        ) IS NOT TRUE
      )
      OR (
        NEW.lost IS DISTINCT FROM OLD.lost
        AND (
          NEW.lost = coalesce(OLD.lost, 0) + 1
          AND OLD.status IS NOT NULL
          AND NEW.status IS NULL
        ) IS NOT TRUE
      )
      OR (
        NEW.deadline_at IS DISTINCT FROM OLD.deadline_at
        AND NOT (OLD.deadline_at IS NULL AND NEW.version = 1 AND OLD.version = 1)
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_jobs_delete
CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_jobs_rewritten
CREATE TRIGGER holdfast_jobs_rewritten AFTER UPDATE OF
  operation, queue, priority, run_at, result, last_error_code, last_error_message, excuse_code, excuse_message,
  quarantine_code, replay_reason, event, actor, reason, move_id, grant_id
  ON holdfast_jobs
WHEN NEW.state = OLD.state
  AND (
    NEW.operation IS DISTINCT FROM OLD.operation
    OR NEW.queue IS DISTINCT FROM OLD.queue
    OR NEW.priority IS DISTINCT FROM OLD.priority
    OR NEW.run_at IS DISTINCT FROM OLD.run_at
    OR (NEW.result IS NOT NULL AND NEW.result IS DISTINCT FROM OLD.result)
    OR NEW.last_error_code IS DISTINCT FROM OLD.last_error_code
    OR NEW.last_error_message IS DISTINCT FROM OLD.last_error_message
    OR NEW.excuse_code IS DISTINCT FROM OLD.excuse_code
    OR NEW.excuse_message IS DISTINCT FROM OLD.excuse_message
    OR NEW.quarantine_code IS DISTINCT FROM OLD.quarantine_code
    OR NEW.replay_reason IS DISTINCT FROM OLD.replay_reason
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'JOB ' || NEW.job_id || ':' || CASE
      WHEN NEW.operation IS DISTINCT FROM OLD.operation
      THEN ' operation'
      ELSE ''
      END || CASE
      WHEN NEW.queue IS DISTINCT FROM OLD.queue
      THEN ' queue'
      ELSE ''
      END || CASE
      WHEN NEW.priority IS DISTINCT FROM OLD.priority
      THEN ' priority'
      ELSE ''
      END || CASE
      WHEN NEW.run_at IS DISTINCT FROM OLD.run_at
      THEN ' run_at'
      ELSE ''
      END || CASE
      WHEN (NEW.result IS NOT NULL AND NEW.result IS DISTINCT FROM OLD.result)
      THEN ' result'
      ELSE ''
      END || CASE
      WHEN NEW.last_error_code IS DISTINCT FROM OLD.last_error_code
      THEN ' last_error_code'
      ELSE ''
      END || CASE
      WHEN NEW.last_error_message IS DISTINCT FROM OLD.last_error_message
      THEN ' last_error_message'
      ELSE ''
      END || CASE
      WHEN NEW.excuse_code IS DISTINCT FROM OLD.excuse_code
      THEN ' excuse_code'
      ELSE ''
      END || CASE
      WHEN NEW.excuse_message IS DISTINCT FROM OLD.excuse_message
      THEN ' excuse_message'
      ELSE ''
      END || CASE
      WHEN NEW.quarantine_code IS DISTINCT FROM OLD.quarantine_code
      THEN ' quarantine_code'
      ELSE ''
      END || CASE
      WHEN NEW.replay_reason IS DISTINCT FROM OLD.replay_reason
      THEN ' replay_reason'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN NEW.grant_id IS DISTINCT FROM OLD.grant_id
      THEN ' grant_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_jobs_deleted
CREATE TRIGGER holdfast_jobs_deleted AFTER DELETE ON holdfast_jobs
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'JOB ' || OLD.job_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_jobs_born
CREATE TRIGGER holdfast_jobs_born AFTER INSERT ON holdfast_jobs
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    ('JOB',
    NEW.job_id,
    NEW.version,
    NULL,
    NEW.state,
    NULL,
    NULL,
    NULL,
    {epoch}, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_jobs_born_count
CREATE TRIGGER holdfast_jobs_born_count AFTER INSERT ON holdfast_jobs
WHEN 1
BEGIN
  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n, event, code, at) VALUES
    (NEW.operation, NEW.queue, NULL, NEW.state, 1, NEW.event,
    NULL, NEW.updated_at);
END;

-- trigger: holdfast_jobs_moved
CREATE TRIGGER holdfast_jobs_moved AFTER UPDATE OF state, status ON holdfast_jobs
WHEN NEW.state <> OLD.state
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    (CASE WHEN NEW.state = OLD.state THEN 'EXECUTION' ELSE 'JOB' END,
    CASE WHEN NEW.state = OLD.state THEN NEW.job_id * 1000000 + NEW.attempts ELSE NEW.job_id END,
    CASE
    WHEN NEW.state = OLD.state
    THEN CASE NEW.status
    WHEN 'IN_PROGRESS'
    THEN 2
    ELSE 3
    END
    ELSE NEW.version
    END,
    CASE WHEN NEW.state = OLD.state THEN OLD.status ELSE OLD.state END,
    CASE WHEN NEW.state = OLD.state THEN NEW.status ELSE NEW.state END,
    CASE WHEN NEW.state = OLD.state THEN NULL ELSE OLD.status END,
    CASE
    WHEN NEW.state = OLD.state
    THEN NULL
    WHEN NEW.status IS NOT NULL
    THEN NEW.status
    WHEN OLD.status IS NOT NULL
    THEN 'ABORTED'
    END,
    CASE WHEN NEW.event = 'release' THEN NEW.grant_id END,
    {epoch}, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n, event, code, at) VALUES
    (NEW.operation, NEW.queue, OLD.state, NEW.state, 1, NEW.event,
    CASE
      WHEN OLD.status IS NOT NULL AND NEW.status IS NULL
      THEN CASE WHEN NEW.excused > OLD.excused THEN NEW.excuse_code ELSE NEW.last_error_code END
      END, NEW.updated_at);
END;

-- trigger: holdfast_jobs_stepped
CREATE TRIGGER holdfast_jobs_stepped AFTER UPDATE OF state, status ON holdfast_jobs
WHEN NEW.state = OLD.state AND NEW.status IS DISTINCT FROM OLD.status
BEGIN
  INSERT INTO holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    (CASE WHEN NEW.state = OLD.state THEN 'EXECUTION' ELSE 'JOB' END,
    CASE WHEN NEW.state = OLD.state THEN NEW.job_id * 1000000 + NEW.attempts ELSE NEW.job_id END,
    CASE
    WHEN NEW.state = OLD.state
    THEN CASE NEW.status
    WHEN 'IN_PROGRESS'
    THEN 2
    ELSE 3
    END
    ELSE NEW.version
    END,
    CASE WHEN NEW.state = OLD.state THEN OLD.status ELSE OLD.state END,
    CASE WHEN NEW.state = OLD.state THEN NEW.status ELSE NEW.state END,
    CASE WHEN NEW.state = OLD.state THEN NULL ELSE OLD.status END,
    CASE
    WHEN NEW.state = OLD.state
    THEN NULL
    WHEN NEW.status IS NOT NULL
    THEN NEW.status
    WHEN OLD.status IS NOT NULL
    THEN 'ABORTED'
    END,
    CASE WHEN NEW.event = 'release' THEN NEW.grant_id END,
    {epoch}, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_jobs_requested
CREATE TRIGGER holdfast_jobs_requested AFTER UPDATE OF cancel_requested_at ON holdfast_jobs
WHEN OLD.cancel_requested_at IS NULL
  AND NEW.cancel_requested_at IS NOT NULL
  AND NEW.cancel_by IS NOT NULL
  AND NEW.cancel_move_id IS NOT NULL
BEGIN
  INSERT INTO holdfast_journal
    (machine, subject, version, source, target, epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    ('REQUEST', NEW.job_id, NEW.attempts, NULL, 'requested', {epoch}, 0,
    'request_cancel', NEW.cancel_by, NEW.cancel_reason, NEW.attempts, NEW.cancel_move_id,
    (SELECT maintenance_id FROM holdfast_maintenance),
    NEW.cancel_requested_at);
END;

-- trigger: holdfast_jobs_aborted
CREATE TRIGGER holdfast_jobs_aborted AFTER UPDATE OF state, status ON holdfast_jobs
WHEN OLD.status IS NOT NULL AND NEW.status IS NULL
BEGIN
  INSERT INTO holdfast_aborted
    (job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at,
    created_at, started_at, finished_at, cancel_requested_at, progress, progress_note,
    event, actor, reason, move_id, error_code, error_message)
  VALUES
    (NEW.job_id, NEW.attempts,
    CASE OLD.status WHEN 'LEASED' THEN 2 WHEN 'IN_PROGRESS' THEN 3 WHEN 'COMMITTED' THEN 4 WHEN 'DONE' THEN 5 END,
    NEW.excused > OLD.excused,
    OLD.lease_owner, OLD.lease_token, coalesce(OLD.lease_expires_at, OLD.updated_at),
    OLD.last_attempt_at, OLD.started_at, NEW.updated_at, OLD.cancel_requested_at, OLD.progress,
    OLD.progress_note, NEW.event, NEW.actor, NEW.reason, NEW.move_id,
    CASE WHEN NEW.excused > OLD.excused THEN NEW.excuse_code ELSE NEW.last_error_code END,
    CASE WHEN NEW.excused > OLD.excused THEN NEW.excuse_message ELSE NEW.last_error_message END);
END;

-- trigger: holdfast_calls_birth
CREATE TRIGGER holdfast_calls_birth BEFORE INSERT ON holdfast_calls
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_calls WHERE job_id = NEW.job_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_calls WHERE client = NEW.client AND key = NEW.key AND 1);
END;

-- trigger: holdfast_calls_once
CREATE TRIGGER holdfast_calls_once BEFORE UPDATE ON holdfast_calls
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.job_id IS DISTINCT FROM OLD.job_id
      OR NEW.operation_version IS DISTINCT FROM OLD.operation_version
      OR NEW.client IS DISTINCT FROM OLD.client
      OR NEW.key IS DISTINCT FROM OLD.key
      OR NEW.payload IS DISTINCT FROM OLD.payload
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.max_attempts IS DISTINCT FROM OLD.max_attempts
      OR NEW.replay_attempts IS DISTINCT FROM OLD.replay_attempts
      OR NEW.replaces IS DISTINCT FROM OLD.replaces
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_calls_delete
CREATE TRIGGER holdfast_calls_delete BEFORE DELETE ON holdfast_calls
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_calls_rewritten
CREATE TRIGGER holdfast_calls_rewritten AFTER UPDATE ON holdfast_calls
WHEN (
    NEW.job_id IS DISTINCT FROM OLD.job_id
    OR NEW.operation_version IS DISTINCT FROM OLD.operation_version
    OR NEW.client IS DISTINCT FROM OLD.client
    OR NEW.key IS DISTINCT FROM OLD.key
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.max_attempts IS DISTINCT FROM OLD.max_attempts
    OR NEW.replay_attempts IS DISTINCT FROM OLD.replay_attempts
    OR NEW.replaces IS DISTINCT FROM OLD.replaces
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR (NEW.payload IS DISTINCT FROM OLD.payload AND NEW.payload IS NOT NULL)
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'CALL ' || NEW.job_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_aborted_insert
CREATE TRIGGER holdfast_aborted_insert BEFORE INSERT ON holdfast_aborted
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (SELECT 1 FROM holdfast_aborted WHERE job_id = NEW.job_id AND attempt = NEW.attempt AND 1)
    OR (
      NOT EXISTS (
        SELECT 1 FROM holdfast_jobs r
        WHERE r.job_id = NEW.job_id
        AND r.attempts = NEW.attempt
        AND r.status IS NULL
        AND r.move_id = NEW.move_id
        AND r.lease_token = NEW.lease_token
        AND r.lease_owner = NEW.lease_owner
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END;

-- trigger: holdfast_aborted_update
CREATE TRIGGER holdfast_aborted_update BEFORE UPDATE ON holdfast_aborted
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_aborted_delete
CREATE TRIGGER holdfast_aborted_delete BEFORE DELETE ON holdfast_aborted
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_tracebacks_insert
CREATE TRIGGER holdfast_tracebacks_insert BEFORE INSERT ON holdfast_tracebacks
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_tracebacks WHERE job_id = NEW.job_id AND attempt = NEW.attempt AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_jobs r WHERE r.job_id = NEW.job_id AND r.attempts >= NEW.attempt);
END;

-- trigger: holdfast_tracebacks_update
CREATE TRIGGER holdfast_tracebacks_update BEFORE UPDATE ON holdfast_tracebacks
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_tracebacks_delete
CREATE TRIGGER holdfast_tracebacks_delete BEFORE DELETE ON holdfast_tracebacks
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_erased_insert
CREATE TRIGGER holdfast_erased_insert BEFORE INSERT ON holdfast_erased
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_erased WHERE job_id = NEW.job_id AND 1)
    OR EXISTS (SELECT 1 FROM holdfast_erased WHERE client = NEW.client AND key_hash = NEW.key_hash AND 1);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    OR NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.move_id = NEW.move_id
      AND g.action = 'erase'
    );
END;

-- trigger: holdfast_erased_update
CREATE TRIGGER holdfast_erased_update BEFORE UPDATE ON holdfast_erased
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_erased_delete
CREATE TRIGGER holdfast_erased_delete BEFORE DELETE ON holdfast_erased
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_grants_birth
CREATE TRIGGER holdfast_grants_birth BEFORE INSERT ON holdfast_grants
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_grants WHERE grant_id = NEW.grant_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('draft', 'active')
    AND EXISTS (
      SELECT 1 FROM holdfast_grants
      WHERE action = NEW.action
      AND target = NEW.target
      AND scope = NEW.scope
      AND state IN ('draft', 'active')
      AND grant_id IS NOT NEW.grant_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'draft' AND NEW.event = 'request' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_grants_once
CREATE TRIGGER holdfast_grants_once BEFORE UPDATE OF
    action,
    target,
    scope,
    requested_by,
    expires_at,
    requested_via,
    created_at,
    history_from
  ON holdfast_grants
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.action IS DISTINCT FROM OLD.action
      OR NEW.target IS DISTINCT FROM OLD.target
      OR NEW.scope IS DISTINCT FROM OLD.scope
      OR NEW.requested_by IS DISTINCT FROM OLD.requested_by
      OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
      OR NEW.requested_via IS DISTINCT FROM OLD.requested_via
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_grants_move
CREATE TRIGGER holdfast_grants_move BEFORE UPDATE ON holdfast_grants
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.grant_id <> OLD.grant_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'draft'
            AND NEW.state = 'active'
            AND NEW.event IN ('approve')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'consumed'
            AND NEW.event IN ('consume')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'draft'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'revoked'
            AND NEW.event IN ('revoke')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'expired'
            AND NEW.event IN ('expire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.approved_by IS DISTINCT FROM OLD.approved_by
          OR NEW.consumed_by IS DISTINCT FROM OLD.consumed_by
          OR NEW.approved_via IS DISTINCT FROM OLD.approved_via
          OR NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
      OR (NEW.approved_by IS DISTINCT FROM OLD.approved_by AND NEW.event <> 'approve')
      OR (NEW.approved_via IS DISTINCT FROM OLD.approved_via AND NEW.event <> 'approve')
      OR (NEW.consumed_by IS DISTINCT FROM OLD.consumed_by AND NEW.event <> 'consume')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_grants_delete
CREATE TRIGGER holdfast_grants_delete BEFORE DELETE ON holdfast_grants
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_grants_rewritten
CREATE TRIGGER holdfast_grants_rewritten AFTER UPDATE OF
  action, target, scope, requested_by, expires_at, requested_via, created_at, approved_by, consumed_by,
  approved_via, event, actor, reason, move_id
  ON holdfast_grants
WHEN NEW.state = OLD.state
  AND (
    NEW.action IS DISTINCT FROM OLD.action
    OR NEW.target IS DISTINCT FROM OLD.target
    OR NEW.scope IS DISTINCT FROM OLD.scope
    OR NEW.requested_by IS DISTINCT FROM OLD.requested_by
    OR NEW.expires_at IS DISTINCT FROM OLD.expires_at
    OR NEW.requested_via IS DISTINCT FROM OLD.requested_via
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.approved_by IS DISTINCT FROM OLD.approved_by
    OR NEW.consumed_by IS DISTINCT FROM OLD.consumed_by
    OR NEW.approved_via IS DISTINCT FROM OLD.approved_via
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'GRANT ' || NEW.grant_id || ':' || CASE
      WHEN NEW.action IS DISTINCT FROM OLD.action
      THEN ' action'
      ELSE ''
      END || CASE
      WHEN NEW.target IS DISTINCT FROM OLD.target
      THEN ' target'
      ELSE ''
      END || CASE
      WHEN NEW.scope IS DISTINCT FROM OLD.scope
      THEN ' scope'
      ELSE ''
      END || CASE
      WHEN NEW.requested_by IS DISTINCT FROM OLD.requested_by
      THEN ' requested_by'
      ELSE ''
      END || CASE
      WHEN NEW.expires_at IS DISTINCT FROM OLD.expires_at
      THEN ' expires_at'
      ELSE ''
      END || CASE
      WHEN NEW.requested_via IS DISTINCT FROM OLD.requested_via
      THEN ' requested_via'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.approved_by IS DISTINCT FROM OLD.approved_by
      THEN ' approved_by'
      ELSE ''
      END || CASE
      WHEN NEW.consumed_by IS DISTINCT FROM OLD.consumed_by
      THEN ' consumed_by'
      ELSE ''
      END || CASE
      WHEN NEW.approved_via IS DISTINCT FROM OLD.approved_via
      THEN ' approved_via'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_grants_deleted
CREATE TRIGGER holdfast_grants_deleted AFTER DELETE ON holdfast_grants
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'GRANT ' || OLD.grant_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_grants_born
CREATE TRIGGER holdfast_grants_born AFTER INSERT ON holdfast_grants
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'GRANT', NEW.grant_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NEW.grant_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_grants_moved
CREATE TRIGGER holdfast_grants_moved AFTER UPDATE OF state ON holdfast_grants
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'GRANT', NEW.grant_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NEW.grant_id,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_procedures_birth
CREATE TRIGGER holdfast_procedures_birth BEFORE INSERT ON holdfast_procedures
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE run_id = NEW.run_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_procedures WHERE idempotency_root = NEW.idempotency_root AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'planned' AND NEW.event = 'plan' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_procedures_once
CREATE TRIGGER holdfast_procedures_once BEFORE UPDATE OF
    idempotency_root,
    procedure,
    params,
    plan,
    lease,
    created_at,
    history_from
  ON holdfast_procedures
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
      OR NEW.procedure IS DISTINCT FROM OLD.procedure
      OR NEW.params IS DISTINCT FROM OLD.params
      OR NEW.plan IS DISTINCT FROM OLD.plan
      OR NEW.lease IS DISTINCT FROM OLD.lease
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_procedures_move
CREATE TRIGGER holdfast_procedures_move BEFORE UPDATE ON holdfast_procedures
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.run_id <> OLD.run_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version OR NEW.step < OLD.step) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'planned'
            AND NEW.state = 'running'
            AND NEW.event IN ('run')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'done'
            AND NEW.event IN ('finish')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'planned'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('abort')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'running'
            AND NEW.state = 'compensating'
            AND NEW.event IN ('compensate')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'compensating'
            AND NEW.state = 'stopped'
            AND NEW.event IN ('stop')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'stopped'
            AND NEW.state = 'running'
            AND NEW.event IN ('resume')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.stop_state IS DISTINCT FROM OLD.stop_state
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_procedures_delete
CREATE TRIGGER holdfast_procedures_delete BEFORE DELETE ON holdfast_procedures
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_procedures_rewritten
CREATE TRIGGER holdfast_procedures_rewritten AFTER UPDATE OF
  idempotency_root, procedure, params, plan, lease, created_at, stop_state, grant_id, event, actor, reason,
  move_id
  ON holdfast_procedures
WHEN NEW.state = OLD.state
  AND (
    NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
    OR NEW.procedure IS DISTINCT FROM OLD.procedure
    OR NEW.params IS DISTINCT FROM OLD.params
    OR NEW.plan IS DISTINCT FROM OLD.plan
    OR NEW.lease IS DISTINCT FROM OLD.lease
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.stop_state IS DISTINCT FROM OLD.stop_state
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'PROCEDURE ' || NEW.run_id || ':' || CASE
      WHEN NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
      THEN ' idempotency_root'
      ELSE ''
      END || CASE
      WHEN NEW.procedure IS DISTINCT FROM OLD.procedure
      THEN ' procedure'
      ELSE ''
      END || CASE
      WHEN NEW.params IS DISTINCT FROM OLD.params
      THEN ' params'
      ELSE ''
      END || CASE
      WHEN NEW.plan IS DISTINCT FROM OLD.plan
      THEN ' plan'
      ELSE ''
      END || CASE
      WHEN NEW.lease IS DISTINCT FROM OLD.lease
      THEN ' lease'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.stop_state IS DISTINCT FROM OLD.stop_state
      THEN ' stop_state'
      ELSE ''
      END || CASE
      WHEN NEW.grant_id IS DISTINCT FROM OLD.grant_id
      THEN ' grant_id'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_procedures_deleted
CREATE TRIGGER holdfast_procedures_deleted AFTER DELETE ON holdfast_procedures
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'PROCEDURE ' || OLD.run_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_procedures_born
CREATE TRIGGER holdfast_procedures_born AFTER INSERT ON holdfast_procedures
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'PROCEDURE', NEW.run_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_procedures_moved
CREATE TRIGGER holdfast_procedures_moved AFTER UPDATE OF state ON holdfast_procedures
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'PROCEDURE', NEW.run_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_steps_birth
CREATE TRIGGER holdfast_steps_birth BEFORE INSERT ON holdfast_steps
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_steps WHERE step_id = NEW.step_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('performed')
    AND EXISTS (
      SELECT 1 FROM holdfast_steps
      WHERE run_id = NEW.run_id
      AND number = NEW.number
      AND state IN ('performed')
      AND step_id IS NOT NEW.step_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'performed' AND NEW.event = 'perform' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_steps_once
CREATE TRIGGER holdfast_steps_once BEFORE UPDATE OF
    run_id,
    number,
    name,
    outcome,
    created_at,
    history_from
  ON holdfast_steps
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.number IS DISTINCT FROM OLD.number
      OR NEW.name IS DISTINCT FROM OLD.name
      OR NEW.outcome IS DISTINCT FROM OLD.outcome
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_steps_move
CREATE TRIGGER holdfast_steps_move BEFORE UPDATE ON holdfast_steps
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.step_id <> OLD.step_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'performed'
            AND NEW.state = 'undone'
            AND NEW.event IN ('undo')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_steps_delete
CREATE TRIGGER holdfast_steps_delete BEFORE DELETE ON holdfast_steps
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_steps_rewritten
CREATE TRIGGER holdfast_steps_rewritten AFTER UPDATE OF
  run_id, number, name, outcome, created_at, event, actor, reason, move_id
  ON holdfast_steps
WHEN NEW.state = OLD.state
  AND (
    NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.number IS DISTINCT FROM OLD.number
    OR NEW.name IS DISTINCT FROM OLD.name
    OR NEW.outcome IS DISTINCT FROM OLD.outcome
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'STEP ' || NEW.step_id || ':' || CASE
      WHEN NEW.run_id IS DISTINCT FROM OLD.run_id
      THEN ' run_id'
      ELSE ''
      END || CASE
      WHEN NEW.number IS DISTINCT FROM OLD.number
      THEN ' number'
      ELSE ''
      END || CASE
      WHEN NEW.name IS DISTINCT FROM OLD.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN NEW.outcome IS DISTINCT FROM OLD.outcome
      THEN ' outcome'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_steps_deleted
CREATE TRIGGER holdfast_steps_deleted AFTER DELETE ON holdfast_steps
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'STEP ' || OLD.step_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_steps_born
CREATE TRIGGER holdfast_steps_born AFTER INSERT ON holdfast_steps
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'STEP', NEW.step_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_steps_moved
CREATE TRIGGER holdfast_steps_moved AFTER UPDATE OF state ON holdfast_steps
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'STEP', NEW.step_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_values_birth
CREATE TRIGGER holdfast_values_birth BEFORE INSERT ON holdfast_values
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_values WHERE value_id = NEW.value_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND protocol_version = NEW.protocol_version
      AND 1
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_values WHERE vocab_id = NEW.vocab_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('active')
    AND NEW.status <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND status <> 'withheld'
      AND value_id IS NOT NEW.value_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'active' AND NEW.event = 'admit' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NEW.state IN ('active')
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND (
        g.move_id = NEW.move_id
        OR EXISTS (
          SELECT 1 FROM holdfast_procedures p
          WHERE p.run_id = NEW.run_id
          AND p.grant_id = g.grant_id
          AND p.state = 'running'
          AND NEW.status = 'staged'
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_values_once
CREATE TRIGGER holdfast_values_once BEFORE UPDATE OF
    vocab_id,
    collection,
    operation_code,
    protocol_version,
    act_type,
    semantics,
    authority_ref,
    digest,
    run_id,
    created_at,
    history_from
  ON holdfast_values
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.vocab_id IS DISTINCT FROM OLD.vocab_id
      OR NEW.collection IS DISTINCT FROM OLD.collection
      OR NEW.operation_code IS DISTINCT FROM OLD.operation_code
      OR NEW.protocol_version IS DISTINCT FROM OLD.protocol_version
      OR NEW.act_type IS DISTINCT FROM OLD.act_type
      OR NEW.semantics IS DISTINCT FROM OLD.semantics
      OR NEW.authority_ref IS DISTINCT FROM OLD.authority_ref
      OR NEW.digest IS DISTINCT FROM OLD.digest
      OR NEW.run_id IS DISTINCT FROM OLD.run_id
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_values_move
CREATE TRIGGER holdfast_values_move BEFORE UPDATE ON holdfast_values
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.value_id <> OLD.value_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'active'
            AND NEW.state = 'superseded'
            AND NEW.event IN ('supersede')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'retired'
            AND NEW.event IN ('retire')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    ((OLD.state = 'active' AND NEW.state = 'superseded') OR (OLD.state = 'active' AND NEW.state = 'retired'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_values r
        WHERE r.grant_id = NEW.grant_id
        AND r.value_id <> NEW.value_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.value_id
          AND j.machine = 'VALUE'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    );
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NEW.status IS DISTINCT FROM OLD.status
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_procedures p
      WHERE p.lease = 'registry:' || NEW.collection
      AND p.state IN ('running', 'compensating')
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.successor_code IS DISTINCT FROM OLD.successor_code
          OR NEW.successor_version IS DISTINCT FROM OLD.successor_version
          OR NEW.rollback_ref IS DISTINCT FROM OLD.rollback_ref
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.updated_at < OLD.updated_at
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.status <> OLD.status
    AND NEW.state IN ('active')
    AND NEW.status <> 'withheld'
    AND EXISTS (
      SELECT 1 FROM holdfast_values
      WHERE operation_code = NEW.operation_code
      AND act_type = NEW.act_type
      AND state IN ('active')
      AND status <> 'withheld'
      AND value_id IS NOT NEW.value_id
    );
END;

-- trigger: holdfast_values_delete
CREATE TRIGGER holdfast_values_delete BEFORE DELETE ON holdfast_values
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_values_rewritten
CREATE TRIGGER holdfast_values_rewritten AFTER UPDATE OF
  vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref, digest, run_id,
  created_at, event, actor, reason, move_id, grant_id
  ON holdfast_values
WHEN NEW.state = OLD.state
  AND (
    NEW.vocab_id IS DISTINCT FROM OLD.vocab_id
    OR NEW.collection IS DISTINCT FROM OLD.collection
    OR NEW.operation_code IS DISTINCT FROM OLD.operation_code
    OR NEW.protocol_version IS DISTINCT FROM OLD.protocol_version
    OR NEW.act_type IS DISTINCT FROM OLD.act_type
    OR NEW.semantics IS DISTINCT FROM OLD.semantics
    OR NEW.authority_ref IS DISTINCT FROM OLD.authority_ref
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'VALUE ' || NEW.value_id || ':' || CASE
      WHEN NEW.vocab_id IS DISTINCT FROM OLD.vocab_id
      THEN ' vocab_id'
      ELSE ''
      END || CASE
      WHEN NEW.collection IS DISTINCT FROM OLD.collection
      THEN ' collection'
      ELSE ''
      END || CASE
      WHEN NEW.operation_code IS DISTINCT FROM OLD.operation_code
      THEN ' operation_code'
      ELSE ''
      END || CASE
      WHEN NEW.protocol_version IS DISTINCT FROM OLD.protocol_version
      THEN ' protocol_version'
      ELSE ''
      END || CASE
      WHEN NEW.act_type IS DISTINCT FROM OLD.act_type
      THEN ' act_type'
      ELSE ''
      END || CASE
      WHEN NEW.semantics IS DISTINCT FROM OLD.semantics
      THEN ' semantics'
      ELSE ''
      END || CASE
      WHEN NEW.authority_ref IS DISTINCT FROM OLD.authority_ref
      THEN ' authority_ref'
      ELSE ''
      END || CASE
      WHEN NEW.digest IS DISTINCT FROM OLD.digest
      THEN ' digest'
      ELSE ''
      END || CASE
      WHEN NEW.run_id IS DISTINCT FROM OLD.run_id
      THEN ' run_id'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN NEW.grant_id IS DISTINCT FROM OLD.grant_id
      THEN ' grant_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_values_deleted
CREATE TRIGGER holdfast_values_deleted AFTER DELETE ON holdfast_values
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'VALUE ' || OLD.value_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_values_born
CREATE TRIGGER holdfast_values_born AFTER INSERT ON holdfast_values
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'VALUE', NEW.value_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE WHEN NEW.state = 'active' THEN NEW.grant_id END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_values_moved
CREATE TRIGGER holdfast_values_moved AFTER UPDATE OF state ON holdfast_values
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'VALUE', NEW.value_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE
    WHEN OLD.state = 'active'
    AND NEW.state = 'superseded'
    OR OLD.state = 'active'
    AND NEW.state = 'retired'
    THEN NEW.grant_id
    END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_switches_birth
CREATE TRIGGER holdfast_switches_birth BEFORE INSERT ON holdfast_switches
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_switches WHERE switch_id = NEW.switch_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('on')
    AND EXISTS (
      SELECT 1 FROM holdfast_switches
      WHERE name = NEW.name
      AND state IN ('on')
      AND switch_id IS NOT NEW.switch_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'on' AND NEW.event = 'throw' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_switches_once
CREATE TRIGGER holdfast_switches_once BEFORE UPDATE OF
    name,
    thrown_by,
    created_at,
    history_from
  ON holdfast_switches
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.name IS DISTINCT FROM OLD.name
      OR NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_switches_move
CREATE TRIGGER holdfast_switches_move BEFORE UPDATE ON holdfast_switches
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.switch_id <> OLD.switch_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (OLD.state = 'on' AND NEW.state = 'off' AND NEW.event IN ('lift') AND NEW.version = OLD.version + 1)
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    ((OLD.state = 'on' AND NEW.state = 'off'))
    AND NOT (
      EXISTS (
        SELECT 1 FROM holdfast_grants g
        WHERE g.grant_id = NEW.grant_id
        AND g.state = 'consumed'
        AND g.move_id = NEW.move_id
      )
      AND NEW.grant_id IS DISTINCT FROM OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM holdfast_switches r
        WHERE r.grant_id = NEW.grant_id
        AND r.switch_id <> NEW.switch_id
        AND r.version > 1
      )
      OR (
        NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
        AND EXISTS (
          SELECT 1 FROM holdfast_journal j
          WHERE j.subject = NEW.switch_id
          AND j.machine = 'SWITCH'
          AND j.target = NEW.state
          AND j.grant_id IS NOT NULL
        )
      )
    );
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_switches_delete
CREATE TRIGGER holdfast_switches_delete BEFORE DELETE ON holdfast_switches
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_switches_rewritten
CREATE TRIGGER holdfast_switches_rewritten AFTER UPDATE OF
  name, thrown_by, created_at, event, actor, reason, move_id, grant_id
  ON holdfast_switches
WHEN NEW.state = OLD.state
  AND (
    NEW.name IS DISTINCT FROM OLD.name
    OR NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'SWITCH ' || NEW.switch_id || ':' || CASE
      WHEN NEW.name IS DISTINCT FROM OLD.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
      THEN ' thrown_by'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN NEW.grant_id IS DISTINCT FROM OLD.grant_id
      THEN ' grant_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_switches_deleted
CREATE TRIGGER holdfast_switches_deleted AFTER DELETE ON holdfast_switches
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'SWITCH ' || OLD.switch_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_switches_born
CREATE TRIGGER holdfast_switches_born AFTER INSERT ON holdfast_switches
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'SWITCH', NEW.switch_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_switches_moved
CREATE TRIGGER holdfast_switches_moved AFTER UPDATE OF state ON holdfast_switches
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'SWITCH', NEW.switch_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    CASE WHEN OLD.state = 'on' AND NEW.state = 'off' THEN NEW.grant_id END,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_settings_birth
CREATE TRIGGER holdfast_settings_birth BEFORE INSERT ON holdfast_settings
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_settings WHERE setting_id = NEW.setting_id AND 1);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    NEW.state IN ('active')
    AND EXISTS (
      SELECT 1 FROM holdfast_settings
      WHERE kind = NEW.kind
      AND name = NEW.name
      AND state IN ('active')
      AND setting_id IS NOT NEW.setting_id
    );
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NOT (((NEW.state = 'active' AND NEW.event = 'set' AND NEW.version = 1))))
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_settings_once
CREATE TRIGGER holdfast_settings_once BEFORE UPDATE OF
    kind,
    name,
    value,
    created_at,
    history_from
  ON holdfast_settings
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.kind IS DISTINCT FROM OLD.kind
      OR NEW.name IS DISTINCT FROM OLD.name
      OR NEW.value IS DISTINCT FROM OLD.value
      OR NEW.created_at IS DISTINCT FROM OLD.created_at
      OR NEW.history_from IS DISTINCT FROM OLD.history_from
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_settings_move
CREATE TRIGGER holdfast_settings_move BEFORE UPDATE ON holdfast_settings
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NEW.setting_id <> OLD.setting_id AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    (NEW.version < OLD.version) AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF008 a change of state needs a new move_id, a higher version and a later updated_at') WHERE
    NEW.state IS DISTINCT FROM OLD.state
    AND (NEW.move_id = OLD.move_id OR NEW.updated_at < OLD.updated_at OR NEW.version <= OLD.version);
  SELECT RAISE(ABORT, 'HF001 the transition table does not allow this event between these states and versions') WHERE
    (
      (
        NEW.state IS DISTINCT FROM OLD.state
        AND NOT (
          (
            OLD.state = 'active'
            AND NEW.state = 'replaced'
            AND NEW.event IN ('replace')
            AND NEW.version = OLD.version + 1
          )
          OR (
            OLD.state = 'active'
            AND NEW.state = 'removed'
            AND NEW.event IN ('remove')
            AND NEW.version = OLD.version + 1
          )
        )
      )
      OR (NEW.state = OLD.state AND NEW.version <> OLD.version)
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      (
        NEW.state = OLD.state
        AND (
          NEW.updated_at IS DISTINCT FROM OLD.updated_at
          OR NEW.event IS DISTINCT FROM OLD.event
          OR NEW.actor IS DISTINCT FROM OLD.actor
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.move_id IS DISTINCT FROM OLD.move_id
        )
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_settings_delete
CREATE TRIGGER holdfast_settings_delete BEFORE DELETE ON holdfast_settings
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_settings_rewritten
CREATE TRIGGER holdfast_settings_rewritten AFTER UPDATE OF
  kind, name, value, created_at, event, actor, reason, move_id
  ON holdfast_settings
WHEN NEW.state = OLD.state
  AND (
    NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.name IS DISTINCT FROM OLD.name
    OR NEW.value IS DISTINCT FROM OLD.value
    OR NEW.created_at IS DISTINCT FROM OLD.created_at
    OR NEW.event IS DISTINCT FROM OLD.event
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.reason IS DISTINCT FROM OLD.reason
    OR NEW.move_id IS DISTINCT FROM OLD.move_id
  )
  AND NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'SETTING ' || NEW.setting_id || ':' || CASE
      WHEN NEW.kind IS DISTINCT FROM OLD.kind
      THEN ' kind'
      ELSE ''
      END || CASE
      WHEN NEW.name IS DISTINCT FROM OLD.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN NEW.value IS DISTINCT FROM OLD.value
      THEN ' value'
      ELSE ''
      END || CASE
      WHEN NEW.created_at IS DISTINCT FROM OLD.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN NEW.event IS DISTINCT FROM OLD.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN NEW.actor IS DISTINCT FROM OLD.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN NEW.reason IS DISTINCT FROM OLD.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN NEW.move_id IS DISTINCT FROM OLD.move_id
      THEN ' move_id'
      ELSE ''
      END,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_settings_deleted
CREATE TRIGGER holdfast_settings_deleted AFTER DELETE ON holdfast_settings
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'SETTING ' || OLD.setting_id,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_settings_born
CREATE TRIGGER holdfast_settings_born AFTER INSERT ON holdfast_settings
WHEN NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'SETTING', NEW.setting_id, NEW.version,
    NULL, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_settings_moved
CREATE TRIGGER holdfast_settings_moved AFTER UPDATE OF state ON holdfast_settings
WHEN OLD.state <> NEW.state
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'SETTING', NEW.setting_id, NEW.version,
    OLD.state, NEW.state, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,
    NULL,
    (SELECT maintenance_id FROM holdfast_maintenance), NEW.updated_at);
END;

-- trigger: holdfast_count_deltas_folded
CREATE TRIGGER holdfast_count_deltas_folded AFTER INSERT ON holdfast_count_deltas
WHEN NEW.delta_id % 1000 = 0
BEGIN
  INSERT INTO holdfast_counts (operation, queue, state, n)
  SELECT operation, queue, CASE s.sign WHEN 1 THEN target ELSE source END AS state, sum(n * s.sign)
    FROM (SELECT operation, queue, source, target, sum(n) AS n FROM holdfast_count_deltas
           GROUP BY operation, queue, source, target) kinds
    CROSS JOIN (SELECT 1 AS sign UNION ALL SELECT -1) s
   WHERE s.sign = 1 OR source IS NOT NULL GROUP BY operation, queue, state
  ON CONFLICT (operation, queue, state) DO UPDATE SET n = holdfast_counts.n + excluded.n;
  INSERT INTO holdfast_minutes (minute, operation, queue, source, target, event, code, n)
  SELECT substr(at, 1, 17) || '00.000000Z', operation, queue, coalesce(source, ''), target, event, coalesce(code, ''),
         sum(n)
    FROM holdfast_count_deltas WHERE at IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7
  ON CONFLICT (minute, operation, queue, source, target, event, code)
    DO UPDATE SET n = holdfast_minutes.n + excluded.n;
  DELETE FROM holdfast_count_deltas;
END;

-- trigger: holdfast_journal_insert
CREATE TRIGGER holdfast_journal_insert BEFORE INSERT ON holdfast_journal
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (
      SELECT 1 FROM holdfast_journal
      WHERE machine = NEW.machine
      AND subject = NEW.subject
      AND version = NEW.version
    )
    OR (NEW.seq <> -1 AND EXISTS (SELECT 1 FROM holdfast_journal WHERE seq = NEW.seq))
    OR (
      NOT (
        typeof(NEW.version) = 'integer'
        AND CASE NEW.machine
        WHEN 'JOB'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'GRANT'
        THEN EXISTS (
          SELECT 1 FROM holdfast_grants r
          WHERE r.grant_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'PROCEDURE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_procedures r
          WHERE r.run_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'STEP'
        THEN EXISTS (
          SELECT 1 FROM holdfast_steps r
          WHERE r.step_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'VALUE'
        THEN EXISTS (
          SELECT 1 FROM holdfast_values r
          WHERE r.value_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'SWITCH'
        THEN EXISTS (
          SELECT 1 FROM holdfast_switches r
          WHERE r.switch_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'SETTING'
        THEN EXISTS (
          SELECT 1 FROM holdfast_settings r
          WHERE r.setting_id = NEW.subject
          AND r.move_id = NEW.move_id
          AND r.version = NEW.version
          AND NEW.version >= r.history_from
        )
        WHEN 'EXECUTION'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject / 1000000
          AND r.attempts = NEW.subject % 1000000
          AND r.status = NEW.target
          AND r.move_id = NEW.move_id
        )
        WHEN 'REQUEST'
        THEN EXISTS (
          SELECT 1 FROM holdfast_jobs r
          WHERE r.job_id = NEW.subject
          AND r.attempts = NEW.version
          AND r.cancel_move_id = NEW.move_id
        )
        WHEN 'MAINTENANCE'
        THEN EXISTS (SELECT 1 FROM holdfast_maintenance WHERE maintenance_id = NEW.subject)
        ELSE 0
        END
      )
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END;

-- trigger: holdfast_journal_update
CREATE TRIGGER holdfast_journal_update BEFORE UPDATE ON holdfast_journal
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_journal_delete
CREATE TRIGGER holdfast_journal_delete BEFORE DELETE ON holdfast_journal
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_seals_insert
CREATE TRIGGER holdfast_seals_insert BEFORE INSERT ON holdfast_seals
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    NEW.seal_id <> 1 + (SELECT coalesce(max(seal_id), 0) FROM holdfast_seals)
    OR NEW.previous IS NOT coalesce(
      (SELECT hash FROM holdfast_seals ORDER BY seal_id DESC LIMIT 1), NEW.previous
    );
END;

-- trigger: holdfast_seals_update
CREATE TRIGGER holdfast_seals_update BEFORE UPDATE ON holdfast_seals
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_seals_delete
CREATE TRIGGER holdfast_seals_delete BEFORE DELETE ON holdfast_seals
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_archives_insert
CREATE TRIGGER holdfast_archives_insert BEFORE INSERT ON holdfast_archives
BEGIN
  SELECT RAISE(ABORT, 'HF005 only the triggers of the ledger may write the journal') WHERE
    EXISTS (SELECT 1 FROM holdfast_archives WHERE archive_id = NEW.archive_id);
END;

-- trigger: holdfast_archives_update
CREATE TRIGGER holdfast_archives_update BEFORE UPDATE ON holdfast_archives
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_archives_delete
CREATE TRIGGER holdfast_archives_delete BEFORE DELETE ON holdfast_archives
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_evidence_insert
CREATE TRIGGER holdfast_evidence_insert BEFORE INSERT ON holdfast_evidence
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    EXISTS (SELECT 1 FROM holdfast_evidence WHERE evidence_id = NEW.evidence_id AND 1)
    OR (
      NEW.voided_at IS NULL
      AND EXISTS (
        SELECT 1 FROM holdfast_evidence
        WHERE run_id = NEW.run_id
        AND kind = NEW.kind
        AND voided_at IS NULL
      )
    );
END;

-- trigger: holdfast_evidence_update
CREATE TRIGGER holdfast_evidence_update BEFORE UPDATE ON holdfast_evidence
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    OLD.voided_at IS NOT NULL
    OR NEW.evidence_id IS DISTINCT FROM OLD.evidence_id
    OR NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.subject IS DISTINCT FROM OLD.subject
    OR NEW.content IS DISTINCT FROM OLD.content
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
    OR NEW.created_at IS DISTINCT FROM OLD.created_at;
END;

-- trigger: holdfast_evidence_delete
CREATE TRIGGER holdfast_evidence_delete BEFORE DELETE ON holdfast_evidence
BEGIN
  SELECT RAISE(ABORT, 'HF004 history cannot be changed or deleted, only appended') WHERE
    1;
END;

-- trigger: holdfast_leases_insert
CREATE TRIGGER holdfast_leases_insert BEFORE INSERT ON holdfast_leases
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    EXISTS (SELECT 1 FROM holdfast_leases WHERE name = NEW.name AND token >= NEW.token);
END;

-- trigger: holdfast_leases_update
CREATE TRIGGER holdfast_leases_update BEFORE UPDATE ON holdfast_leases
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    NEW.name <> OLD.name OR NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token);
END;

-- trigger: holdfast_leases_delete
CREATE TRIGGER holdfast_leases_delete BEFORE DELETE ON holdfast_leases
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    1;
END;

-- trigger: holdfast_meta_insert
CREATE TRIGGER holdfast_meta_insert BEFORE INSERT ON holdfast_meta
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    EXISTS (
      SELECT 1 FROM holdfast_meta m
      WHERE NEW.name = m.name
      AND (
        CASE NEW.name
        WHEN 'environment'
        THEN CASE NEW.value
        WHEN 'dev'
        THEN 0
        WHEN 'stage'
        THEN 1
        WHEN 'prod'
        THEN 2
        ELSE 2
        END
        WHEN 'governed'
        THEN CASE NEW.value
        WHEN 'no'
        THEN 0
        WHEN 'yes'
        THEN 1
        ELSE 1
        END
        ELSE 0
        END
      ) < (
        CASE m.name
        WHEN 'environment'
        THEN CASE m.value
        WHEN 'dev'
        THEN 0
        WHEN 'stage'
        THEN 1
        WHEN 'prod'
        THEN 2
        ELSE 2
        END
        WHEN 'governed'
        THEN CASE m.value
        WHEN 'no'
        THEN 0
        WHEN 'yes'
        THEN 1
        ELSE 1
        END
        ELSE 0
        END
      )
    );
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    EXISTS (SELECT 1 FROM holdfast_meta WHERE name = NEW.name AND 1)
    AND NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_meta_update
CREATE TRIGGER holdfast_meta_update BEFORE UPDATE ON holdfast_meta
BEGIN
  SELECT RAISE(ABORT, 'HF007 this number cannot decrease') WHERE
    NEW.name = OLD.name
    AND (
      CASE NEW.name
      WHEN 'environment'
      THEN CASE NEW.value
      WHEN 'dev'
      THEN 0
      WHEN 'stage'
      THEN 1
      WHEN 'prod'
      THEN 2
      ELSE 2
      END
      WHEN 'governed'
      THEN CASE NEW.value
      WHEN 'no'
      THEN 0
      WHEN 'yes'
      THEN 1
      ELSE 1
      END
      ELSE 0
      END
    ) < (
      CASE OLD.name
      WHEN 'environment'
      THEN CASE OLD.value
      WHEN 'dev'
      THEN 0
      WHEN 'stage'
      THEN 1
      WHEN 'prod'
      THEN 2
      ELSE 2
      END
      WHEN 'governed'
      THEN CASE OLD.value
      WHEN 'no'
      THEN 0
      WHEN 'yes'
      THEN 1
      ELSE 1
      END
      ELSE 0
      END
    );
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    OLD.name = 'environment'
    AND NEW.value <> OLD.value
    AND EXISTS (SELECT 1 FROM holdfast_grants g WHERE g.state = 'active');
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    (
      NEW.name <> OLD.name
      AND (OLD.name IN ('environment', 'governed') OR NEW.name IN ('environment', 'governed'))
    )
    OR (
      (
        OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
        OR NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
      )
      AND (NEW.name <> OLD.name OR NEW.value <> OLD.value)
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END;

-- trigger: holdfast_meta_delete
CREATE TRIGGER holdfast_meta_delete BEFORE DELETE ON holdfast_meta
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    OLD.name IN ('environment', 'governed')
    OR (
      OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
      AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
    );
END;

-- trigger: holdfast_approvers_insert
CREATE TRIGGER holdfast_approvers_insert BEFORE INSERT ON holdfast_approvers
BEGIN
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    EXISTS (SELECT 1 FROM holdfast_approvers r WHERE r.name = NEW.name AND r.revoked_at IS NULL)
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF002 a new record must have an unused id and key, an initial state and its event') WHERE
    (NEW.revoked_at IS NOT NULL OR NEW.revoked_by IS NOT NULL)
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.action = 'approver.add'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_approvers_update
CREATE TRIGGER holdfast_approvers_update BEFORE UPDATE ON holdfast_approvers
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    NOT (
      (
        OLD.revoked_at IS NOT NULL
        AND NEW.revoked_at IS NULL
        AND coalesce(NEW.grant_id, 0) > coalesce(OLD.grant_id, 0)
        AND NEW.name = OLD.name
      )
      OR (
        OLD.revoked_at IS NULL
        AND NEW.revoked_at IS NOT NULL
        AND NOT (
          NEW.name IS DISTINCT FROM OLD.name
          OR NEW.public_key IS DISTINCT FROM OLD.public_key
          OR NEW.added_by IS DISTINCT FROM OLD.added_by
          OR NEW.reason IS DISTINCT FROM OLD.reason
          OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
          OR NEW.added_at IS DISTINCT FROM OLD.added_at
        )
      )
      OR NOT (
        NEW.name IS DISTINCT FROM OLD.name
        OR NEW.public_key IS DISTINCT FROM OLD.public_key
        OR NEW.added_by IS DISTINCT FROM OLD.added_by
        OR NEW.reason IS DISTINCT FROM OLD.reason
        OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
        OR NEW.added_at IS DISTINCT FROM OLD.added_at
        OR NEW.revoked_at IS DISTINCT FROM OLD.revoked_at
        OR NEW.revoked_by IS DISTINCT FROM OLD.revoked_by
      )
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    OLD.revoked_at IS NOT NULL
    AND NEW.revoked_at IS NULL
    AND coalesce(NEW.grant_id, 0) > coalesce(OLD.grant_id, 0)
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.action = 'approver.add'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
  SELECT RAISE(ABORT, 'HF009 this change needs a grant that the same move has consumed') WHERE
    OLD.revoked_at IS NULL
    AND NEW.revoked_at IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_grants g
      WHERE g.grant_id > coalesce(OLD.grant_id, 0)
      AND g.state = 'consumed'
      AND g.action = 'approver.revoke'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_approvers_delete
CREATE TRIGGER holdfast_approvers_delete BEFORE DELETE ON holdfast_approvers
BEGIN
  SELECT RAISE(ABORT, 'HF003 records cannot be deleted') WHERE
    NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_approvers_rewritten
CREATE TRIGGER holdfast_approvers_rewritten AFTER UPDATE ON holdfast_approvers
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'rewrite', g.actor, 'APPROVER ' || NEW.name,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_approvers_deleted
CREATE TRIGGER holdfast_approvers_deleted AFTER DELETE ON holdfast_approvers
WHEN NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance)
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,
      'delete', g.actor, 'APPROVER ' || OLD.name,
      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at
    FROM holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.subject = (SELECT maintenance_id FROM holdfast_maintenance)
    ORDER BY g.version DESC LIMIT 1;
END;

-- trigger: holdfast_maintenance_opened
CREATE TRIGGER holdfast_maintenance_opened AFTER INSERT ON holdfast_maintenance
WHEN 1
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'MAINTENANCE', NEW.maintenance_id,
    1,
    NULL, 'open', 'open', NEW.who, NEW.why, NULL, 'maintenance-' || NEW.maintenance_id,
    NEW.grant_id, NEW.maintenance_id, NEW.opened_at);
END;

-- trigger: holdfast_maintenance_shut
CREATE TRIGGER holdfast_maintenance_shut BEFORE DELETE ON holdfast_maintenance
WHEN 1
BEGIN
  INSERT INTO holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, 0, 'MAINTENANCE', OLD.maintenance_id,
    (SELECT coalesce(max(version), 0) + 1 FROM holdfast_journal
      WHERE machine = 'MAINTENANCE' AND subject = OLD.maintenance_id),
    'open', 'shut', 'shut', OLD.who, OLD.why, NULL, 'maintenance-' || OLD.maintenance_id,
    OLD.grant_id, OLD.maintenance_id, OLD.opened_at);
END;

-- trigger: holdfast_maintenance_one
CREATE TRIGGER holdfast_maintenance_one BEFORE INSERT ON holdfast_maintenance
BEGIN
  SELECT RAISE(ABORT, 'HF011 the maintenance door must be shut before the transaction ends or opens it again') WHERE
    NOT NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- trigger: holdfast_maintenance_update
CREATE TRIGGER holdfast_maintenance_update BEFORE UPDATE ON holdfast_maintenance
BEGIN
  SELECT RAISE(ABORT, 'HF006 this column cannot be changed') WHERE
    1;
END;

-- governed trigger: holdfast_jobs_in_force
CREATE TRIGGER holdfast_jobs_in_force BEFORE INSERT ON holdfast_jobs
BEGIN
  SELECT RAISE(ABORT, 'HF015 new work in a governed ledger needs a version of its operation that is in force') WHERE
    NEW.operation <> 'noop'
    AND NOT EXISTS (
      SELECT 1 FROM holdfast_values v JOIN holdfast_collections s ON s.collection = v.collection
      WHERE v.operation_code = NEW.operation
      AND v.protocol_version = (SELECT k.operation_version FROM holdfast_calls k WHERE k.job_id = NEW.job_id)
      AND v.collection = 'operations'
      AND v.state = 'active'
      AND v.status = 'in force'
      AND s.status = 'in force'
    )
    AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance);
END;

-- view: holdfast_executions
CREATE VIEW holdfast_executions AS
SELECT j.job_id * 1000000 + j.attempts AS exec_id,
  j.job_id AS job_id,
  j.attempts AS attempt,
  j.status AS status,
  CASE j.status WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 ELSE 4 END AS version,
  j.lease_owner AS lease_owner,
  j.lease_token AS lease_token,
  coalesce(j.lease_expires_at, j.updated_at) AS lease_expires_at,
  j.status IS NULL AS excused,
  NULL AS error_code,
  NULL AS error_message,
  j.progress AS progress,
  j.progress_note AS progress_note,
  j.cancel_requested_at AS cancel_requested_at,
  j.started_at AS started_at,
  CASE WHEN j.status = 'DONE' THEN j.updated_at END AS finished_at,
  j.last_attempt_at AS created_at,
  j.updated_at AS updated_at,
  j.event AS event,
  j.actor AS actor,
  j.reason AS reason,
  j.move_id AS move_id
FROM holdfast_jobs j WHERE j.status IS NOT NULL
UNION ALL
SELECT a.job_id * 1000000 + a.attempt,
  a.job_id,
  a.attempt,
  'ABORTED',
  a.version,
  a.lease_owner,
  a.lease_token,
  a.lease_expires_at,
  a.excused,
  a.error_code,
  a.error_message,
  a.progress,
  a.progress_note,
  a.cancel_requested_at,
  a.started_at,
  a.finished_at,
  a.created_at,
  a.finished_at,
  a.event,
  a.actor,
  a.reason,
  a.move_id
FROM holdfast_aborted a;

-- view: holdfast_edges
CREATE VIEW holdfast_edges AS
SELECT g.seq, g.subject AS record, g.epoch, g.xid,
  10 - coalesce(e.column3, 0) AS step,
  'EXECUTION' AS machine,
  g.subject * 1000000 + g.attempt AS subject,
  coalesce(e.column7, 
    CASE g.status_to WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 WHEN 'DONE' THEN 4
    ELSE 1 +
    CASE g.status_from WHEN 'LEASED' THEN 1 WHEN 'IN_PROGRESS' THEN 2 WHEN 'COMMITTED' THEN 3 WHEN 'DONE' THEN 4
    ELSE 0 END END) AS version,
  CASE WHEN e.column2 IS NULL THEN g.status_from ELSE nullif(e.column5, '') END AS source,
  coalesce(e.column6, g.status_to) AS target,
  coalesce(e.column4, g.event) AS event,
  g.actor, g.reason, g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
FROM holdfast_journal g LEFT JOIN (VALUES
  ('', 'LEASED', 0, 'lease', '', 'LEASED', 1),
  ('', 'IN_PROGRESS', 1, 'begin', '', 'LEASED', 1),
  ('', 'IN_PROGRESS', 0, 'begin', 'LEASED', 'IN_PROGRESS', 2),
  ('LEASED', 'IN_PROGRESS', 0, 'start', 'LEASED', 'IN_PROGRESS', 2),
  ('IN_PROGRESS', 'COMMITTED', 0, 'commit', 'IN_PROGRESS', 'COMMITTED', 3),
  ('COMMITTED', 'DONE', 0, 'finish', 'COMMITTED', 'DONE', 4),
  ('IN_PROGRESS', 'DONE', 1, 'complete', 'IN_PROGRESS', 'COMMITTED', 3),
  ('IN_PROGRESS', 'DONE', 0, 'complete', 'COMMITTED', 'DONE', 4),
  ('LEASED', 'ABORTED', 0, 'abort', 'LEASED', 'ABORTED', 2),
  ('IN_PROGRESS', 'ABORTED', 0, 'abort', 'IN_PROGRESS', 'ABORTED', 3)) e
  ON e.column1 = coalesce(g.status_from, '') AND e.column2 = g.status_to
WHERE g.status_to IS NOT NULL
UNION ALL
SELECT g.seq, g.subject AS record, g.epoch, g.xid,
  20 - coalesce(e.column3, 0),
  g.machine,
  g.subject,
  g.version - coalesce(e.column3, 0),
  CASE WHEN e.column2 IS NULL THEN g.source ELSE e.column4 END,
  coalesce(e.column5, g.target),
  g.event,
  g.actor, g.reason, g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at
FROM holdfast_journal g LEFT JOIN (VALUES
  ('running', 'pending', 1, 'running', 'failed'),
  ('running', 'pending', 0, 'failed', 'pending'),
  ('running', 'quarantined', 1, 'running', 'failed'),
  ('running', 'quarantined', 0, 'failed', 'quarantined')) e
  ON g.machine = 'JOB' AND g.event <> 'repair' AND e.column1 = g.source AND e.column2 = g.target;
