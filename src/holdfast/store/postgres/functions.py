"""The functions of the PostgreSQL triggers: the rules of `enforcement`, checked and journalled a statement at a time.

Invariants: a function checks every row of a statement, and writes one journal row a move in the same transaction; every
rule is in a function body, whose text PostgreSQL keeps as it was given, so that opening a ledger can compare it.
"""

import re
from collections.abc import Iterable, Iterator
from textwrap import indent

from holdfast.core.machines import GRANT, JOB
from holdfast.store import enforcement, joint
from holdfast.store.enforcement import Refusal, Violation, sql_text
from holdfast.store.layout import laid_out
from holdfast.store.statements import statements
from holdfast.store.tables import GUARDED, Guarded

OTHERS = tuple(guarded for guarded in GUARDED if guarded.machine is not JOB)

XID = "pg_current_xact_id()::text::bigint"
# A record that this transaction wrote: by its own id, or by a subtransaction's, which only it can see in progress. The
# unique indexes do not reach across partitions; this keeps a move from being journalled again in the next one.
_FULL = f"(({XID} >> 32) << 32) + r.xmin::text::bigint"
_WRITTEN_HERE = (
    "(r.xmin = pg_current_xact_id()::xid OR"
    f" CASE WHEN {_FULL} > {XID} THEN pg_xact_status(({_FULL})::text::xid8) = 'in progress' ELSE false END)"
)
EVIDENCE, LEASES = "holdfast_evidence", "holdfast_leases"
TRACEBACKS, ERASED = "holdfast_tracebacks", "holdfast_erased"
META, APPROVERS = "holdfast_meta", "holdfast_approvers"
JOBS, CALLS, ABORTED, REFUSE = "holdfast_jobs", "holdfast_calls", "holdfast_aborted", "holdfast_refuse"
IN_FORCE, FOLDED = f"{JOBS}_in_force", f"{joint.DELTAS}_folded"
JOURNAL_COLUMNS = (
    "epoch, xid, machine, subject, version,\n    source, target, event, actor, reason, attempt, move_id, grant_id,\n"
    "    maintenance_id, at"
)
ROLE_APPROVAL = '{{"method":"role"}}'  # what a grant stores of an approval by a role; the braces are doubled for format
# The transaction and its maintenance door, looked up once a statement.
_DOOR = (
    f"DECLARE\n  x bigint := {XID};\n"
    "  door bigint := (SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = x);\nBEGIN\n"
)
_SHUT = "door IS NULL"
_SETTING, _APPROVER = "'the setting ' || OLD.name", "'the approver ' || NEW.name"


def functions(schema: str, epoch: str) -> dict[str, str]:
    """Return the body of every trigger function by its name. `schema` is quoted and ends with a dot."""
    bodies = {"holdfast_journal_refuse": _raise(Refusal.APPEND_ONLY, "TG_OP || ' of ' || TG_TABLE_NAME")}
    bodies[REFUSE] = "BEGIN\n  RAISE EXCEPTION USING ERRCODE = left(code, 5), MESSAGE = code || ': ' || what;\nEND"
    bodies["holdfast_journal_written"] = _written(schema)
    bodies[f"{JOBS}_born"] = _job_born(schema, epoch)
    bodies[IN_FORCE] = _job_in_force(schema)
    bodies[f"{JOBS}_moved"] = _job_moved(schema, epoch)
    bodies[f"{JOBS}_requested"] = _job_requested(schema, epoch)
    bodies[FOLDED] = _folded()
    bodies[f"{JOBS}_once"] = _unless_door(schema, Refusal.WRITE_ONCE, "NULL", f"'{JOBS} ' || OLD.job_id")
    bodies[f"{CALLS}_once"] = _call_changed(schema)
    bodies[f"{ABORTED}_written"] = _aborted_written(schema)
    bodies["holdfast_journal_delete"] = _unless_door(schema, Refusal.APPEND_ONLY, "OLD")
    bodies["holdfast_seals_follow"] = _follow(schema)
    bodies[f"{EVIDENCE}_update"] = _if(
        enforcement.evidence_violation("OLD", "NEW"), f"'{EVIDENCE} ' || OLD.evidence_id"
    )
    bodies[f"{TRACEBACKS}_insert"] = _if(
        _in(schema, enforcement.traceback_violation("NEW")), f"'{TRACEBACKS} ' || NEW.job_id"
    )
    erased = _in(schema, enforcement.erasure_violation("NEW", _no_door(schema)))
    bodies[f"{ERASED}_insert"] = _if(erased, f"'{ERASED} ' || NEW.job_id")
    bodies[f"{LEASES}_update"] = _if(enforcement.lease_violation("OLD", "NEW"), f"'{LEASES} ' || OLD.name")
    bodies[f"{LEASES}_delete"] = _raise(Refusal.NEVER_DELETED, "TG_OP || ' of ' || TG_TABLE_NAME")
    no_door = _no_door(schema)
    bodies[f"{META}_update"] = _each_if(enforcement.setting_violations("OLD", "NEW", no_door), schema, _SETTING)
    bodies[f"{META}_delete"] = _if(enforcement.setting_deleted("OLD", no_door), _SETTING, "OLD")
    bodies[f"{APPROVERS}_insert"] = _each_if(enforcement.approver_birth_violations("NEW", no_door), schema, _APPROVER)
    rewrite = _note(schema, _door(schema), enforcement.REWRITE, "'APPROVER ' || NEW.name")
    bodies[f"{APPROVERS}_rewritten"] = f"BEGIN\n{rewrite}  RETURN NULL;\nEND"
    bodies[f"{APPROVERS}_update"] = _each_if(enforcement.approver_violations("OLD", "NEW", no_door), schema, _APPROVER)
    bodies["holdfast_truncate"] = _raise(Refusal.NEVER_DELETED, "'TRUNCATE of ' || TG_TABLE_NAME")
    bodies["holdfast_delete"] = _unless_door(schema, Refusal.NEVER_DELETED, "OLD")
    bodies["holdfast_deleted"] = _deleted(schema)
    bodies["holdfast_maintenance_write_once"] = _raise(Refusal.WRITE_ONCE, "'UPDATE of the maintenance door'")
    bodies["holdfast_maintenance_opened"] = _door_row(schema, epoch, "NEW", "1", ("NULL", "'open'"))
    bodies["holdfast_maintenance_shut"] = _door_row(schema, epoch, "OLD", _last(schema), ("'open'", "'shut'"))
    bodies["holdfast_maintenance_still_open"] = (
        f"BEGIN\n  IF EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m\n"
        f"    WHERE m.maintenance_id = NEW.maintenance_id) THEN\n"
        f"    {_raised(Refusal.DOOR_LEFT_OPEN, 'NEW.who')}\n  END IF;\n  RETURN NULL;\nEND"
    )
    for guarded in OTHERS:
        bodies[f"{guarded.table}_once"] = _once(guarded, schema)
        bodies[f"{guarded.table}_born"] = _born(guarded, schema, epoch)
        bodies[f"{guarded.table}_moved"] = _moved(guarded, schema, epoch)
    return bodies


def _written(schema: str) -> str:
    """Return the body that refuses a journal row whose record has not just moved so, whatever wrote it.

    An INSERT that no trigger made is refused too: depth 1 is this trigger itself.
    """
    lookups = {guarded.machine.name: enforcement.just_moved(guarded, "n", _WRITTEN_HERE) for guarded in GUARDED}
    lookups["EXECUTION"] = joint.just_stepped("n", _WRITTEN_HERE)
    lookups["REQUEST"] = joint.just_requested("n", _WRITTEN_HERE)
    lookups["MAINTENANCE"] = (
        f"EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.maintenance_id = n.subject AND m.xid = {XID})"
    )
    moved = "\n      ".join(
        f"WHEN '{machine}' THEN {laid_out(condition.format(schema=schema), 6)}"
        for machine, condition in lookups.items()
    )
    not_moved = (
        f"EXISTS (SELECT 1 FROM new_rows n WHERE NOT CASE n.machine\n      {moved}\n      ELSE false\n      END)"
    )
    # Most rows are of jobs. Starting a query costs more with every look-up in it, so the others are in a second one.
    job = laid_out(f"(n.machine = '{JOB.name}' AND {lookups[JOB.name].format(schema=schema)})", 4)
    not_jobs = f"pg_trigger_depth() = 1 OR EXISTS (SELECT 1 FROM new_rows n WHERE NOT {job})"
    return _by_hand(schema, not_moved).replace(
        "BEGIN\n", f"BEGIN\n  IF NOT ({not_jobs}) THEN\n    RETURN NULL;\n  END IF;\n", 1
    )


def _aborted_written(schema: str) -> str:
    ended = joint.just_ended("n", _WRITTEN_HERE).format(schema=schema)
    return _by_hand(schema, f"EXISTS (SELECT 1 FROM new_rows n WHERE NOT {laid_out(ended, 6)})")


def _by_hand(schema: str, not_moved: str) -> str:
    raised = _raised(Refusal.WRITTEN_BY_HAND, "TG_OP || ' of ' || TG_TABLE_NAME")
    condition = f"(pg_trigger_depth() = 1 OR {not_moved})\n    AND {laid_out(_no_door(schema), 8)}"
    return f"BEGIN\n  IF {condition} THEN\n    {raised}\n  END IF;\n  RETURN NULL;\nEND"


def _follow(schema: str) -> str:
    """Return the body that lets a seal follow the last one only."""
    last = f"SELECT s.seal_id, s.hash INTO last FROM {schema}holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;"
    new = "NEW.seal_id <> coalesce(last.seal_id, 0) + 1 OR NEW.previous <> coalesce(last.hash, NEW.previous)"
    wrong = laid_out(new, 4)
    raised = _raised(Refusal.WRITTEN_BY_HAND, "'seal ' || NEW.seal_id")
    return f"DECLARE\n  last record;\nBEGIN\n  {last}\n  IF {wrong} THEN\n    {raised}\n  END IF;\n  RETURN NEW;\nEND"


def _each_if(violations: Iterable[Violation], schema: str, what: str) -> str:
    """Return the body that refuses a row for the first of the violations that it has."""
    refused = "".join(
        f"  IF {laid_out(violation.condition.format(schema=schema), 4)} THEN\n"
        f"    {_raised(violation.refusal, what)}\n  END IF;\n"
        for violation in violations
    )
    return f"BEGIN\n{refused}  RETURN NEW;\nEND"


def _door(schema: str) -> str:
    return f"(SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = {XID})"


def _no_door(schema: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = {XID})"


def _raise(refusal: Refusal, what: str) -> str:
    return f"BEGIN\n  {_raised(refusal, what)}\nEND"


def _raised(refusal: Refusal, what: str) -> str:
    text = f"{refusal} {refusal.meaning}: "
    return f"RAISE EXCEPTION USING ERRCODE = '{refusal}',\n      MESSAGE = '{text}'\n        || {what};"


def _if(violation: Violation, what: str, row: str = "NEW") -> str:
    raised = _raised(violation.refusal, what)
    return f"BEGIN\n  IF {laid_out(violation.condition, 4)} THEN\n    {raised}\n  END IF;\n  RETURN {row};\nEND"


def _unless_door(schema: str, refusal: Refusal, row: str, what: str = "TG_OP || ' of ' || TG_TABLE_NAME") -> str:
    raised = _raised(refusal, what)
    return f"BEGIN\n  IF {_no_door(schema)} THEN\n    {raised}\n  END IF;\n  RETURN {row};\nEND"


def _deleted(schema: str) -> str:
    """Return the body that notes a record which is deleted under maintenance; its name and key column are arguments."""
    what = "TG_ARGV[0] || ' ' || (to_jsonb(OLD) ->> TG_ARGV[1])"
    return f"BEGIN\n{_note(schema, _door(schema), enforcement.DELETE, what)}  RETURN NULL;\nEND"


def _once(guarded: Guarded, schema: str) -> str:
    by_id = f"NEW.{guarded.id} <> OLD.{guarded.id} AND {_no_door(schema)}"
    condition = enforcement.write_once_violation(guarded, "OLD", "NEW", _no_door(schema)).condition
    raised = _raised(Refusal.WRITE_ONCE, f"'{guarded.table} ' || OLD.{guarded.id}")
    changed = laid_out(f"({by_id}) OR ({condition})", 4)
    return f"BEGIN\n  IF {changed} THEN\n    {raised}\n  END IF;\n  RETURN NEW;\nEND"


def _born(guarded: Guarded, schema: str, epoch: str) -> str:
    violations = list(enforcement.birth_violations(guarded, "n", _no_door(schema)))
    check = _check(guarded, violations, schema, "new_rows n", "NULL::text")
    # Rows written under maintenance (a restore) bring their own journal with them.
    return _function(check, _write(guarded, schema, epoch, None, f"new_rows n\n    WHERE {_no_door(schema)}"))


def _moved(guarded: Guarded, schema: str, epoch: str) -> str:
    pairs = f"old_rows o JOIN new_rows n ON n.{guarded.id} = o.{guarded.id}"
    violations = [
        *enforcement.move_violations(guarded, "o", "n", _no_door(schema)),
        *_by_role(guarded, _no_door(schema)),
    ]
    check = _check(guarded, violations, schema, pairs, f"o.{guarded.state}")
    moved = f"{pairs}\n    WHERE n.{guarded.state} <> o.{guarded.state}"
    written = _write(guarded, schema, epoch, "o", moved) + _rewrites(guarded, schema, _door(schema))
    return _function(check, written)


def _by_role(guarded: Guarded, no_door: str) -> Iterator[Violation]:
    """Yield the violation of an approval that names a database role other than that of the session."""
    if guarded.machine is GRANT:
        other = "n.approved_by IS DISTINCT FROM session_user::text"
        role = f"n.event = 'approve' AND n.state <> o.state AND n.approved_via = {sql_text(ROLE_APPROVAL)}"
        yield Violation(Refusal.WRONG_ROLE, f"{role} AND {other} AND {no_door}")


def _function(check: str, write: str) -> str:
    return f"DECLARE\n  bad record;\nBEGIN\n{check}{write}  RETURN NULL;\nEND"


def _call_changed(schema: str) -> str:
    """Return the body that refuses a change of what was submitted, or notes it under maintenance."""
    raised = _raised(Refusal.WRITE_ONCE, f"'{CALLS} ' || OLD.job_id")
    note = _note(schema, _door(schema), enforcement.REWRITE, "'CALL ' || NEW.job_id")
    return (
        f"BEGIN\n  IF {_no_door(schema)} THEN\n    {raised}\n"
        f"  ELSIF {laid_out(enforcement.call_rewritten('OLD', 'NEW'), 4)} THEN\n{note}  END IF;\n  RETURN NULL;\nEND"
    )


def _in(schema: str, violation: Violation) -> Violation:
    return Violation(violation.refusal, violation.condition.format(schema=schema))


def _job_born(schema: str, epoch: str) -> str:
    """Return the body that checks and journals new jobs in one pass; a restore brings its own journal with it."""
    violations = list(joint.job_birth_violations("n", _SHUT))
    journal = _job_journal(schema, epoch, joint.journal_values(None, "n"), "new_rows n")
    refused = _refused(violations, schema, "NULL::text")
    counts = _counts(schema, None, "new_rows n")
    where = f"    WHERE CASE\n{refused}\n      ELSE {_SHUT} END;\n"
    return f"{_DOOR.format(schema=schema)}{journal}\n{where}{counts}  RETURN NULL;\nEND"


def _job_in_force(schema: str) -> str:
    """Return the body that refuses new jobs of a version that is not in force.

    The locks keep a version and its collection in force until the transaction ends; a row that another one has changed
    meanwhile is judged as it is then.
    """
    version = joint.version_of("n").format(schema=schema)
    usable = joint.in_force("wanted.operation", "wanted.version").format(schema=schema)
    raised = _raised(Refusal.NOT_IN_FORCE, "wanted.operation || '@' || wanted.version").replace("\n", "\n  ")
    return (
        f"DECLARE\n  wanted record;\nBEGIN\n  FOR wanted IN\n"
        f"    SELECT DISTINCT n.operation,\n      {version} AS version\n"
        f"    FROM new_rows n WHERE {joint.governs('n')} ORDER BY 1, 2\n  LOOP\n"
        f"    PERFORM 1 {laid_out(usable, 6)}\n      FOR SHARE OF v, s;\n"
        f"    IF NOT FOUND AND {laid_out(_no_door(schema), 8)} THEN\n      {raised}\n    END IF;\n  END LOOP;\n"
        "  RETURN NULL;\nEND"
    )


def _job_moved(schema: str, epoch: str) -> str:
    """Return the body that checks and journals moved jobs in one pass, then writes what follows from the moves."""
    pairs = "new_rows n LEFT JOIN old_rows o ON o.job_id = n.job_id"
    gone = Violation(Refusal.WRITE_ONCE, f"o.job_id IS NULL AND {_SHUT}")
    violations = [gone, *joint.job_violations("o", "n", _SHUT)]
    journal = _job_journal(schema, epoch, joint.journal_values("o", "n"), pairs)
    refused = _refused(violations, schema, "o.state")
    aborted = (
        f"  IF EXISTS (SELECT 1 FROM new_rows n WHERE n.status IS NULL) THEN\n"
        f"    INSERT INTO {schema}{ABORTED}\n    ({joint.ABORTED_COLUMNS})\n"
        f"    SELECT {joint.aborted_values('o', 'n', flag='{}')}\n"
        f"    FROM old_rows o JOIN new_rows n ON n.job_id = o.job_id\n    WHERE {joint.ended('o', 'n')};\n  END IF;\n"
    )
    pairs = "old_rows o JOIN new_rows n\n      ON n.job_id = o.job_id AND n.state <> o.state"
    counts = _counts(schema, "o", pairs)
    noted = _rewrites(joint.JOBS, schema, "door")
    return (
        f"{_DOOR.format(schema=schema)}{journal}\n    WHERE CASE\n{refused}\n      ELSE {joint.moved('o', 'n')} END;\n"
        f"{aborted}{counts}  IF door IS NOT NULL THEN\n{noted}  END IF;\n  RETURN NULL;\nEND"
    )


def _rewrites(guarded: Guarded, schema: str, door: str) -> str:
    """Return the statement that journals the records which are rewritten at rest under maintenance."""
    rows = f"old_rows o JOIN new_rows n ON n.{guarded.id} = o.{guarded.id}"
    changed = laid_out(enforcement.rewritten(guarded, "o", "n"), 6)
    return _note(
        schema, door, enforcement.REWRITE, enforcement.rewritten_note(guarded, "o", "n"), f"{rows}\n    WHERE {changed}"
    )


def _note(schema: str, door: str, event: str, what: str, rows: str = "") -> str:
    """Return the statement that notes something under the open door, once for each of some rows."""
    same = "j.machine = 'MAINTENANCE' AND j.subject = g.subject"
    last = f"(SELECT max(j.version) FROM {schema}holdfast_journal j\n        WHERE {same})"
    opened = (
        f"{schema}holdfast_journal g\n    WHERE g.machine = 'MAINTENANCE' AND g.version = 1\n"
        f"      {laid_out(f'AND g.subject = {door}', 6)}"
    )
    said = f"(SELECT {laid_out(what, 6)} AS said" + (f"\n    FROM {rows}) s" if rows else ") s")
    return (
        f"  INSERT INTO {schema}holdfast_journal\n    ({JOURNAL_COLUMNS})\n"
        f"    SELECT g.epoch, g.xid, g.machine, g.subject,\n      {last}\n        + row_number() OVER (),\n"
        f"      g.target, g.target, '{event}', g.actor, s.said, NULL::integer, g.move_id, g.grant_id,\n"
        f"      g.maintenance_id, g.at\n    FROM {said}\n    CROSS JOIN {opened};\n"
    )


def _job_requested(schema: str, epoch: str) -> str:
    """Return the body that journals a request to cancel."""
    values = joint.request_values("NEW", epoch=epoch, xid=XID, door=_door(schema))
    return (
        f"BEGIN\n  INSERT INTO {schema}holdfast_journal\n    ({joint.REQUEST_COLUMNS})\n"
        f"  VALUES\n    ({values});\n  RETURN NULL;\nEND"
    )


def _job_journal(schema: str, epoch: str, values: dict[str, str], rows: str) -> str:
    columns = ("machine", "subject", "version", "source", "target", "status_from", "status_to", "grant_id")
    values_sql = ",\n      ".join(laid_out(values[column], 6) for column in columns)
    return (
        f"  INSERT INTO {schema}holdfast_journal ({', '.join(columns)},\n"
        "    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)\n"
        f"    SELECT {values_sql},\n"
        f"      {epoch}, x, n.event, n.actor, n.reason, n.attempts, n.move_id, door, n.updated_at\n    FROM {rows}"
    )


def _refused(violations: list[Violation], schema: str, source: str) -> str:
    """Return the WHENs that raise the first violation of a row, by a function that never returns."""
    what = f"'JOB ' || n.job_id || ', ' || coalesce({source}, 'nothing') || ' to ' || n.state || ' by ' || n.event"
    return "\n".join(
        f"      WHEN {laid_out(violation.condition.format(schema=schema), 8)}\n"
        f"        THEN {schema}{REFUSE}(\n          '{violation.refusal} {violation.refusal.meaning}',\n"
        f"          {what})"
        for violation in violations
    )


def _counts(schema: str, old: str | None, rows: str) -> str:
    """Return the statement that counts moves; those of one statement have about the same time: the last one is kept."""
    source = f"{old}.state" if old else "NULL::text"
    return (
        f"  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, event, code, n, at)\n"
        f"    SELECT n.operation, n.queue, {source}, n.state, n.event,\n"
        f"      ({joint.delta_code(old, 'n')})::text, count(*), max(n.updated_at)\n"
        f"      FROM {rows}\n     GROUP BY 1, 2, 3, 4, 5, 6;\n"
    )


def _folded() -> str:
    """Return the body that folds the deltas, if the role may and no other transaction can make it fail.

    A keeper deletes old minutes.
    """
    fold = "".join(indent(f"{part};\n", "    ") for part in statements("postgres")["fold_counts"][:-1])
    may = (
        "current_setting('transaction_isolation') = 'read committed'\n"
        "    AND has_table_privilege('holdfast_minutes', 'DELETE')"
    )
    body = f"BEGIN\n  IF {may} THEN\n{fold}  END IF;\n  RETURN NULL;\nEND"
    return re.sub(r"(?<!\w)holdfast_", "{schema}holdfast_", body)


def _check(guarded: Guarded, violations: list[Violation], schema: str, rows: str, source: str) -> str:
    conditions = [laid_out(violation.condition.format(schema=schema), 8) for violation in violations]
    which = "\n      ".join(
        f"WHEN\n        {condition}\n        THEN '{violation.refusal} {violation.refusal.meaning}'"
        for violation, condition in zip(violations, conditions, strict=True)
    )
    any_of = " OR ".join(f"(\n        {condition}\n      )" for condition in conditions)
    what = (
        f"bad.refusal || ': {guarded.machine.name} ' || bad.id || ', ' || coalesce(bad.source, 'nothing')\n"
        f"        || ' to ' || bad.target || ' by ' || bad.event"
    )
    # INTO takes the first row. A LIMIT would do so too, but the planner would compare every old row with every new one.
    return (
        f"  SELECT n.{guarded.id} AS id, {source} AS source, n.{guarded.state} AS target, n.event,\n"
        f"      CASE\n      {which}\n      END AS refusal\n    INTO bad FROM {rows}\n    WHERE {any_of};\n"
        f"  IF FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),\n"
        f"      MESSAGE = {what};\n  END IF;\n"
    )


def _write(guarded: Guarded, schema: str, epoch: str, old: str | None, rows: str) -> str:
    """Return the statement that journals what moved."""
    source = f"{old}.{guarded.state}" if old else "NULL::text"
    grant = laid_out(enforcement.granted(guarded, old, "n"), 6)
    return (
        f"  INSERT INTO {schema}holdfast_journal\n    ({JOURNAL_COLUMNS})\n"
        f"    SELECT {epoch}, {XID}, '{guarded.machine.name}', n.{guarded.id}, n.version,\n"
        f"      {source}, n.{guarded.state}, n.event, n.actor, n.reason, NULL::integer, n.move_id,\n"
        f"      ({grant})::bigint,\n      {_door(schema)},\n      n.updated_at\n    FROM {rows}\n    ORDER BY 4;\n"
    )


def _last(schema: str) -> str:
    # Notes of maintenance are journalled between its opening and its shutting.
    return (
        f"(SELECT coalesce(max(j.version), 0) + 1 FROM {schema}holdfast_journal j\n"
        "      WHERE j.machine = 'MAINTENANCE' AND j.subject = OLD.maintenance_id)"
    )


def _door_row(schema: str, epoch: str, row: str, version: str, edge: tuple[str, str]) -> str:
    source, target = edge
    return (
        f"BEGIN\n  INSERT INTO {schema}holdfast_journal\n    ({JOURNAL_COLUMNS})\n  VALUES\n"
        f"    ({epoch}, {XID}, 'MAINTENANCE', {row}.maintenance_id,\n    {version},\n"
        f"    {source}, {target}, {target}, {row}.who, {row}.why,\n"
        f"    NULL, 'maintenance-' || {row}.maintenance_id, {row}.grant_id,\n"
        f"    {row}.maintenance_id, {row}.opened_at);\n"
        f"  RETURN {row};\nEND"
    )
