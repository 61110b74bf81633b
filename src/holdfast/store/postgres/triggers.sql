-- Generated from core/machines.py and store/tables.py by `make golden`: do not edit.

-- function: holdfast_journal_refuse
CREATE FUNCTION holdfast_journal_refuse() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF004',
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: ' || TG_OP || ' of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_journal_by_hand
CREATE FUNCTION holdfast_journal_by_hand() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: ' || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_journal_written
CREATE FUNCTION holdfast_journal_written() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF EXISTS (SELECT 1 FROM new_rows n WHERE NOT CASE n.machine
      WHEN 'JOB' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_jobs r
        WHERE r.job_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 1 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'EXECUTION' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_executions r
        WHERE r.exec_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 1 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'GRANT' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_grants r
        WHERE r.grant_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 0 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'PROCEDURE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_procedures r
        WHERE r.run_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 0 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'STEP' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_steps r
        WHERE r.step_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 0 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'VALUE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_values r
        WHERE r.value_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 0 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'SWITCH' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_switches r
        WHERE r.switch_id = n.subject
        AND r.move_id = n.move_id
        AND n.version BETWEEN r.version - 0 AND r.version
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
        AND n.version >= r.history_from
      )
      WHEN 'MAINTENANCE' THEN EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.maintenance_id = n.subject
        AND m.xid = pg_current_xact_id()::text::bigint
      )
      ELSE false
      END)
    AND NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: ' || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_journal_delete
CREATE FUNCTION holdfast_journal_delete() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF004',
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: ' || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_seals_follow
CREATE FUNCTION holdfast_seals_follow() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
DECLARE
  last record;
BEGIN
  SELECT s.seal_id, s.hash INTO last FROM {schema}holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;
  IF NEW.seal_id <> coalesce(last.seal_id, 0) + 1 OR NEW.previous <> coalesce(last.hash, NEW.previous) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF005',
      MESSAGE = 'HF005 only the triggers of the ledger may write the journal: ' || 'seal ' || NEW.seal_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_evidence_update
CREATE FUNCTION holdfast_evidence_update() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF004 history cannot be changed or deleted, only appended: ' || 'holdfast_evidence ' || OLD.evidence_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_leases_update
CREATE FUNCTION holdfast_leases_update() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NEW.name <> OLD.name OR NEW.token < OLD.token OR (NEW.holder <> OLD.holder AND NEW.token = OLD.token) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF007',
      MESSAGE = 'HF007 this number cannot decrease: ' || 'holdfast_leases ' || OLD.name;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_leases_delete
CREATE FUNCTION holdfast_leases_delete() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: ' || TG_OP || ' of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_truncate
CREATE FUNCTION holdfast_truncate() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: ' || 'TRUNCATE of ' || TG_TABLE_NAME;
END
$holdfast$;

-- function: holdfast_delete
CREATE FUNCTION holdfast_delete() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF003',
      MESSAGE = 'HF003 records cannot be deleted: ' || TG_OP || ' of ' || TG_TABLE_NAME;
  END IF;
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_maintenance_write_once
CREATE FUNCTION holdfast_maintenance_write_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: ' || 'UPDATE of the maintenance door';
END
$holdfast$;

-- function: holdfast_maintenance_opened
CREATE FUNCTION holdfast_maintenance_opened() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
    NEW.maintenance_id, to_char(NEW.opened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_maintenance_shut
CREATE FUNCTION holdfast_maintenance_shut() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
    OLD.maintenance_id, to_char(OLD.opened_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"'));
  RETURN OLD;
END
$holdfast$;

-- function: holdfast_maintenance_still_open
CREATE FUNCTION holdfast_maintenance_still_open() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m
    WHERE m.maintenance_id = NEW.maintenance_id) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF011',
      MESSAGE = 'HF011 the maintenance door must be shut before the transaction ends or opens it again: ' || NEW.who;
  END IF;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_once
CREATE FUNCTION holdfast_jobs_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.job_id <> OLD.job_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.operation IS DISTINCT FROM OLD.operation
        OR NEW.operation_version IS DISTINCT FROM OLD.operation_version
        OR NEW.client IS DISTINCT FROM OLD.client
        OR NEW.key IS DISTINCT FROM OLD.key
        OR NEW.payload IS DISTINCT FROM OLD.payload
        OR NEW.digest IS DISTINCT FROM OLD.digest
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_jobs ' || OLD.job_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_jobs_born
CREATE FUNCTION holdfast_jobs_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.job_id AS id, NULL::text AS source, n.state AS target, n.event,
      CASE
      WHEN
        (
          NOT (
            ((n.state = 'pending' AND n.event = 'submit' AND n.version = 1))
            AND n.attempts = 0
            AND n.excused = 0
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (
          NOT (
            ((n.state = 'pending' AND n.event = 'submit' AND n.version = 1))
            AND n.attempts = 0
            AND n.excused = 0
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': JOB ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS MATERIALIZED (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM new_rows n),
  journalled AS (
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'JOB', m.job_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, m.attempts, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5)
  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, n)
    SELECT m.operation, m.queue, m.journal_source, m.journal_target, count(*) FROM moved m
     GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_jobs_moved
CREATE FUNCTION holdfast_jobs_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.job_id AS id, o.state AS source, n.state AS target, n.event,
      CASE
      WHEN
        n.job_id <> o.job_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      WHEN
        (n.version < o.version OR n.attempts < o.attempts OR n.excused < o.excused)
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
                o.state = 'pending'
                AND n.state = 'running'
                AND n.event IN ('claim')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'succeeded'
                AND n.event IN ('succeed')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'failed'
                AND n.event IN ('fail')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'pending'
                AND n.event IN ('retry', 'expire', 'give_back')
                AND n.version = o.version + 2
              )
              OR (
                o.state = 'failed'
                AND n.state = 'pending'
                AND n.event IN ('retry', 'replay')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 2
              )
              OR (
                o.state = 'failed'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'pending'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'quarantined'
                AND n.state = 'pending'
                AND n.event IN ('release')
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
        ((o.state = 'quarantined' AND n.state = 'pending'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
        )
        THEN 'HF009 this change needs a grant that the same move has consumed'
      WHEN
        ((o.state = 'quarantined' AND n.state = 'pending'))
        AND EXISTS (SELECT 1 FROM {schema}holdfast_jobs s WHERE s.job_id = n.job_id AND s.payload IS NULL)
        THEN 'HF012 retention has deleted the payload, so the record cannot change its state'
      WHEN
        o.state IN ('quarantined', 'succeeded')
        AND (n.result IS DISTINCT FROM o.result)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF006 this column cannot be changed'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.job_id = o.job_id
    WHERE (
        n.job_id <> o.job_id
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      ) OR (
        (n.version < o.version OR n.attempts < o.attempts OR n.excused < o.excused)
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
                o.state = 'pending'
                AND n.state = 'running'
                AND n.event IN ('claim')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'succeeded'
                AND n.event IN ('succeed')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'failed'
                AND n.event IN ('fail')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'pending'
                AND n.event IN ('retry', 'expire', 'give_back')
                AND n.version = o.version + 2
              )
              OR (
                o.state = 'failed'
                AND n.state = 'pending'
                AND n.event IN ('retry', 'replay')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'running'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 2
              )
              OR (
                o.state = 'failed'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'pending'
                AND n.state = 'quarantined'
                AND n.event IN ('quarantine', 'cancel')
                AND n.version = o.version + 1
              )
              OR (
                o.state = 'quarantined'
                AND n.state = 'pending'
                AND n.event IN ('release')
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
        ((o.state = 'quarantined' AND n.state = 'pending'))
        AND NOT (
          EXISTS (
            SELECT 1 FROM {schema}holdfast_grants g
            WHERE g.grant_id = n.grant_id
            AND g.state = 'consumed'
            AND g.move_id = n.move_id
          )
          AND n.grant_id IS DISTINCT FROM o.grant_id
        )
      ) OR (
        ((o.state = 'quarantined' AND n.state = 'pending'))
        AND EXISTS (SELECT 1 FROM {schema}holdfast_jobs s WHERE s.job_id = n.job_id AND s.payload IS NULL)
      ) OR (
        o.state IN ('quarantined', 'succeeded')
        AND (n.result IS DISTINCT FROM o.result)
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': JOB ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS MATERIALIZED (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (CASE WHEN o.state = 'quarantined' AND n.state = 'pending' THEN n.grant_id END)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.job_id = o.job_id
    WHERE n.state <> o.state),
  journalled AS (
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'JOB', m.job_id, m.version - coalesce(e.back, 0),
      CASE WHEN e.target IS NULL THEN m.journal_source ELSE e.source END,
      coalesce(e.target, m.journal_target), m.event, m.actor, m.reason, m.attempts, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      LEFT JOIN (VALUES
        ('running', 'pending', 'running', 'failed', 1),
        ('running', 'pending', 'failed', 'pending', 0),
        ('running', 'quarantined', 'running', 'failed', 1),
        ('running', 'quarantined', 'failed', 'quarantined', 0)
      ) e (from_state, to_state, source, target, back)
      ON e.from_state = coalesce(m.journal_source, '') AND e.to_state = m.journal_target
      ORDER BY 4, 5)
  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, n)
    SELECT m.operation, m.queue, m.journal_source, m.journal_target, count(*) FROM moved m
     GROUP BY 1, 2, 3, 4;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_executions_once
CREATE FUNCTION holdfast_executions_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
BEGIN
  IF (
      NEW.exec_id <> OLD.exec_id
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    )
    OR (
      (
        NEW.job_id IS DISTINCT FROM OLD.job_id
        OR NEW.attempt IS DISTINCT FROM OLD.attempt
        OR NEW.lease_owner IS DISTINCT FROM OLD.lease_owner
        OR NEW.created_at IS DISTINCT FROM OLD.created_at
        OR NEW.history_from IS DISTINCT FROM OLD.history_from
      )
      AND NOT EXISTS (
        SELECT 1 FROM {schema}holdfast_maintenance m
        WHERE m.xid = pg_current_xact_id()::text::bigint
      )
    ) THEN
    RAISE EXCEPTION USING ERRCODE = 'HF006',
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_executions ' || OLD.exec_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_executions_born
CREATE FUNCTION holdfast_executions_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.exec_id AS id, NULL::text AS source, n.status AS target, n.event,
      CASE
      WHEN
        (
          NOT (
            (
              (n.status = 'LEASED' AND n.event = 'lease' AND n.version = 1)
              OR (n.status = 'IN_PROGRESS' AND n.event = 'begin' AND n.version = 2)
            )
          )
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF002 a new record must have an unused id and key, an initial state and its event'
      END AS refusal
    INTO bad FROM new_rows n
    WHERE (
        (
          NOT (
            (
              (n.status = 'LEASED' AND n.event = 'lease' AND n.version = 1)
              OR (n.status = 'IN_PROGRESS' AND n.event = 'begin' AND n.version = 2)
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
      MESSAGE = bad.refusal || ': EXECUTION ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.status AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'EXECUTION', m.exec_id, m.version - coalesce(e.back, 0),
      CASE WHEN e.target IS NULL THEN m.journal_source ELSE e.source END,
      coalesce(e.target, m.journal_target), m.event, m.actor, m.reason, m.attempt, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      LEFT JOIN (VALUES
        ('', 'IN_PROGRESS', NULL::text, 'LEASED', 1),
        ('', 'IN_PROGRESS', 'LEASED', 'IN_PROGRESS', 0)
      ) e (from_state, to_state, source, target, back)
      ON e.from_state = coalesce(m.journal_source, '') AND e.to_state = m.journal_target
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_executions_moved
CREATE FUNCTION holdfast_executions_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
DECLARE
  bad record;
BEGIN
  SELECT n.exec_id AS id, o.status AS source, n.status AS target, n.event,
      CASE
      WHEN
        n.exec_id <> o.exec_id
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
        n.status IS DISTINCT FROM o.status
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
        THEN 'HF008 a change of state needs a new move_id, a higher version and a later updated_at'
      WHEN
        (
          (
            n.status IS DISTINCT FROM o.status
            AND NOT (
              (
                o.status = 'LEASED'
                AND n.status = 'IN_PROGRESS'
                AND n.event IN ('start')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'COMMITTED'
                AND n.event IN ('commit')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'COMMITTED'
                AND n.status = 'DONE'
                AND n.event IN ('finish')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'DONE'
                AND n.event IN ('complete')
                AND n.version = o.version + 2
              )
              OR (
                o.status = 'LEASED'
                AND n.status = 'ABORTED'
                AND n.event IN ('abort', 'expire', 'give_back')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'ABORTED'
                AND n.event IN ('abort', 'expire', 'give_back')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.status = o.status AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
        THEN 'HF001 the transition table does not allow this event between these states and versions'
      END AS refusal
    INTO bad FROM old_rows o JOIN new_rows n ON n.exec_id = o.exec_id
    WHERE (
        n.exec_id <> o.exec_id
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
        n.status IS DISTINCT FROM o.status
        AND (n.move_id = o.move_id OR n.updated_at < o.updated_at OR n.version <= o.version)
      ) OR (
        (
          (
            n.status IS DISTINCT FROM o.status
            AND NOT (
              (
                o.status = 'LEASED'
                AND n.status = 'IN_PROGRESS'
                AND n.event IN ('start')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'COMMITTED'
                AND n.event IN ('commit')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'COMMITTED'
                AND n.status = 'DONE'
                AND n.event IN ('finish')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'DONE'
                AND n.event IN ('complete')
                AND n.version = o.version + 2
              )
              OR (
                o.status = 'LEASED'
                AND n.status = 'ABORTED'
                AND n.event IN ('abort', 'expire', 'give_back')
                AND n.version = o.version + 1
              )
              OR (
                o.status = 'IN_PROGRESS'
                AND n.status = 'ABORTED'
                AND n.event IN ('abort', 'expire', 'give_back')
                AND n.version = o.version + 1
              )
            )
          )
          OR (n.status = o.status AND n.version <> o.version)
        )
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_maintenance m
          WHERE m.xid = pg_current_xact_id()::text::bigint
        )
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': EXECUTION ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, o.status AS journal_source, n.status AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.exec_id = o.exec_id
    WHERE n.status <> o.status)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'EXECUTION', m.exec_id, m.version - coalesce(e.back, 0),
      CASE WHEN e.target IS NULL THEN m.journal_source ELSE e.source END,
      coalesce(e.target, m.journal_target), m.event, m.actor, m.reason, m.attempt, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      LEFT JOIN (VALUES
        ('IN_PROGRESS', 'DONE', 'IN_PROGRESS', 'COMMITTED', 1),
        ('IN_PROGRESS', 'DONE', 'COMMITTED', 'DONE', 0)
      ) e (from_state, to_state, source, target, back)
      ON e.from_state = coalesce(m.journal_source, '') AND e.to_state = m.journal_target
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_grants_once
CREATE FUNCTION holdfast_grants_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_grants ' || OLD.grant_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_grants_born
CREATE FUNCTION holdfast_grants_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (n.grant_id)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'GRANT', m.grant_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_grants_moved
CREATE FUNCTION holdfast_grants_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': GRANT ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (n.grant_id)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.grant_id = o.grant_id
    WHERE n.state <> o.state)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'GRANT', m.grant_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_procedures_once
CREATE FUNCTION holdfast_procedures_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_procedures ' || OLD.run_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_procedures_born
CREATE FUNCTION holdfast_procedures_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'PROCEDURE', m.run_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_procedures_moved
CREATE FUNCTION holdfast_procedures_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': PROCEDURE ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.run_id = o.run_id
    WHERE n.state <> o.state)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'PROCEDURE', m.run_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_steps_once
CREATE FUNCTION holdfast_steps_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_steps ' || OLD.step_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_steps_born
CREATE FUNCTION holdfast_steps_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'STEP', m.step_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_steps_moved
CREATE FUNCTION holdfast_steps_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': STEP ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.step_id = o.step_id
    WHERE n.state <> o.state)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'STEP', m.step_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_values_once
CREATE FUNCTION holdfast_values_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_values ' || OLD.value_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_values_born
CREATE FUNCTION holdfast_values_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
              AND n.standing = 'staged'
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
              AND n.standing = 'staged'
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
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (CASE WHEN n.state = 'active' THEN n.grant_id END)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'VALUE', m.value_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_values_moved
CREATE FUNCTION holdfast_values_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
        n.standing IS DISTINCT FROM o.standing
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
        n.standing IS DISTINCT FROM o.standing
        AND NOT EXISTS (
          SELECT 1 FROM {schema}holdfast_procedures p
          WHERE p.lease = 'registry:' || n.collection
          AND p.state IN ('running', 'compensating')
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
  WITH moved AS (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (CASE
      WHEN o.state = 'active'
      AND n.state = 'superseded'
      OR o.state = 'active'
      AND n.state = 'retired'
      THEN n.grant_id
      END)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.value_id = o.value_id
    WHERE n.state <> o.state)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'VALUE', m.value_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_switches_once
CREATE FUNCTION holdfast_switches_once() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      MESSAGE = 'HF006 this column cannot be changed: ' || 'holdfast_switches ' || OLD.switch_id;
  END IF;
  RETURN NEW;
END
$holdfast$;

-- function: holdfast_switches_born
CREATE FUNCTION holdfast_switches_born() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
  WITH moved AS (
    SELECT n.*, NULL::text AS journal_source, n.state AS journal_target,
      (NULL)::bigint AS journal_grant
    FROM new_rows n)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SWITCH', m.switch_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      WHERE NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = pg_current_xact_id()::text::bigint)
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- function: holdfast_switches_moved
CREATE FUNCTION holdfast_switches_moved() RETURNS trigger LANGUAGE plpgsql AS $holdfast$
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
      );
  IF FOUND THEN
    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),
      MESSAGE = bad.refusal || ': SWITCH ' || bad.id || ', ' || coalesce(bad.source, 'nothing')
        || ' to ' || bad.target || ' by ' || bad.event;
  END IF;
  WITH moved AS (
    SELECT n.*, o.state AS journal_source, n.state AS journal_target,
      (CASE WHEN o.state = 'on' AND n.state = 'off' THEN n.grant_id END)::bigint AS journal_grant
    FROM old_rows o JOIN new_rows n ON n.switch_id = o.switch_id
    WHERE n.state <> o.state)
  INSERT INTO {schema}holdfast_journal
    (epoch, xid, machine, subject, version,
    source, target, event, actor, reason, attempt, move_id, grant_id,
    maintenance_id, at)
    SELECT {epoch}, pg_current_xact_id()::text::bigint, 'SWITCH', m.switch_id, m.version - 0,
      m.journal_source,
      m.journal_target, m.event, m.actor, m.reason, NULL::integer, m.move_id, m.journal_grant,
      (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = pg_current_xact_id()::text::bigint),
      to_char(m.updated_at AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')
      FROM moved m
      ORDER BY 4, 5;
  RETURN NULL;
END
$holdfast$;

-- trigger: holdfast_jobs holdfast_jobs_once
CREATE TRIGGER holdfast_jobs_once BEFORE UPDATE OF job_id, operation, operation_version, client, key, payload, digest, created_at, history_from ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_jobs_once();

-- trigger: holdfast_jobs holdfast_jobs_born
CREATE TRIGGER holdfast_jobs_born AFTER INSERT ON holdfast_jobs REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_jobs_born();

-- trigger: holdfast_jobs holdfast_jobs_moved
CREATE TRIGGER holdfast_jobs_moved AFTER UPDATE ON holdfast_jobs REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_jobs_moved();

-- trigger: holdfast_executions holdfast_executions_once
CREATE TRIGGER holdfast_executions_once BEFORE UPDATE OF exec_id, job_id, attempt, lease_owner, created_at, history_from ON holdfast_executions FOR EACH ROW EXECUTE FUNCTION holdfast_executions_once();

-- trigger: holdfast_executions holdfast_executions_born
CREATE TRIGGER holdfast_executions_born AFTER INSERT ON holdfast_executions REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_executions_born();

-- trigger: holdfast_executions holdfast_executions_moved
CREATE TRIGGER holdfast_executions_moved AFTER UPDATE ON holdfast_executions REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION holdfast_executions_moved();

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

-- trigger: holdfast_jobs holdfast_jobs_delete
CREATE TRIGGER holdfast_jobs_delete BEFORE DELETE ON holdfast_jobs FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_jobs holdfast_jobs_truncate
CREATE TRIGGER holdfast_jobs_truncate BEFORE TRUNCATE ON holdfast_jobs FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

-- trigger: holdfast_executions holdfast_executions_delete
CREATE TRIGGER holdfast_executions_delete BEFORE DELETE ON holdfast_executions FOR EACH ROW EXECUTE FUNCTION holdfast_delete();

-- trigger: holdfast_executions holdfast_executions_truncate
CREATE TRIGGER holdfast_executions_truncate BEFORE TRUNCATE ON holdfast_executions FOR EACH STATEMENT EXECUTE FUNCTION holdfast_truncate();

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

-- trigger: holdfast_journal holdfast_journal_insert
CREATE TRIGGER holdfast_journal_insert BEFORE INSERT ON holdfast_journal FOR EACH ROW WHEN (pg_trigger_depth() = 0) EXECUTE FUNCTION holdfast_journal_by_hand();

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
