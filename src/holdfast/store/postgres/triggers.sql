-- Generated from core/machines.py and store/tables.py by `make golden`: do not edit.

-- function: holdfast_journal_refuse
CREATE FUNCTION holdfast_journal_refuse LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF004',
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_refuse
CREATE FUNCTION holdfast_refuse LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = left(code, 5), MESSAGE = code || ': ' || what;
END
$holdfast$;

-- function: holdfast_journal_written
CREATE FUNCTION holdfast_journal_written LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT (pg_trigger_depth() = 1 OR EXISTS (SELECT 1 FROM new_rows n WHERE NOT (
      n.machine = 'JOB'
      AND EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
    ))) THEN
    RETURN NULL;
  END IF;
  IF (pg_trigger_depth() = 1 OR EXISTS (SELECT 1 FROM new_rows n WHERE NOT CASE n.machine
      WHEN 'JOB' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'GRANT' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_grants r
        WHERE r.grant_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'PROCEDURE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_procedures r
        WHERE r.run_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'STEP' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_steps r
        WHERE r.step_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'VALUE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_values r
        WHERE r.value_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'SWITCH' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_switches r
        WHERE r.switch_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'SETTING' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_settings r
        WHERE r.setting_id = n.subject
        AND r.move_id = n.move_id
        AND r.version = n.version
        AND n.version >= r.history_from
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'EXECUTION' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.subject / 1000000
        AND r.attempts = n.subject % 1000000
        AND r.status = n.target
        AND r.move_id = n.move_id
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'REQUEST' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.subject
        AND r.attempts = n.version
        AND r.cancel_move_id = n.move_id
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )
      WHEN 'MAINTENANCE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.maintenance_id = n.subject
        AND m.xid = pg_current_xact_id()::text::bigint
      )
      ELSE false
      END))
    AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_born
CREATE FUNCTION holdfast_jobs_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  x bigint := pg_current_xact_id()::text::bigint;
  door bigint := (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = x);
BEGIN
  INSERT INTO {schema}holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
    SELECT 'JOB',
      n.job_id,
      n.version,
      NULL,
      n.state,
      NULL,
      NULL,
      NULL,
      {epoch}, x, n.event, n.actor, n.reason, n.attempts, n.move_id, door, n.updated_at
    FROM new_rows n
    WHERE CASE
      WHEN (
          NOT (
            ((n.state = 'pending' AND n.event = 'submit' AND n.version = 1))
            AND n.attempts = 0
            AND n.excused = 0
            AND n.status IS NULL
            AND n.lease_token IS NULL
            AND n.lease_owner IS NULL
            AND n.result IS NULL
            AND n.last_error_code IS NULL
            AND n.quarantine_code IS NULL
            AND n.grant_id IS NULL
            AND n.cancel_requested_at IS NULL
            AND n.cancel_by IS NULL
            AND n.lost IS NULL
          )
        )
        AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF002 a new record must have an unused id and key, an initial state and its event',
          'JOB ' || n.job_id || ', ' || coalesce(NULL::text, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN (NOT EXISTS (SELECT 1 FROM {schema}holdfast_calls c WHERE c.job_id = n.job_id)) AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF002 a new record must have an unused id and key, an initial state and its event',
          'JOB ' || n.job_id || ', ' || coalesce(NULL::text, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      ELSE door IS NULL END;
  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, event, code, n, at)
    SELECT n.operation, n.queue, NULL::text, n.state, n.event,
      (NULL)::text, count(*), max(n.updated_at)
      FROM new_rows n
     GROUP BY 1, 2, 3, 4, 5, 6;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_in_force
CREATE FUNCTION holdfast_jobs_in_force LANGUAGE plpgsql AS $holdfast$
DECLARE
  wanted record;
BEGIN
  FOR wanted IN
    SELECT DISTINCT n.operation,
      (SELECT k.operation_version FROM {schema}holdfast_calls k WHERE k.job_id = n.job_id) AS version
    FROM new_rows n WHERE n.operation <> 'noop' ORDER BY 1, 2
  LOOP
    PERFORM 1 FROM {schema}holdfast_values v JOIN {schema}holdfast_collections s ON s.collection = v.collection
      WHERE v.operation_code = wanted.operation
      AND v.protocol_version = wanted.version
      AND v.collection = 'operations'
      AND v.state = 'active'
      AND v.status = 'in force'
      AND s.status = 'in force'
      FOR SHARE OF v, s;
    IF NOT FOUND AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        ) THEN
      RAISE EXCEPTION USING ERRCODE = 'HF015',
        MESSAGE = 'HF015 new work in a governed ledger needs a version of its operation that is in force: '
          || wanted.operation || '@' || wanted.version;
    END IF;
  END LOOP;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_moved
CREATE FUNCTION holdfast_jobs_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  x bigint := pg_current_xact_id()::text::bigint;
  door bigint := (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = x);
BEGIN
  INSERT INTO {schema}holdfast_journal (machine, subject, version, source, target, status_from, status_to, grant_id,
    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
    SELECT CASE WHEN n.state = o.state THEN 'EXECUTION' ELSE 'JOB' END,
      CASE WHEN n.state = o.state THEN n.job_id * 1000000 + n.attempts ELSE n.job_id END,
      CASE WHEN n.state = o.state THEN CASE n.status WHEN 'IN_PROGRESS' THEN 2 ELSE 3 END ELSE n.version END,
      CASE WHEN n.state = o.state THEN o.status ELSE o.state END,
      CASE WHEN n.state = o.state THEN n.status ELSE n.state END,
      CASE WHEN n.state = o.state THEN NULL ELSE o.status END,
      CASE
      WHEN n.state = o.state
      THEN NULL
      WHEN n.status IS NOT NULL
      THEN n.status
      WHEN o.status IS NOT NULL
      THEN 'ABORTED'
      END,
      CASE WHEN n.event = 'release' THEN n.grant_id END,
      {epoch}, x, n.event, n.actor, n.reason, n.attempts, n.move_id, door, n.updated_at
    FROM new_rows n LEFT JOIN old_rows o ON o.job_id = n.job_id
    WHERE CASE
      WHEN o.job_id IS NULL AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF006 this column cannot be changed',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN (
          n.version < o.version
          OR n.attempts < o.attempts
          OR n.excused < o.excused
          OR n.lease_token < o.lease_token
        )
        AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF007 this number cannot decrease',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN (n.state <> o.state OR n.status IS DISTINCT FROM o.status)
        AND (
          n.move_id = o.move_id
          OR n.updated_at < o.updated_at
          OR (n.state <> o.state AND n.version <= o.version)
        )
        THEN {schema}holdfast_refuse(
          'HF008 a change of state needs a new move_id, a higher version and a later updated_at',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN (
          (
            (n.state <> o.state OR n.status IS DISTINCT FROM o.status)
            AND NOT (
              (
                o.state = 'pending'
                AND n.state = 'running'
                AND o.status IS NULL
                AND n.status = 'IN_PROGRESS'
                AND n.event IN ('claim')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts + 1
                AND n.lease_token > coalesce(o.lease_token, 0)
                AND n.excused = o.excused
              )
              OR (
                o.state = 'running'
                AND n.state = 'succeeded'
                AND o.status IN ('IN_PROGRESS', 'COMMITTED')
                AND n.status = 'DONE'
                AND n.event IN ('succeed')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'running'
                AND n.state = 'running'
                AND o.status IN ('LEASED')
                AND n.status = 'IN_PROGRESS'
                AND n.event IN ('start')
                AND n.version = o.version + 0
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'pending'
                AND n.state = 'running'
                AND o.status IS NULL
                AND n.status = 'LEASED'
                AND n.event IN ('claim')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts + 1
                AND n.lease_token > coalesce(o.lease_token, 0)
                AND n.excused = o.excused
              )
              OR (
                o.state = 'running'
                AND n.state = 'failed'
                AND o.status IN ('LEASED', 'IN_PROGRESS')
                AND n.status IS NULL
                AND n.event IN ('fail')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused <= o.excused + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'pending'
                AND o.status IN ('LEASED', 'IN_PROGRESS')
                AND n.status IS NULL
                AND n.event IN ('retry', 'expire', 'revoke', 'give_back')
                AND n.version = o.version + 2
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused <= o.excused + 1
              )
              OR (
                o.state = 'failed'
                AND n.state = 'pending'
                AND o.status IS NULL
                AND n.status IS NULL
                AND n.event IN ('retry', 'replay')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'running'
                AND n.state = 'quarantined'
                AND o.status IN ('LEASED', 'IN_PROGRESS')
                AND n.status IS NULL
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 2
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused <= o.excused + 1
              )
              OR (
                o.state = 'failed'
                AND n.state = 'quarantined'
                AND o.status IS NULL
                AND n.status IS NULL
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'pending'
                AND n.state = 'quarantined'
                AND o.status IS NULL
                AND n.status IS NULL
                AND n.event IN ('quarantine', 'cancel', 'lapse')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'quarantined'
                AND n.state = 'pending'
                AND o.status IS NULL
                AND n.status IS NULL
                AND n.event IN ('release')
                AND n.version = o.version + 1
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
              OR (
                o.state = 'running'
                AND n.state = 'running'
                AND o.status IN ('IN_PROGRESS')
                AND n.status = 'COMMITTED'
                AND n.event IN ('commit')
                AND n.version = o.version + 0
                AND n.attempts = o.attempts
                AND n.lease_token IS NOT DISTINCT FROM o.lease_token
                AND n.lease_owner IS NOT DISTINCT FROM o.lease_owner
                AND n.excused = o.excused
              )
            )
          )
          OR (NOT (n.state <> o.state OR n.status IS DISTINCT FROM o.status) AND n.version <> o.version)
        )
        AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF001 the transition table does not allow this event between these states and versions',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN o.state = 'quarantined'
        AND n.state = 'pending'
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
        )
        THEN {schema}holdfast_refuse(
          'HF009 this change needs a grant that the same move has consumed',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN o.state = 'quarantined'
        AND n.state = 'pending'
        AND EXISTS (SELECT 1 FROM {schema}holdfast_calls c WHERE c.job_id = n.job_id AND c.payload IS NULL)
        THEN {schema}holdfast_refuse(
          'HF012 retention has deleted the payload, so the record cannot change its state',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN o.cancel_requested_at IS NOT NULL
        AND o.status IS NOT NULL
        AND n.status IS NULL
        AND n.event <> 'cancel'
        AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF001 the transition table does not allow this event between these states and versions',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      WHEN (
          (
            NOT (n.state <> o.state OR n.status IS DISTINCT FROM o.status)
            AND (
              n.attempts IS DISTINCT FROM o.attempts
              OR n.excused IS DISTINCT FROM o.excused
              OR n.lease_token IS DISTINCT FROM o.lease_token
              OR n.run_at IS DISTINCT FROM o.run_at
              OR n.due_at IS DISTINCT FROM o.due_at
              OR n.resting IS DISTINCT FROM o.resting
              OR n.lease_owner IS DISTINCT FROM o.lease_owner
              OR n.last_attempt_at IS DISTINCT FROM o.last_attempt_at
              OR n.started_at IS DISTINCT FROM o.started_at
              OR n.result IS DISTINCT FROM o.result
              OR n.last_error_code IS DISTINCT FROM o.last_error_code
              OR n.last_error_message IS DISTINCT FROM o.last_error_message
              OR n.excuse_code IS DISTINCT FROM o.excuse_code
              OR n.excuse_message IS DISTINCT FROM o.excuse_message
              OR n.quarantine_code IS DISTINCT FROM o.quarantine_code
              OR n.replay_reason IS DISTINCT FROM o.replay_reason
              OR n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.grant_id IS DISTINCT FROM o.grant_id
              OR n.lost IS DISTINCT FROM o.lost
              OR (
                o.state <> 'running'
                AND (
                  n.progress IS DISTINCT FROM o.progress
                  OR n.progress_note IS DISTINCT FROM o.progress_note
                )
              )
            )
          )
          OR (
            (n.state <> o.state OR n.status IS DISTINCT FROM o.status)
            AND n.result IS DISTINCT FROM o.result
            AND (o.result IS NOT NULL OR n.status IS NULL OR n.status NOT IN ('COMMITTED', 'DONE'))
          )
          OR (
            (
              n.cancel_requested_at IS DISTINCT FROM o.cancel_requested_at
              OR n.cancel_by IS DISTINCT FROM o.cancel_by
              OR n.cancel_reason IS DISTINCT FROM o.cancel_reason
              OR n.cancel_move_id IS DISTINCT FROM o.cancel_move_id
            )
            AND (
              (
                o.cancel_requested_at IS NULL
                AND n.cancel_requested_at IS NOT NULL
                AND n.cancel_by IS NOT NULL
                AND n.cancel_move_id IS NOT NULL
                AND o.status IN ('LEASED', 'IN_PROGRESS')
                AND n.status = o.status
              )
              OR (
                n.cancel_requested_at IS NULL
                AND n.cancel_by IS NULL
                AND n.cancel_reason IS NULL
                AND n.cancel_move_id IS NULL
                AND (n.state = 'pending' OR n.attempts > o.attempts)
              )
            ) IS NOT TRUE
          )
          OR (
            n.lost IS DISTINCT FROM o.lost
            AND (n.lost = coalesce(o.lost, 0) + 1 AND o.status IS NOT NULL AND n.status IS NULL) IS NOT TRUE
          )
          OR (
            n.deadline_at IS DISTINCT FROM o.deadline_at
            AND NOT (o.deadline_at IS NULL AND n.version = 1 AND o.version = 1)
          )
        )
        AND door IS NULL
        THEN {schema}holdfast_refuse(
          'HF006 this column cannot be changed',
          'JOB ' || n.job_id || ', ' || coalesce(o.state, 'nothing') || ' to ' || n.state || ' by ' || n.event)
      ELSE (n.state <> o.state OR n.status IS DISTINCT FROM o.status) END;
  IF EXISTS (SELECT 1 FROM new_rows n WHERE n.status IS NULL) THEN
    INSERT INTO {schema}holdfast_aborted
    (job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at,
    created_at, started_at, finished_at, cancel_requested_at, progress, progress_note,
    event, actor, reason, move_id, error_code, error_message)
    SELECT n.job_id, n.attempts,
    CASE o.status WHEN 'LEASED' THEN 2 WHEN 'IN_PROGRESS' THEN 3 WHEN 'COMMITTED' THEN 4 WHEN 'DONE' THEN 5 END,
    n.excused > o.excused,
    o.lease_owner, o.lease_token, coalesce(o.lease_expires_at, o.updated_at),
    o.last_attempt_at, o.started_at, n.updated_at, o.cancel_requested_at, o.progress,
    o.progress_note, n.event, n.actor, n.reason, n.move_id,
    CASE WHEN n.excused > o.excused THEN n.excuse_code ELSE n.last_error_code END,
    CASE WHEN n.excused > o.excused THEN n.excuse_message ELSE n.last_error_message END
    FROM old_rows o JOIN new_rows n ON n.job_id = o.job_id
    WHERE o.status IS NOT NULL AND n.status IS NULL;
  END IF;
  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, event, code, n, at)
    SELECT n.operation, n.queue, o.state, n.state, n.event,
      (CASE
      WHEN o.status IS NOT NULL AND n.status IS NULL
      THEN CASE WHEN n.excused > o.excused THEN n.excuse_code ELSE n.last_error_code END
      END)::text, count(*), max(n.updated_at)
      FROM old_rows o JOIN new_rows n
      ON n.job_id = o.job_id AND n.state <> o.state
     GROUP BY 1, 2, 3, 4, 5, 6;
  IF door IS NOT NULL THEN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'JOB ' || n.job_id || ':' || CASE
      WHEN n.operation IS DISTINCT FROM o.operation
      THEN ' operation'
      ELSE ''
      END || CASE
      WHEN n.queue IS DISTINCT FROM o.queue
      THEN ' queue'
      ELSE ''
      END || CASE
      WHEN n.priority IS DISTINCT FROM o.priority
      THEN ' priority'
      ELSE ''
      END || CASE
      WHEN n.run_at IS DISTINCT FROM o.run_at
      THEN ' run_at'
      ELSE ''
      END || CASE
      WHEN (n.result IS NOT NULL AND n.result IS DISTINCT FROM o.result)
      THEN ' result'
      ELSE ''
      END || CASE
      WHEN n.last_error_code IS DISTINCT FROM o.last_error_code
      THEN ' last_error_code'
      ELSE ''
      END || CASE
      WHEN n.last_error_message IS DISTINCT FROM o.last_error_message
      THEN ' last_error_message'
      ELSE ''
      END || CASE
      WHEN n.excuse_code IS DISTINCT FROM o.excuse_code
      THEN ' excuse_code'
      ELSE ''
      END || CASE
      WHEN n.excuse_message IS DISTINCT FROM o.excuse_message
      THEN ' excuse_message'
      ELSE ''
      END || CASE
      WHEN n.quarantine_code IS DISTINCT FROM o.quarantine_code
      THEN ' quarantine_code'
      ELSE ''
      END || CASE
      WHEN n.replay_reason IS DISTINCT FROM o.replay_reason
      THEN ' replay_reason'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN n.grant_id IS DISTINCT FROM o.grant_id
      THEN ' grant_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.job_id = o.job_id
    WHERE n.state = o.state
      AND (
        n.operation IS DISTINCT FROM o.operation
        OR n.queue IS DISTINCT FROM o.queue
        OR n.priority IS DISTINCT FROM o.priority
        OR n.run_at IS DISTINCT FROM o.run_at
        OR (n.result IS NOT NULL AND n.result IS DISTINCT FROM o.result)
        OR n.last_error_code IS DISTINCT FROM o.last_error_code
        OR n.last_error_message IS DISTINCT FROM o.last_error_message
        OR n.excuse_code IS DISTINCT FROM o.excuse_code
        OR n.excuse_message IS DISTINCT FROM o.excuse_message
        OR n.quarantine_code IS DISTINCT FROM o.quarantine_code
        OR n.replay_reason IS DISTINCT FROM o.replay_reason
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
        OR n.grant_id IS DISTINCT FROM o.grant_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = door;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_requested
CREATE FUNCTION holdfast_jobs_requested LANGUAGE plpgsql AS $holdfast$
BEGIN
  INSERT INTO {schema}holdfast_journal
    (machine, subject, version, source, target, epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)
  VALUES
    ('REQUEST', NEW.job_id, NEW.attempts, NULL, 'requested', {epoch}, pg_current_xact_id()::text::bigint,
    'request_cancel', NEW.cancel_by, NEW.cancel_reason, NEW.attempts, NEW.cancel_move_id,
    (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
    NEW.cancel_requested_at);
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_count_deltas_folded
CREATE FUNCTION holdfast_count_deltas_folded LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF current_setting('transaction_isolation') = 'read committed'
    AND has_table_privilege('{schema}holdfast_minutes', 'DELETE') THEN
    WITH gone AS (
      DELETE FROM {schema}holdfast_count_deltas
       WHERE (SELECT pg_try_advisory_xact_lock(4604, ('{schema}holdfast_counts'::regclass)::oid::integer))
      RETURNING operation, queue, source, target, event, code, n, at),
    minutes AS (
      INSERT INTO {schema}holdfast_minutes (minute, operation, queue, source, target, event, code, n)
      SELECT date_trunc('minute', at, 'UTC'), operation, queue, coalesce(source, ''), target, event, coalesce(code, ''),
             sum(n)
        FROM gone WHERE at IS NOT NULL GROUP BY 1, 2, 3, 4, 5, 6, 7 ORDER BY 1, 2, 3, 4, 5, 6, 7
      ON CONFLICT (minute, operation, queue, source, target, event, code)
        DO UPDATE SET n = {schema}holdfast_minutes.n + excluded.n)
    INSERT INTO {schema}holdfast_counts (operation, queue, state, n)
    SELECT operation, queue, state, sum(n)
      FROM (SELECT operation, queue, target AS state, n FROM gone
            UNION ALL SELECT operation, queue, source, -n FROM gone WHERE source IS NOT NULL) d
     GROUP BY operation, queue, state ORDER BY operation, queue, state
    ON CONFLICT (operation, queue, state) DO UPDATE SET n = {schema}holdfast_counts.n + excluded.n;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_once
CREATE FUNCTION holdfast_jobs_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_jobs ' || OLD.job_id;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_calls_once
CREATE FUNCTION holdfast_calls_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_calls ' || OLD.job_id;
  ELSIF (
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
    ) THEN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'CALL ' || NEW.job_id AS said) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_aborted_written
CREATE FUNCTION holdfast_aborted_written LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (pg_trigger_depth() = 1 OR EXISTS (SELECT 1 FROM new_rows n WHERE NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.job_id
        AND r.attempts = n.attempt
        AND r.status IS NULL
        AND r.move_id = n.move_id
        AND r.lease_token = n.lease_token
        AND r.lease_owner = n.lease_owner
        AND (
          r.xmin = pg_current_xact_id()::xid
          OR CASE
          WHEN (
            (pg_current_xact_id()::text::bigint >> 32) << 32
          ) + r.xmin::text::bigint > pg_current_xact_id()::text::bigint
          THEN pg_xact_status(
            (((pg_current_xact_id()::text::bigint >> 32) << 32) + r.xmin::text::bigint)::text::xid8
          ) = 'in progress'
          ELSE false
          END
        )
      )))
    AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_journal_delete
CREATE FUNCTION holdfast_journal_delete LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF004',
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_seals_follow
CREATE FUNCTION holdfast_seals_follow LANGUAGE plpgsql AS $holdfast$
DECLARE
  last record;
BEGIN
  SELECT s.seal_id, s.hash INTO last FROM {schema}holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;
  IF NEW.seal_id <> coalesce(last.seal_id, 0) + 1 OR NEW.previous <> coalesce(last.hash, NEW.previous) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: '
        || 'seal ' || NEW.seal_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_evidence_update
CREATE FUNCTION holdfast_evidence_update LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF OLD.voided_at IS NOT NULL
    OR NEW.evidence_id IS DISTINCT FROM OLD.evidence_id
    OR NEW.run_id IS DISTINCT FROM OLD.run_id
    OR NEW.kind IS DISTINCT FROM OLD.kind
    OR NEW.subject IS DISTINCT FROM OLD.subject
    OR NEW.content IS DISTINCT FROM OLD.content
    OR NEW.digest IS DISTINCT FROM OLD.digest
    OR NEW.actor IS DISTINCT FROM OLD.actor
    OR NEW.grant_id IS DISTINCT FROM OLD.grant_id
    OR NEW.created_at IS DISTINCT FROM OLD.created_at THEN
    RAISE EXCEPTION USING ERRCODE = 'HF004',
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: '
        || 'holdfast_evidence ' || OLD.evidence_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_tracebacks_insert
CREATE FUNCTION holdfast_tracebacks_insert LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_jobs r
      WHERE r.job_id = NEW.job_id
      AND r.attempts >= NEW.attempt
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF002',
      MESSAGE = 'HF002 a new record must have an unused id and key, an initial state and its event: '
        || 'holdfast_tracebacks ' || NEW.job_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_erased_insert
CREATE FUNCTION holdfast_erased_insert LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    OR NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.move_id = NEW.move_id
      AND g.action = 'erase'
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF009',
      MESSAGE = 'HF009 this change needs a grant that the same move has consumed: '
        || 'holdfast_erased ' || NEW.job_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_leases_update
CREATE FUNCTION holdfast_leases_update LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NEW.name <> OLD.name OR NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF007',
      MESSAGE = 'HF007 this number cannot decrease: '
        || 'holdfast_leases ' || OLD.name;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_leases_delete
CREATE FUNCTION holdfast_leases_delete LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_meta_update
CREATE FUNCTION holdfast_meta_update LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NEW.name = OLD.name
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
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF007',
      MESSAGE = 'HF007 this number cannot decrease: '
        || 'the setting ' || OLD.name;
  END IF;
  IF OLD.name = 'environment'
    AND NEW.value <> OLD.value
    AND EXISTS (SELECT 1 FROM {schema}holdfast_grants g WHERE g.state = 'active') THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'the setting ' || OLD.name;
  END IF;
  IF (
      NEW.name <> OLD.name
      AND (OLD.name IN ('environment', 'governed') OR NEW.name IN ('environment', 'governed'))
    )
    OR (
      (
        OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
        OR NEW.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
      )
      AND (NEW.name <> OLD.name OR NEW.value <> OLD.value)
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'the setting ' || OLD.name;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_meta_delete
CREATE FUNCTION holdfast_meta_delete LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF OLD.name IN ('environment', 'governed')
    OR (
      OLD.name IN ('ledger_id', 'epoch', 'environment', 'governed', 'erasure_secret')
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: '
        || 'the setting ' || OLD.name;
  END IF;
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_approvers_insert
CREATE FUNCTION holdfast_approvers_insert LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (NEW.revoked_at IS NOT NULL OR NEW.revoked_by IS NOT NULL)
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_maintenance m
      WHERE m.xid = pg_current_xact_id()::text::bigint
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF002',
      MESSAGE = 'HF002 a new record must have an unused id and key, an initial state and its event: '
        || 'the approver ' || NEW.name;
  END IF;
  IF NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.action = 'approver.add'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_maintenance m
      WHERE m.xid = pg_current_xact_id()::text::bigint
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF009',
      MESSAGE = 'HF009 this change needs a grant that the same move has consumed: '
        || 'the approver ' || NEW.name;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_approvers_rewritten
CREATE FUNCTION holdfast_approvers_rewritten LANGUAGE plpgsql AS $holdfast$
BEGIN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'APPROVER ' || NEW.name AS said) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_approvers_update
CREATE FUNCTION holdfast_approvers_update LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT (
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
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_maintenance m
      WHERE m.xid = pg_current_xact_id()::text::bigint
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'the approver ' || NEW.name;
  END IF;
  IF OLD.revoked_at IS NOT NULL
    AND NEW.revoked_at IS NULL
    AND coalesce(NEW.grant_id, 0) > coalesce(OLD.grant_id, 0)
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_grants g
      WHERE g.grant_id = NEW.grant_id
      AND g.state = 'consumed'
      AND g.action = 'approver.add'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_maintenance m
      WHERE m.xid = pg_current_xact_id()::text::bigint
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF009',
      MESSAGE = 'HF009 this change needs a grant that the same move has consumed: '
        || 'the approver ' || NEW.name;
  END IF;
  IF OLD.revoked_at IS NULL
    AND NEW.revoked_at IS NOT NULL
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_grants g
      WHERE g.grant_id > coalesce(OLD.grant_id, 0)
      AND g.state = 'consumed'
      AND g.action = 'approver.revoke'
      AND g.target = NEW.name
    )
    AND NOT EXISTS (
      SELECT 1 FROM {schema}holdfast_maintenance m
      WHERE m.xid = pg_current_xact_id()::text::bigint
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF009',
      MESSAGE = 'HF009 this change needs a grant that the same move has consumed: '
        || 'the approver ' || NEW.name;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_truncate
CREATE FUNCTION holdfast_truncate LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: '
        || 'TRUNCATE of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_delete
CREATE FUNCTION holdfast_delete LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: '
        || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_deleted
CREATE FUNCTION holdfast_deleted LANGUAGE plpgsql AS $holdfast$
BEGIN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'delete', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT TG_ARGV[0] || ' ' || (to_jsonb(OLD) ->> TG_ARGV[1]) AS said) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_maintenance_write_once
CREATE FUNCTION holdfast_maintenance_write_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'UPDATE of the maintenance door';
END
$holdfast$;

-- function: holdfast_maintenance_opened
CREATE FUNCTION holdfast_maintenance_opened LANGUAGE plpgsql AS $holdfast$
BEGIN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, pg_current_xact_id()::text::bigint, 'MAINTENANCE', NEW.maintenance_id,
    1,
    NULL, 'open', 'open', NEW.who, NEW.why,
    NULL, 'maintenance-' || NEW.maintenance_id, NEW.grant_id,
    NEW.maintenance_id, NEW.opened_at);
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_maintenance_shut
CREATE FUNCTION holdfast_maintenance_shut LANGUAGE plpgsql AS $holdfast$
BEGIN
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
  VALUES
    ({epoch}, pg_current_xact_id()::text::bigint, 'MAINTENANCE', OLD.maintenance_id,
    (SELECT coalesce(max(j.version), 0) + 1 FROM {schema}holdfast_journal j
      WHERE j.machine = 'MAINTENANCE' AND j.subject = OLD.maintenance_id),
    'open', 'shut', 'shut', OLD.who, OLD.why,
    NULL, 'maintenance-' || OLD.maintenance_id, OLD.grant_id,
    OLD.maintenance_id, OLD.opened_at);
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_maintenance_still_open
CREATE FUNCTION holdfast_maintenance_still_open LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m
    WHERE m.maintenance_id = NEW.maintenance_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF011',
      MESSAGE = 'HF011 the maintenance door must be shut before the transaction ends or opens it again: '
        || NEW.who;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_grants_once
CREATE FUNCTION holdfast_grants_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.grant_id <> OLD.grant_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
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
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_grants ' || OLD.grant_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_grants_born
CREATE FUNCTION holdfast_grants_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.grant_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'draft' AND n.event = 'request' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'draft' AND n.event = 'request' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': GRANT ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'GRANT', n.grant_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (n.grant_id)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_grants_moved
CREATE FUNCTION holdfast_grants_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.grant_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.grant_id <> o.grant_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'draft'
                AND n.state = 'active'
                AND n.event IN ('approve')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'consumed'
                AND n.event IN ('consume')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'draft'
                AND n.state = 'revoked'
                AND n.event IN ('revoke')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'revoked'
                AND n.event IN ('revoke')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'expired'
                AND n.event IN ('expire')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.approved_by IS DISTINCT FROM o.approved_by
              OR n.consumed_by IS DISTINCT FROM o.consumed_by
              OR n.approved_via IS DISTINCT FROM o.approved_via
              OR n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
          OR (n.approved_by IS DISTINCT FROM o.approved_by AND n.event <> 'approve')
          OR (n.approved_via IS DISTINCT FROM o.approved_via AND n.event <> 'approve')
          OR (n.consumed_by IS DISTINCT FROM o.consumed_by AND n.event <> 'consume')
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        n.event = 'approve'
        AND n.state <> o.state
        AND n.approved_via = '{"method":"role"}'
        AND n.approved_by IS DISTINCT FROM session_user::text
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF014 an approval by a database role must name the role of its session'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.grant_id = o.grant_id
    WHERE (
        n.grant_id <> o.grant_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'draft'
                AND n.state = 'active'
                AND n.event IN ('approve')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'consumed'
                AND n.event IN ('consume')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'draft'
                AND n.state = 'revoked'
                AND n.event IN ('revoke')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'revoked'
                AND n.event IN ('revoke')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'expired'
                AND n.event IN ('expire')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.approved_by IS DISTINCT FROM o.approved_by
              OR n.consumed_by IS DISTINCT FROM o.consumed_by
              OR n.approved_via IS DISTINCT FROM o.approved_via
              OR n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
          OR (n.approved_by IS DISTINCT FROM o.approved_by AND n.event <> 'approve')
          OR (n.approved_via IS DISTINCT FROM o.approved_via AND n.event <> 'approve')
          OR (n.consumed_by IS DISTINCT FROM o.consumed_by AND n.event <> 'consume')
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.event = 'approve'
        AND n.state <> o.state
        AND n.approved_via = '{"method":"role"}'
        AND n.approved_by IS DISTINCT FROM session_user::text
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': GRANT ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'GRANT', n.grant_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (n.grant_id)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.grant_id = o.grant_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'GRANT ' || n.grant_id || ':' || CASE
      WHEN n.action IS DISTINCT FROM o.action
      THEN ' action'
      ELSE ''
      END || CASE
      WHEN n.target IS DISTINCT FROM o.target
      THEN ' target'
      ELSE ''
      END || CASE
      WHEN n.scope IS DISTINCT FROM o.scope
      THEN ' scope'
      ELSE ''
      END || CASE
      WHEN n.requested_by IS DISTINCT FROM o.requested_by
      THEN ' requested_by'
      ELSE ''
      END || CASE
      WHEN n.expires_at IS DISTINCT FROM o.expires_at
      THEN ' expires_at'
      ELSE ''
      END || CASE
      WHEN n.requested_via IS DISTINCT FROM o.requested_via
      THEN ' requested_via'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.approved_by IS DISTINCT FROM o.approved_by
      THEN ' approved_by'
      ELSE ''
      END || CASE
      WHEN n.consumed_by IS DISTINCT FROM o.consumed_by
      THEN ' consumed_by'
      ELSE ''
      END || CASE
      WHEN n.approved_via IS DISTINCT FROM o.approved_via
      THEN ' approved_via'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.grant_id = o.grant_id
    WHERE n.state = o.state
      AND (
        n.action IS DISTINCT FROM o.action
        OR n.target IS DISTINCT FROM o.target
        OR n.scope IS DISTINCT FROM o.scope
        OR n.requested_by IS DISTINCT FROM o.requested_by
        OR n.expires_at IS DISTINCT FROM o.expires_at
        OR n.requested_via IS DISTINCT FROM o.requested_via
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.approved_by IS DISTINCT FROM o.approved_by
        OR n.consumed_by IS DISTINCT FROM o.consumed_by
        OR n.approved_via IS DISTINCT FROM o.approved_via
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_procedures_once
CREATE FUNCTION holdfast_procedures_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.run_id <> OLD.run_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.idempotency_root IS DISTINCT FROM OLD.idempotency_root
        OR NEW.procedure IS DISTINCT FROM OLD.procedure
        OR NEW.params IS DISTINCT FROM OLD.params
        OR NEW.plan IS DISTINCT FROM OLD.plan
        OR NEW.lease IS DISTINCT FROM OLD.lease
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_procedures ' || OLD.run_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_procedures_born
CREATE FUNCTION holdfast_procedures_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.run_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'planned' AND n.event = 'plan' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'planned' AND n.event = 'plan' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': PROCEDURE ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'PROCEDURE', n.run_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_procedures_moved
CREATE FUNCTION holdfast_procedures_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.run_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.run_id <> o.run_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version OR n.step < o.step)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'planned'
                AND n.state = 'running'
                AND n.event IN ('run')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'done'
                AND n.event IN ('finish')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'planned'
                AND n.state = 'stopped'
                AND n.event IN ('abort')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'stopped'
                AND n.event IN ('abort')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'compensating'
                AND n.event IN ('compensate')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'compensating'
                AND n.state = 'stopped'
                AND n.event IN ('stop')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'stopped'
                AND n.state = 'running'
                AND n.event IN ('resume')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.stop_state IS DISTINCT FROM o.stop_state
              OR n.grant_id IS DISTINCT FROM o.grant_id
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.updated_at < o.updated_at
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.run_id = o.run_id
    WHERE (
        n.run_id <> o.run_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version OR n.step < o.step)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'planned'
                AND n.state = 'running'
                AND n.event IN ('run')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'done'
                AND n.event IN ('finish')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'planned'
                AND n.state = 'stopped'
                AND n.event IN ('abort')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'stopped'
                AND n.event IN ('abort')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'compensating'
                AND n.event IN ('compensate')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'compensating'
                AND n.state = 'stopped'
                AND n.event IN ('stop')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'stopped'
                AND n.state = 'running'
                AND n.event IN ('resume')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.stop_state IS DISTINCT FROM o.stop_state
              OR n.grant_id IS DISTINCT FROM o.grant_id
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.updated_at < o.updated_at
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': PROCEDURE ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'PROCEDURE', n.run_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.run_id = o.run_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'PROCEDURE ' || n.run_id || ':' || CASE
      WHEN n.idempotency_root IS DISTINCT FROM o.idempotency_root
      THEN ' idempotency_root'
      ELSE ''
      END || CASE
      WHEN n.procedure IS DISTINCT FROM o.procedure
      THEN ' procedure'
      ELSE ''
      END || CASE
      WHEN n.params IS DISTINCT FROM o.params
      THEN ' params'
      ELSE ''
      END || CASE
      WHEN n.plan IS DISTINCT FROM o.plan
      THEN ' plan'
      ELSE ''
      END || CASE
      WHEN n.lease IS DISTINCT FROM o.lease
      THEN ' lease'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.stop_state IS DISTINCT FROM o.stop_state
      THEN ' stop_state'
      ELSE ''
      END || CASE
      WHEN n.grant_id IS DISTINCT FROM o.grant_id
      THEN ' grant_id'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.run_id = o.run_id
    WHERE n.state = o.state
      AND (
        n.idempotency_root IS DISTINCT FROM o.idempotency_root
        OR n.procedure IS DISTINCT FROM o.procedure
        OR n.params IS DISTINCT FROM o.params
        OR n.plan IS DISTINCT FROM o.plan
        OR n.lease IS DISTINCT FROM o.lease
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.stop_state IS DISTINCT FROM o.stop_state
        OR n.grant_id IS DISTINCT FROM o.grant_id
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_steps_once
CREATE FUNCTION holdfast_steps_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.step_id <> OLD.step_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.run_id IS DISTINCT FROM OLD.run_id
        OR NEW.number IS DISTINCT FROM OLD.number
        OR NEW.name IS DISTINCT FROM OLD.name
        OR NEW.outcome IS DISTINCT FROM OLD.outcome
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_steps ' || OLD.step_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_steps_born
CREATE FUNCTION holdfast_steps_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.step_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'performed' AND n.event = 'perform' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'performed' AND n.event = 'perform' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': STEP ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'STEP', n.step_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_steps_moved
CREATE FUNCTION holdfast_steps_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.step_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.step_id <> o.step_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'performed'
                AND n.state = 'undone'
                AND n.event IN ('undo')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.step_id = o.step_id
    WHERE (
        n.step_id <> o.step_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'performed'
                AND n.state = 'undone'
                AND n.event IN ('undo')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': STEP ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'STEP', n.step_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.step_id = o.step_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'STEP ' || n.step_id || ':' || CASE
      WHEN n.run_id IS DISTINCT FROM o.run_id
      THEN ' run_id'
      ELSE ''
      END || CASE
      WHEN n.number IS DISTINCT FROM o.number
      THEN ' number'
      ELSE ''
      END || CASE
      WHEN n.name IS DISTINCT FROM o.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN n.outcome IS DISTINCT FROM o.outcome
      THEN ' outcome'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.step_id = o.step_id
    WHERE n.state = o.state
      AND (
        n.run_id IS DISTINCT FROM o.run_id
        OR n.number IS DISTINCT FROM o.number
        OR n.name IS DISTINCT FROM o.name
        OR n.outcome IS DISTINCT FROM o.outcome
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_values_once
CREATE FUNCTION holdfast_values_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.value_id <> OLD.value_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
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
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_values ' || OLD.value_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_values_born
CREATE FUNCTION holdfast_values_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.value_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'active' AND n.event = 'admit' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      WHEN
        n.state IN ('active')
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_grants g
          WHERE g.grant_id = n.grant_id
          AND g.state = 'consumed'
          AND (
            g.move_id = n.move_id
            OR EXISTS (
              SELECT 1 FROM {schema}holdfast_procedures p
              WHERE p.run_id = n.run_id
              AND p.grant_id = g.grant_id
              AND p.state = 'running'
              AND n.status = 'staged'
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF009 this change needs a grant that the same move has consumed'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'active' AND n.event = 'admit' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IN ('active')
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_grants g
          WHERE g.grant_id = n.grant_id
          AND g.state = 'consumed'
          AND (
            g.move_id = n.move_id
            OR EXISTS (
              SELECT 1 FROM {schema}holdfast_procedures p
              WHERE p.run_id = n.run_id
              AND p.grant_id = g.grant_id
              AND p.state = 'running'
              AND n.status = 'staged'
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': VALUE ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'VALUE', n.value_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (CASE WHEN n.state = 'active' THEN n.grant_id END)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_values_moved
CREATE FUNCTION holdfast_values_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.value_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.value_id <> o.value_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'active'
                AND n.state = 'superseded'
                AND n.event IN ('supersede')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'retired'
                AND n.event IN ('retire')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        ((o.state = 'active' AND n.state = 'superseded') OR (o.state = 'active' AND n.state = 'retired'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
          AND NOT EXISTS (
            SELECT 1 FROM {schema}holdfast_values r
            WHERE r.grant_id = n.grant_id
            AND r.value_id <> n.value_id
            AND r.version > 1
          )
          OR (
            NOT NOT EXISTS (
              SELECT 1 FROM {schema}holdfast_maintenance m
              WHERE m.xid = pg_current_xact_id()::text::bigint
            )
            AND EXISTS (
              SELECT 1 FROM {schema}holdfast_journal j
              WHERE j.subject = n.value_id
              AND j.machine = 'VALUE'
              AND j.target = n.state
              AND j.grant_id IS NOT NULL
            )
          )
        )
        THEN 'HF009 this change needs a grant that the same move has consumed'
      WHEN
        n.status IS DISTINCT FROM o.status
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_procedures p
          WHERE p.lease = 'registry:' || n.collection
          AND p.state IN ('running', 'compensating')
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF009 this change needs a grant that the same move has consumed'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.successor_code IS DISTINCT FROM o.successor_code
              OR n.successor_version IS DISTINCT FROM o.successor_version
              OR n.rollback_ref IS DISTINCT FROM o.rollback_ref
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.grant_id IS DISTINCT FROM o.grant_id
              OR n.updated_at < o.updated_at
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.value_id = o.value_id
    WHERE (
        n.value_id <> o.value_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'active'
                AND n.state = 'superseded'
                AND n.event IN ('supersede')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'retired'
                AND n.event IN ('retire')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        ((o.state = 'active' AND n.state = 'superseded') OR (o.state = 'active' AND n.state = 'retired'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
          AND NOT EXISTS (
            SELECT 1 FROM {schema}holdfast_values r
            WHERE r.grant_id = n.grant_id
            AND r.value_id <> n.value_id
            AND r.version > 1
          )
          OR (
            NOT NOT EXISTS (
              SELECT 1 FROM {schema}holdfast_maintenance m
              WHERE m.xid = pg_current_xact_id()::text::bigint
            )
            AND EXISTS (
              SELECT 1 FROM {schema}holdfast_journal j
              WHERE j.subject = n.value_id
              AND j.machine = 'VALUE'
              AND j.target = n.state
              AND j.grant_id IS NOT NULL
            )
          )
        )
      ) OR (
        n.status IS DISTINCT FROM o.status
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_procedures p
          WHERE p.lease = 'registry:' || n.collection
          AND p.state IN ('running', 'compensating')
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.successor_code IS DISTINCT FROM o.successor_code
              OR n.successor_version IS DISTINCT FROM o.successor_version
              OR n.rollback_ref IS DISTINCT FROM o.rollback_ref
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.grant_id IS DISTINCT FROM o.grant_id
              OR n.updated_at < o.updated_at
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': VALUE ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'VALUE', n.value_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (CASE
      WHEN o.state = 'active'
      AND n.state = 'superseded'
      OR o.state = 'active'
      AND n.state = 'retired'
      THEN n.grant_id
      END)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.value_id = o.value_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'VALUE ' || n.value_id || ':' || CASE
      WHEN n.vocab_id IS DISTINCT FROM o.vocab_id
      THEN ' vocab_id'
      ELSE ''
      END || CASE
      WHEN n.collection IS DISTINCT FROM o.collection
      THEN ' collection'
      ELSE ''
      END || CASE
      WHEN n.operation_code IS DISTINCT FROM o.operation_code
      THEN ' operation_code'
      ELSE ''
      END || CASE
      WHEN n.protocol_version IS DISTINCT FROM o.protocol_version
      THEN ' protocol_version'
      ELSE ''
      END || CASE
      WHEN n.act_type IS DISTINCT FROM o.act_type
      THEN ' act_type'
      ELSE ''
      END || CASE
      WHEN n.semantics IS DISTINCT FROM o.semantics
      THEN ' semantics'
      ELSE ''
      END || CASE
      WHEN n.authority_ref IS DISTINCT FROM o.authority_ref
      THEN ' authority_ref'
      ELSE ''
      END || CASE
      WHEN n.digest IS DISTINCT FROM o.digest
      THEN ' digest'
      ELSE ''
      END || CASE
      WHEN n.run_id IS DISTINCT FROM o.run_id
      THEN ' run_id'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN n.grant_id IS DISTINCT FROM o.grant_id
      THEN ' grant_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.value_id = o.value_id
    WHERE n.state = o.state
      AND (
        n.vocab_id IS DISTINCT FROM o.vocab_id
        OR n.collection IS DISTINCT FROM o.collection
        OR n.operation_code IS DISTINCT FROM o.operation_code
        OR n.protocol_version IS DISTINCT FROM o.protocol_version
        OR n.act_type IS DISTINCT FROM o.act_type
        OR n.semantics IS DISTINCT FROM o.semantics
        OR n.authority_ref IS DISTINCT FROM o.authority_ref
        OR n.digest IS DISTINCT FROM o.digest
        OR n.run_id IS DISTINCT FROM o.run_id
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
        OR n.grant_id IS DISTINCT FROM o.grant_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_switches_once
CREATE FUNCTION holdfast_switches_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.switch_id <> OLD.switch_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.name IS DISTINCT FROM OLD.name
        OR NEW.thrown_by IS DISTINCT FROM OLD.thrown_by
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_switches ' || OLD.switch_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_switches_born
CREATE FUNCTION holdfast_switches_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.switch_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'on' AND n.event = 'throw' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'on' AND n.event = 'throw' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': SWITCH ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SWITCH', n.switch_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_switches_moved
CREATE FUNCTION holdfast_switches_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.switch_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.switch_id <> o.switch_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (o.state = 'on' AND n.state = 'off' AND n.event IN ('lift') AND n.version = o.version + 1)
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        ((o.state = 'on' AND n.state = 'off'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
          AND NOT EXISTS (
            SELECT 1 FROM {schema}holdfast_switches r
            WHERE r.grant_id = n.grant_id
            AND r.switch_id <> n.switch_id
            AND r.version > 1
          )
          OR (
            NOT NOT EXISTS (
              SELECT 1 FROM {schema}holdfast_maintenance m
              WHERE m.xid = pg_current_xact_id()::text::bigint
            )
            AND EXISTS (
              SELECT 1 FROM {schema}holdfast_journal j
              WHERE j.subject = n.switch_id
              AND j.machine = 'SWITCH'
              AND j.target = n.state
              AND j.grant_id IS NOT NULL
            )
          )
        )
        THEN 'HF009 this change needs a grant that the same move has consumed'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.grant_id IS DISTINCT FROM o.grant_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.switch_id = o.switch_id
    WHERE (
        n.switch_id <> o.switch_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (o.state = 'on' AND n.state = 'off' AND n.event IN ('lift') AND n.version = o.version + 1)
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        ((o.state = 'on' AND n.state = 'off'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
          AND NOT EXISTS (
            SELECT 1 FROM {schema}holdfast_switches r
            WHERE r.grant_id = n.grant_id
            AND r.switch_id <> n.switch_id
            AND r.version > 1
          )
          OR (
            NOT NOT EXISTS (
              SELECT 1 FROM {schema}holdfast_maintenance m
              WHERE m.xid = pg_current_xact_id()::text::bigint
            )
            AND EXISTS (
              SELECT 1 FROM {schema}holdfast_journal j
              WHERE j.subject = n.switch_id
              AND j.machine = 'SWITCH'
              AND j.target = n.state
              AND j.grant_id IS NOT NULL
            )
          )
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
              OR n.grant_id IS DISTINCT FROM o.grant_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': SWITCH ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SWITCH', n.switch_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (CASE WHEN o.state = 'on' AND n.state = 'off' THEN n.grant_id END)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.switch_id = o.switch_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'SWITCH ' || n.switch_id || ':' || CASE
      WHEN n.name IS DISTINCT FROM o.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN n.thrown_by IS DISTINCT FROM o.thrown_by
      THEN ' thrown_by'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END || CASE
      WHEN n.grant_id IS DISTINCT FROM o.grant_id
      THEN ' grant_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.switch_id = o.switch_id
    WHERE n.state = o.state
      AND (
        n.name IS DISTINCT FROM o.name
        OR n.thrown_by IS DISTINCT FROM o.thrown_by
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
        OR n.grant_id IS DISTINCT FROM o.grant_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_settings_once
CREATE FUNCTION holdfast_settings_once LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.setting_id <> OLD.setting_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.kind IS DISTINCT FROM OLD.kind
        OR NEW.name IS DISTINCT FROM OLD.name
        OR NEW.value IS DISTINCT FROM OLD.value
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: '
        || 'holdfast_settings ' || OLD.setting_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_settings_born
CREATE FUNCTION holdfast_settings_born LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.setting_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (NOT (((n.state = 'active' AND n.event = 'set' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (NOT (((n.state = 'active' AND n.event = 'set' AND n.version = 1))))
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': SETTING ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SETTING', n.setting_id, n.version,
      NULL::text, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM new_rows n
    WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
    ORDER BY 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_settings_moved
CREATE FUNCTION holdfast_settings_moved LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.setting_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.setting_id <> o.setting_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF007 this number cannot decrease'
      WHEN
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'active'
                AND n.state = 'replaced'
                AND n.event IN ('replace')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'removed'
                AND n.event IN ('remove')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      WHEN
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.setting_id = o.setting_id
    WHERE (
        n.setting_id <> o.setting_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        n.state IS DISTINCT FROM o.state
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.state IS DISTINCT FROM o.state
            AND NOT (
              (
                o.state = 'active'
                AND n.state = 'replaced'
                AND n.event IN ('replace')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'active'
                AND n.state = 'removed'
                AND n.event IN ('remove')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.state = o.state AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (
          (
            n.state = o.state
            AND (
              n.updated_at IS DISTINCT FROM o.updated_at
              OR n.event IS DISTINCT FROM o.event
              OR n.actor IS DISTINCT FROM o.actor
              OR n.reason IS DISTINCT FROM o.reason
              OR n.move_id IS DISTINCT FROM o.move_id
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': SETTING ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SETTING', n.setting_id, n.version,
      o.state, n.state, n.event, n.actor, n.reason, NULL::integer, n.move_id,
      (NULL)::bigint,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      n.updated_at
    FROM old_rows o JOIN new_rows n ON n.setting_id = o.setting_id
    WHERE n.state <> o.state
    ORDER BY 4;
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT g.epoch, g.xid, g.machine, g.subject,
      (SELECT max(j.version) FROM {schema}holdfast_journal j
        WHERE j.machine = 'MAINTENANCE' AND j.subject = g.subject)
        + row_number() OVER (),
      g.target, g.target, 'rewrite', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,
      g.maintenance_id, g.at
    FROM (SELECT 'SETTING ' || n.setting_id || ':' || CASE
      WHEN n.kind IS DISTINCT FROM o.kind
      THEN ' kind'
      ELSE ''
      END || CASE
      WHEN n.name IS DISTINCT FROM o.name
      THEN ' name'
      ELSE ''
      END || CASE
      WHEN n.value IS DISTINCT FROM o.value
      THEN ' value'
      ELSE ''
      END || CASE
      WHEN n.created_at IS DISTINCT FROM o.created_at
      THEN ' created_at'
      ELSE ''
      END || CASE
      WHEN n.event IS DISTINCT FROM o.event
      THEN ' event'
      ELSE ''
      END || CASE
      WHEN n.actor IS DISTINCT FROM o.actor
      THEN ' actor'
      ELSE ''
      END || CASE
      WHEN n.reason IS DISTINCT FROM o.reason
      THEN ' reason'
      ELSE ''
      END || CASE
      WHEN n.move_id IS DISTINCT FROM o.move_id
      THEN ' move_id'
      ELSE ''
      END AS said
    FROM old_rows o JOIN new_rows n ON n.setting_id = o.setting_id
    WHERE n.state = o.state
      AND (
        n.kind IS DISTINCT FROM o.kind
        OR n.name IS DISTINCT FROM o.name
        OR n.value IS DISTINCT FROM o.value
        OR n.created_at IS DISTINCT FROM o.created_at
        OR n.event IS DISTINCT FROM o.event
        OR n.actor IS DISTINCT FROM o.actor
        OR n.reason IS DISTINCT FROM o.reason
        OR n.move_id IS DISTINCT FROM o.move_id
      )) s
    CROSS JOIN {schema}holdfast_journal g
    WHERE g.machine = 'MAINTENANCE' AND g.version = 1
      AND g.subject = (
        SELECT d.maintenance_id FROM {schema}holdfast_maintenance d
        WHERE d.xid = pg_current_xact_id()::text::bigint
      );
  RETURN NULL;
END
$holdfast$;

-- trigger: holdfast_jobs holdfast_jobs_once
CREATE TRIGGER holdfast_jobs_once AFTER UPDATE OF operation, queue, priority, history_from ON holdfast_jobs FOR EACH ROW WHEN (new.operation IS DISTINCT FROM old.operation OR new.queue IS DISTINCT FROM old.queue OR new.priority IS DISTINCT FROM old.priority OR new.history_from IS DISTINCT FROM old.history_from) EXECUTE FUNCTION holdfast_jobs_once();

-- trigger: holdfast_calls holdfast_calls_once
CREATE TRIGGER holdfast_calls_once AFTER UPDATE OF job_id, operation_version, client, key, payload, digest, max_attempts, replay_attempts, replaces, created_at ON holdfast_calls FOR EACH ROW WHEN (new.job_id IS DISTINCT FROM old.job_id OR new.operation_version IS DISTINCT FROM old.operation_version OR new.client IS DISTINCT FROM old.client OR new.key IS DISTINCT FROM old.key OR new.payload IS DISTINCT FROM old.payload OR new.digest IS DISTINCT FROM old.digest OR new.max_attempts IS DISTINCT FROM old.max_attempts OR new.replay_attempts IS DISTINCT FROM old.replay_attempts OR new.replaces IS DISTINCT FROM old.replaces OR new.created_at IS DISTINCT FROM old.created_at) EXECUTE FUNCTION holdfast_calls_once();

-- trigger: holdfast_jobs holdfast_jobs_requested
CREATE TRIGGER holdfast_jobs_requested AFTER UPDATE OF cancel_requested_at ON holdfast_jobs FOR EACH ROW WHEN (old.cancel_requested_at IS NULL AND new.cancel_requested_at IS NOT NULL AND new.cancel_by IS NOT NULL AND new.cancel_move_id IS NOT NULL) EXECUTE FUNCTION holdfast_jobs_requested();

-- trigger: holdfast_count_deltas holdfast_count_deltas_folded
CREATE TRIGGER holdfast_count_deltas_folded AFTER INSERT ON holdfast_count_deltas FOR EACH ROW WHEN ((new.delta_id % 1000::bigint) = 0) EXECUTE FUNCTION holdfast_count_deltas_folded();

-- trigger: holdfast_jobs holdfast_jobs_born
CREATE TRIGGER holdfast_jobs_born AFTER INSERT ON holdfast_jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_jobs_born();

-- trigger: holdfast_jobs holdfast_jobs_moved
CREATE TRIGGER holdfast_jobs_moved AFTER UPDATE ON holdfast_jobs REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_jobs_moved();

-- trigger: holdfast_grants holdfast_grants_once
CREATE TRIGGER holdfast_grants_once BEFORE UPDATE OF grant_id, action, target, scope, requested_by, expires_at, requested_via, created_at, history_from ON holdfast_grants FOR EACH ROW EXECUTE FUNCTION holdfast_grants_once();

-- trigger: holdfast_grants holdfast_grants_born
CREATE TRIGGER holdfast_grants_born AFTER INSERT ON holdfast_grants REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_grants_born();

-- trigger: holdfast_grants holdfast_grants_moved
CREATE TRIGGER holdfast_grants_moved AFTER UPDATE ON holdfast_grants REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_grants_moved();

-- trigger: holdfast_procedures holdfast_procedures_once
CREATE TRIGGER holdfast_procedures_once BEFORE UPDATE OF run_id, idempotency_root, procedure, params, plan, lease, created_at, history_from ON holdfast_procedures FOR EACH ROW EXECUTE FUNCTION holdfast_procedures_once();

-- trigger: holdfast_procedures holdfast_procedures_born
CREATE TRIGGER holdfast_procedures_born AFTER INSERT ON holdfast_procedures REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_procedures_born();

-- trigger: holdfast_procedures holdfast_procedures_moved
CREATE TRIGGER holdfast_procedures_moved AFTER UPDATE ON holdfast_procedures REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_procedures_moved();

-- trigger: holdfast_steps holdfast_steps_once
CREATE TRIGGER holdfast_steps_once BEFORE UPDATE OF step_id, run_id, number, name, outcome, created_at, history_from ON holdfast_steps FOR EACH ROW EXECUTE FUNCTION holdfast_steps_once();

-- trigger: holdfast_steps holdfast_steps_born
CREATE TRIGGER holdfast_steps_born AFTER INSERT ON holdfast_steps REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_steps_born();

-- trigger: holdfast_steps holdfast_steps_moved
CREATE TRIGGER holdfast_steps_moved AFTER UPDATE ON holdfast_steps REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_steps_moved();

-- trigger: holdfast_values holdfast_values_once
CREATE TRIGGER holdfast_values_once BEFORE UPDATE OF value_id, vocab_id, collection, operation_code, protocol_version, act_type, semantics, authority_ref, digest, run_id, created_at, history_from ON holdfast_values FOR EACH ROW EXECUTE FUNCTION holdfast_values_once();

-- trigger: holdfast_values holdfast_values_born
CREATE TRIGGER holdfast_values_born AFTER INSERT ON holdfast_values REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_values_born();

-- trigger: holdfast_values holdfast_values_moved
CREATE TRIGGER holdfast_values_moved AFTER UPDATE ON holdfast_values REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_values_moved();

-- trigger: holdfast_switches holdfast_switches_once
CREATE TRIGGER holdfast_switches_once BEFORE UPDATE OF switch_id, name, thrown_by, created_at, history_from ON holdfast_switches FOR EACH ROW EXECUTE FUNCTION holdfast_switches_once();

-- trigger: holdfast_switches holdfast_switches_born
CREATE TRIGGER holdfast_switches_born AFTER INSERT ON holdfast_switches REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_switches_born();

-- trigger: holdfast_switches holdfast_switches_moved
CREATE TRIGGER holdfast_switches_moved AFTER UPDATE ON holdfast_switches REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_switches_moved();

-- trigger: holdfast_settings holdfast_settings_once
CREATE TRIGGER holdfast_settings_once BEFORE UPDATE OF setting_id, kind, name, value, created_at, history_from ON holdfast_settings FOR EACH ROW EXECUTE FUNCTION holdfast_settings_once();

-- trigger: holdfast_settings holdfast_settings_born
CREATE TRIGGER holdfast_settings_born AFTER INSERT ON holdfast_settings REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_settings_born();

-- trigger: holdfast_settings holdfast_settings_moved
CREATE TRIGGER holdfast_settings_moved AFTER UPDATE ON holdfast_settings REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_settings_moved();

-- trigger: holdfast_aborted holdfast_aborted_written
CREATE TRIGGER holdfast_aborted_written AFTER INSERT ON holdfast_aborted REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_aborted_written();

-- trigger: holdfast_aborted holdfast_aborted_update
CREATE TRIGGER holdfast_aborted_update BEFORE UPDATE ON holdfast_aborted FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_calls holdfast_calls_delete
CREATE TRIGGER holdfast_calls_delete BEFORE DELETE ON holdfast_calls FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_calls holdfast_calls_truncate
CREATE TRIGGER holdfast_calls_truncate BEFORE TRUNCATE ON holdfast_calls FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_aborted holdfast_aborted_delete
CREATE TRIGGER holdfast_aborted_delete BEFORE DELETE ON holdfast_aborted FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_aborted holdfast_aborted_truncate
CREATE TRIGGER holdfast_aborted_truncate BEFORE TRUNCATE ON holdfast_aborted FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_jobs holdfast_jobs_delete
CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_jobs holdfast_jobs_truncate
CREATE TRIGGER holdfast_jobs_truncate BEFORE TRUNCATE ON holdfast_jobs FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_grants holdfast_grants_delete
CREATE TRIGGER holdfast_grants_delete BEFORE DELETE ON holdfast_grants FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_grants holdfast_grants_truncate
CREATE TRIGGER holdfast_grants_truncate BEFORE TRUNCATE ON holdfast_grants FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_procedures holdfast_procedures_delete
CREATE TRIGGER holdfast_procedures_delete BEFORE DELETE ON holdfast_procedures FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_procedures holdfast_procedures_truncate
CREATE TRIGGER holdfast_procedures_truncate BEFORE TRUNCATE ON holdfast_procedures FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_steps holdfast_steps_delete
CREATE TRIGGER holdfast_steps_delete BEFORE DELETE ON holdfast_steps FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_steps holdfast_steps_truncate
CREATE TRIGGER holdfast_steps_truncate BEFORE TRUNCATE ON holdfast_steps FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_values holdfast_values_delete
CREATE TRIGGER holdfast_values_delete BEFORE DELETE ON holdfast_values FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_values holdfast_values_truncate
CREATE TRIGGER holdfast_values_truncate BEFORE TRUNCATE ON holdfast_values FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_switches holdfast_switches_delete
CREATE TRIGGER holdfast_switches_delete BEFORE DELETE ON holdfast_switches FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_switches holdfast_switches_truncate
CREATE TRIGGER holdfast_switches_truncate BEFORE TRUNCATE ON holdfast_switches FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_settings holdfast_settings_delete
CREATE TRIGGER holdfast_settings_delete BEFORE DELETE ON holdfast_settings FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_settings holdfast_settings_truncate
CREATE TRIGGER holdfast_settings_truncate BEFORE TRUNCATE ON holdfast_settings FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_approvers holdfast_approvers_delete
CREATE TRIGGER holdfast_approvers_delete BEFORE DELETE ON holdfast_approvers FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_approvers holdfast_approvers_truncate
CREATE TRIGGER holdfast_approvers_truncate BEFORE TRUNCATE ON holdfast_approvers FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_jobs holdfast_jobs_deleted
CREATE TRIGGER holdfast_jobs_deleted AFTER DELETE ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('JOB', 'job_id');

-- trigger: holdfast_grants holdfast_grants_deleted
CREATE TRIGGER holdfast_grants_deleted AFTER DELETE ON holdfast_grants FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('GRANT', 'grant_id');

-- trigger: holdfast_procedures holdfast_procedures_deleted
CREATE TRIGGER holdfast_procedures_deleted AFTER DELETE ON holdfast_procedures FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('PROCEDURE', 'run_id');

-- trigger: holdfast_steps holdfast_steps_deleted
CREATE TRIGGER holdfast_steps_deleted AFTER DELETE ON holdfast_steps FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('STEP', 'step_id');

-- trigger: holdfast_values holdfast_values_deleted
CREATE TRIGGER holdfast_values_deleted AFTER DELETE ON holdfast_values FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('VALUE', 'value_id');

-- trigger: holdfast_switches holdfast_switches_deleted
CREATE TRIGGER holdfast_switches_deleted AFTER DELETE ON holdfast_switches FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('SWITCH', 'switch_id');

-- trigger: holdfast_settings holdfast_settings_deleted
CREATE TRIGGER holdfast_settings_deleted AFTER DELETE ON holdfast_settings FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('SETTING', 'setting_id');

-- trigger: holdfast_approvers holdfast_approvers_deleted
CREATE TRIGGER holdfast_approvers_deleted AFTER DELETE ON holdfast_approvers FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('APPROVER', 'name');

-- trigger: holdfast_approvers holdfast_approvers_insert
CREATE TRIGGER holdfast_approvers_insert BEFORE INSERT ON holdfast_approvers FOR EACH ROW EXECUTE FUNCTION holdfast_approvers_insert();

-- trigger: holdfast_approvers holdfast_approvers_update
CREATE TRIGGER holdfast_approvers_update BEFORE UPDATE ON holdfast_approvers FOR EACH ROW EXECUTE FUNCTION holdfast_approvers_update();

-- trigger: holdfast_approvers holdfast_approvers_rewritten
CREATE TRIGGER holdfast_approvers_rewritten AFTER UPDATE ON holdfast_approvers FOR EACH ROW EXECUTE FUNCTION holdfast_approvers_rewritten();

-- trigger: holdfast_journal holdfast_journal_update
CREATE TRIGGER holdfast_journal_update BEFORE UPDATE ON holdfast_journal FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_journal holdfast_journal_delete
CREATE TRIGGER holdfast_journal_delete BEFORE DELETE ON holdfast_journal FOR EACH ROW EXECUTE FUNCTION holdfast_journal_delete();

-- trigger: holdfast_journal holdfast_journal_written
CREATE TRIGGER holdfast_journal_written AFTER INSERT ON holdfast_journal REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_journal_written();

-- trigger: holdfast_journal holdfast_journal_truncate
CREATE TRIGGER holdfast_journal_truncate BEFORE TRUNCATE ON holdfast_journal FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_seals holdfast_seals_insert
CREATE TRIGGER holdfast_seals_insert BEFORE INSERT ON holdfast_seals FOR EACH ROW EXECUTE FUNCTION holdfast_seals_follow();

-- trigger: holdfast_seals holdfast_seals_update
CREATE TRIGGER holdfast_seals_update BEFORE UPDATE ON holdfast_seals FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_seals holdfast_seals_delete
CREATE TRIGGER holdfast_seals_delete BEFORE DELETE ON holdfast_seals FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_seals holdfast_seals_truncate
CREATE TRIGGER holdfast_seals_truncate BEFORE TRUNCATE ON holdfast_seals FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_archives holdfast_archives_update
CREATE TRIGGER holdfast_archives_update BEFORE UPDATE ON holdfast_archives FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_archives holdfast_archives_delete
CREATE TRIGGER holdfast_archives_delete BEFORE DELETE ON holdfast_archives FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_archives holdfast_archives_truncate
CREATE TRIGGER holdfast_archives_truncate BEFORE TRUNCATE ON holdfast_archives FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_evidence holdfast_evidence_update
CREATE TRIGGER holdfast_evidence_update BEFORE UPDATE ON holdfast_evidence FOR EACH ROW EXECUTE FUNCTION holdfast_evidence_update();

-- trigger: holdfast_evidence holdfast_evidence_delete
CREATE TRIGGER holdfast_evidence_delete BEFORE DELETE ON holdfast_evidence FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_evidence holdfast_evidence_truncate
CREATE TRIGGER holdfast_evidence_truncate BEFORE TRUNCATE ON holdfast_evidence FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_leases holdfast_leases_update
CREATE TRIGGER holdfast_leases_update BEFORE UPDATE ON holdfast_leases FOR EACH ROW EXECUTE FUNCTION holdfast_leases_update();

-- trigger: holdfast_leases holdfast_leases_delete
CREATE TRIGGER holdfast_leases_delete BEFORE DELETE ON holdfast_leases FOR EACH ROW EXECUTE FUNCTION holdfast_leases_delete();

-- trigger: holdfast_leases holdfast_leases_truncate
CREATE TRIGGER holdfast_leases_truncate BEFORE TRUNCATE ON holdfast_leases FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_tracebacks holdfast_tracebacks_insert
CREATE TRIGGER holdfast_tracebacks_insert BEFORE INSERT ON holdfast_tracebacks FOR EACH ROW EXECUTE FUNCTION holdfast_tracebacks_insert();

-- trigger: holdfast_tracebacks holdfast_tracebacks_update
CREATE TRIGGER holdfast_tracebacks_update BEFORE UPDATE ON holdfast_tracebacks FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_tracebacks holdfast_tracebacks_delete
CREATE TRIGGER holdfast_tracebacks_delete BEFORE DELETE ON holdfast_tracebacks FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_tracebacks holdfast_tracebacks_truncate
CREATE TRIGGER holdfast_tracebacks_truncate BEFORE TRUNCATE ON holdfast_tracebacks FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_erased holdfast_erased_insert
CREATE TRIGGER holdfast_erased_insert BEFORE INSERT ON holdfast_erased FOR EACH ROW EXECUTE FUNCTION holdfast_erased_insert();

-- trigger: holdfast_erased holdfast_erased_update
CREATE TRIGGER holdfast_erased_update BEFORE UPDATE ON holdfast_erased FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_erased holdfast_erased_delete
CREATE TRIGGER holdfast_erased_delete BEFORE DELETE ON holdfast_erased FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse();

-- trigger: holdfast_erased holdfast_erased_truncate
CREATE TRIGGER holdfast_erased_truncate BEFORE TRUNCATE ON holdfast_erased FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_meta holdfast_meta_update
CREATE TRIGGER holdfast_meta_update BEFORE UPDATE ON holdfast_meta FOR EACH ROW EXECUTE FUNCTION holdfast_meta_update();

-- trigger: holdfast_meta holdfast_meta_delete
CREATE TRIGGER holdfast_meta_delete BEFORE DELETE ON holdfast_meta FOR EACH ROW EXECUTE FUNCTION holdfast_meta_delete();

-- trigger: holdfast_meta holdfast_meta_truncate
CREATE TRIGGER holdfast_meta_truncate BEFORE TRUNCATE ON holdfast_meta FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_maintenance holdfast_maintenance_opened
CREATE TRIGGER holdfast_maintenance_opened AFTER INSERT ON holdfast_maintenance FOR EACH ROW EXECUTE FUNCTION holdfast_maintenance_opened();

-- trigger: holdfast_maintenance holdfast_maintenance_shut
CREATE TRIGGER holdfast_maintenance_shut BEFORE DELETE ON holdfast_maintenance FOR EACH ROW EXECUTE FUNCTION holdfast_maintenance_shut();

-- trigger: holdfast_maintenance holdfast_maintenance_write_once
CREATE TRIGGER holdfast_maintenance_write_once BEFORE UPDATE ON holdfast_maintenance FOR EACH ROW EXECUTE FUNCTION holdfast_maintenance_write_once();

-- trigger: holdfast_maintenance holdfast_maintenance_still_open
CREATE CONSTRAINT TRIGGER holdfast_maintenance_still_open AFTER INSERT ON holdfast_maintenance DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION holdfast_maintenance_still_open();

-- trigger: holdfast_maintenance holdfast_maintenance_truncate
CREATE TRIGGER holdfast_maintenance_truncate BEFORE TRUNCATE ON holdfast_maintenance FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- governed trigger: holdfast_jobs holdfast_jobs_in_force
CREATE TRIGGER holdfast_jobs_in_force AFTER INSERT ON holdfast_jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_jobs_in_force();

-- view: holdfast_executions
CREATE OR REPLACE VIEW holdfast_executions AS
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
FROM {schema}holdfast_jobs j WHERE j.status IS NOT NULL
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
FROM {schema}holdfast_aborted a;

-- view: holdfast_edges
CREATE OR REPLACE VIEW holdfast_edges AS
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
FROM {schema}holdfast_journal g LEFT JOIN (VALUES
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
FROM {schema}holdfast_journal g LEFT JOIN (VALUES
  ('running', 'pending', 1, 'running', 'failed'),
  ('running', 'pending', 0, 'failed', 'pending'),
  ('running', 'quarantined', 1, 'running', 'failed'),
  ('running', 'quarantined', 0, 'failed', 'quarantined')) e
  ON g.machine = 'JOB' AND g.event <> 'repair' AND e.column1 = g.source AND e.column2 = g.target;
