"""The triggers of the PostgreSQL dialect: the rules of `enforcement`, checked and journalled a statement at a time.

Invariants: statement triggers over transition tables see every row of every INSERT, UPDATE, MERGE and COPY, and write
one journal row an edge in the same transaction; column-list row triggers cost nothing unless their columns are named.
Every rule stands in a function body, whose text PostgreSQL keeps as it was given, and the trigger texts are in the form
that `pg_get_triggerdef` prints, so that opening a ledger can compare both.
"""

from holdfast.core.machine import Path
from holdfast.store.enforcement import (
    Refusal,
    Violation,
    birth_violations,
    evidence_violation,
    granted,
    just_moved,
    lease_violation,
    long_paths,
    move_violations,
    write_once_violation,
)
from holdfast.store.layout import laid_out
from holdfast.store.postgres.partitions import after_written, before_truncate
from holdfast.store.tables import GUARDED, Guarded

AT = """to_char({row}.{column} AT TIME ZONE 'UTC', 'YYYY-MM-DD"T"HH24:MI:SS.US"Z"')"""
XID = "pg_current_xact_id()::text::bigint"
# A record that this transaction wrote: by its own id, or by a subtransaction's, which only it can see in progress. The
# unique indexes do not reach across partitions; this keeps a move from being told again in the next one.
_FULL = f"(({XID} >> 32) << 32) + r.xmin::text::bigint"
_WRITTEN_HERE = (
    "(r.xmin = pg_current_xact_id()::xid OR"
    f" CASE WHEN {_FULL} > {XID} THEN pg_xact_status(({_FULL})::text::xid8) = 'in progress' ELSE false END)"
)
SEALS = "holdfast_seals"
HISTORY = (SEALS, "holdfast_archives")
EVIDENCE, LEASES = "holdfast_evidence", "holdfast_leases"
JOURNAL_COLUMNS = (
    "epoch, xid, machine, subject, version,\n    source, target, event, actor, reason, attempt, move_id, grant_id,\n"
    "    maintenance_id, at"
)


def functions(schema: str, epoch: str) -> dict[str, str]:
    """Return the body of every trigger function by its name. `schema` is quoted and ends with a dot."""
    bodies = {"holdfast_journal_refuse": _raise(Refusal.APPEND_ONLY, "TG_OP || ' of ' || TG_TABLE_NAME")}
    bodies["holdfast_journal_by_hand"] = _unless_door(schema, Refusal.WRITTEN_BY_HAND, "NEW")
    bodies["holdfast_journal_written"] = _written(schema)
    bodies["holdfast_journal_delete"] = _unless_door(schema, Refusal.APPEND_ONLY, "OLD")
    bodies["holdfast_seals_follow"] = _follow(schema)
    bodies[f"{EVIDENCE}_update"] = _if(evidence_violation("OLD", "NEW"), f"'{EVIDENCE} ' || OLD.evidence_id")
    bodies[f"{LEASES}_update"] = _if(lease_violation("OLD", "NEW"), f"'{LEASES} ' || OLD.name")
    bodies[f"{LEASES}_delete"] = _raise(Refusal.NEVER_DELETED, "TG_OP || ' of ' || TG_TABLE_NAME")
    bodies["holdfast_truncate"] = _raise(Refusal.NEVER_DELETED, "'TRUNCATE of ' || TG_TABLE_NAME")
    bodies["holdfast_delete"] = _unless_door(schema, Refusal.NEVER_DELETED, "OLD")
    bodies["holdfast_maintenance_write_once"] = _raise(Refusal.WRITE_ONCE, "'UPDATE of the maintenance door'")
    bodies["holdfast_maintenance_opened"] = _door_row(schema, epoch, "NEW", "1", ("NULL", "'open'"))
    bodies["holdfast_maintenance_shut"] = _door_row(schema, epoch, "OLD", _last(schema), ("'open'", "'shut'"))
    bodies["holdfast_maintenance_still_open"] = (
        f"BEGIN\n  IF EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m\n"
        f"    WHERE m.maintenance_id = NEW.maintenance_id) THEN\n"
        f"    {_raised(Refusal.DOOR_LEFT_OPEN, 'NEW.who')}\n  END IF;\n  RETURN NULL;\nEND"
    )
    for guarded in GUARDED:
        bodies[f"{guarded.table}_once"] = _once(guarded, schema)
        bodies[f"{guarded.table}_born"] = _born(guarded, schema, epoch)
        bodies[f"{guarded.table}_moved"] = _moved(guarded, schema, epoch)
    return bodies


def triggers() -> dict[tuple[str, str], str]:
    """Return the text of every trigger by (table, name), as `pg_get_triggerdef` prints it."""
    texts = {}
    for guarded in GUARDED:
        table, once = guarded.table, ", ".join((guarded.id, *guarded.write_once))
        texts[table, f"{table}_once"] = f"BEFORE UPDATE OF {once} ON {table} FOR EACH ROW"
        texts[table, f"{table}_born"] = f"AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT"
        texts[table, f"{table}_moved"] = (
            f"AFTER UPDATE ON {table} REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT"
        )
    texts = {(table, name): f"{text} EXECUTE FUNCTION {name}()" for (table, name), text in texts.items()}
    for table in (guarded.table for guarded in GUARDED):
        texts[table, f"{table}_delete"] = f"BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION holdfast_delete()"
        texts[table, f"{table}_truncate"] = before_truncate(table)
    journal, door = "holdfast_journal", "holdfast_maintenance"
    texts[journal, "holdfast_journal_insert"] = (
        f"BEFORE INSERT ON {journal} FOR EACH ROW WHEN (pg_trigger_depth() = 0)"
        " EXECUTE FUNCTION holdfast_journal_by_hand()"
    )
    texts[journal, "holdfast_journal_update"] = (
        f"BEFORE UPDATE ON {journal} FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse()"
    )
    texts[journal, "holdfast_journal_delete"] = (
        f"BEFORE DELETE ON {journal} FOR EACH ROW EXECUTE FUNCTION holdfast_journal_delete()"
    )
    texts[journal, "holdfast_journal_written"] = after_written(journal)
    texts[journal, "holdfast_journal_truncate"] = before_truncate(journal)
    for table in HISTORY:
        follows = f"BEFORE INSERT ON {table} FOR EACH ROW EXECUTE FUNCTION holdfast_seals_follow()"
        if table == SEALS:
            texts[table, f"{table}_insert"] = follows
        for act in ("UPDATE", "DELETE"):
            texts[table, f"{table}_{act.lower()}"] = (
                f"BEFORE {act} ON {table} FOR EACH ROW EXECUTE FUNCTION holdfast_journal_refuse()"
            )
        texts[table, f"{table}_truncate"] = before_truncate(table)
    for table, delete in ((EVIDENCE, "holdfast_journal_refuse"), (LEASES, f"{LEASES}_delete")):
        texts[table, f"{table}_update"] = f"BEFORE UPDATE ON {table} FOR EACH ROW EXECUTE FUNCTION {table}_update()"
        texts[table, f"{table}_delete"] = f"BEFORE DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION {delete}()"
        texts[table, f"{table}_truncate"] = before_truncate(table)
    for name, head in (
        ("opened", "AFTER INSERT"),
        ("shut", "BEFORE DELETE"),
        ("write_once", "BEFORE UPDATE"),
    ):
        texts[door, f"{door}_{name}"] = f"{head} ON {door} FOR EACH ROW EXECUTE FUNCTION {door}_{name}()"
    texts[door, f"{door}_still_open"] = (
        f"AFTER INSERT ON {door} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {door}_still_open()"
    )
    texts[door, f"{door}_truncate"] = before_truncate(door)
    return {
        (table, name): f"CREATE {'CONSTRAINT ' if ' DEFERRABLE ' in text else ''}TRIGGER {name} {text}"
        for (table, name), text in texts.items()
    }


def _written(schema: str) -> str:
    """Return the body that refuses a journal row whose record has not just moved so, whatever trigger wrote it."""
    moved = "\n      ".join(
        f"WHEN '{guarded.machine.name}' THEN "
        + laid_out(just_moved(guarded, "n", _WRITTEN_HERE).format(schema=schema), 6)
        for guarded in GUARDED
    )
    door = f"EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.maintenance_id = n.subject AND m.xid = {XID})"
    by_hand = (
        f"EXISTS (SELECT 1 FROM new_rows n WHERE NOT CASE n.machine\n      {moved}\n"
        f"      WHEN 'MAINTENANCE' THEN {laid_out(door, 6)}\n      ELSE false\n      END)"
    )
    raised = _raised(Refusal.WRITTEN_BY_HAND, "TG_OP || ' of ' || TG_TABLE_NAME")
    return f"BEGIN\n  IF {by_hand}\n    AND {_no_door(schema)} THEN\n    {raised}\n  END IF;\n  RETURN NULL;\nEND"


def _follow(schema: str) -> str:
    """Return the body that lets a seal follow the last one only."""
    last = f"SELECT s.seal_id, s.hash INTO last FROM {schema}holdfast_seals s ORDER BY s.seal_id DESC LIMIT 1;"
    new = "NEW.seal_id <> coalesce(last.seal_id, 0) + 1 OR NEW.previous <> coalesce(last.hash, NEW.previous)"
    wrong = laid_out(new, 4)
    raised = _raised(Refusal.WRITTEN_BY_HAND, "'seal ' || NEW.seal_id")
    return f"DECLARE\n  last record;\nBEGIN\n  {last}\n  IF {wrong} THEN\n    {raised}\n  END IF;\n  RETURN NEW;\nEND"


def _no_door(schema: str) -> str:
    return f"NOT EXISTS (SELECT 1 FROM {schema}holdfast_maintenance m WHERE m.xid = {XID})"


def _raise(refusal: Refusal, what: str) -> str:
    return f"BEGIN\n  {_raised(refusal, what)}\nEND"


def _raised(refusal: Refusal, what: str) -> str:
    text = f"{refusal} {refusal.meaning}: "
    return f"RAISE EXCEPTION USING ERRCODE = '{refusal}',\n      MESSAGE = '{text}' || {what};"


def _if(violation: Violation, what: str) -> str:
    raised = _raised(violation.refusal, what)
    return f"BEGIN\n  IF {laid_out(violation.condition, 4)} THEN\n    {raised}\n  END IF;\n  RETURN NEW;\nEND"


def _unless_door(schema: str, refusal: Refusal, row: str) -> str:
    raised = _raised(refusal, "TG_OP || ' of ' || TG_TABLE_NAME")
    return f"BEGIN\n  IF {_no_door(schema)} THEN\n    {raised}\n  END IF;\n  RETURN {row};\nEND"


def _once(guarded: Guarded, schema: str) -> str:
    by_id = f"NEW.{guarded.id} <> OLD.{guarded.id} AND {_no_door(schema)}"
    condition = write_once_violation(guarded, "OLD", "NEW", _no_door(schema)).condition
    raised = _raised(Refusal.WRITE_ONCE, f"'{guarded.table} ' || OLD.{guarded.id}")
    changed = laid_out(f"({by_id}) OR ({condition})", 4)
    return f"BEGIN\n  IF {changed} THEN\n    {raised}\n  END IF;\n  RETURN NEW;\nEND"


def _born(guarded: Guarded, schema: str, epoch: str) -> str:
    violations = list(birth_violations(guarded, "n", _no_door(schema)))
    check = _check(guarded, violations, schema, "new_rows n", "NULL::text")
    moved = (
        f"\n    SELECT n.*, NULL::text AS journal_source, n.{guarded.state} AS journal_target,\n"
        f"      ({laid_out(granted(guarded, None, 'n'), 6)})::bigint AS journal_grant\n    FROM new_rows n"
    )
    births = [path for path in long_paths(guarded.machine) if path.source is None]
    # Rows written under maintenance (a restore) bring their own journal with them.
    return _function(
        check, _write(guarded, schema, epoch, moved=moved, longer=births, only=f"\n      WHERE {_no_door(schema)}")
    )


def _moved(guarded: Guarded, schema: str, epoch: str) -> str:
    pairs = f"old_rows o JOIN new_rows n ON n.{guarded.id} = o.{guarded.id}"
    violations = list(move_violations(guarded, "o", "n", _no_door(schema)))
    check = _check(guarded, violations, schema, pairs, f"o.{guarded.state}")
    moved = (
        f"\n    SELECT n.*, o.{guarded.state} AS journal_source, n.{guarded.state} AS journal_target,\n"
        f"      ({laid_out(granted(guarded, 'o', 'n'), 6)})::bigint AS journal_grant\n"
        f"    FROM {pairs}\n    WHERE n.{guarded.state} <> o.{guarded.state}"
    )
    moves = [path for path in long_paths(guarded.machine) if path.source is not None]
    return _function(check, _write(guarded, schema, epoch, moved=moved, longer=moves))


def _function(check: str, write: str) -> str:
    return f"DECLARE\n  bad record;\nBEGIN\n{check}{write}  RETURN NULL;\nEND"


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
    # INTO takes the first row. A LIMIT would say so too, and make the planner compare every old row with every new one.
    return (
        f"  SELECT n.{guarded.id} AS id, {source} AS source, n.{guarded.state} AS target, n.event,\n"
        f"      CASE\n      {which}\n      END AS refusal\n    INTO bad FROM {rows}\n    WHERE {any_of};\n"
        f"  IF FOUND THEN\n    RAISE EXCEPTION USING ERRCODE = left(bad.refusal, 5),\n"
        f"      MESSAGE = {what};\n  END IF;\n"
    )


def _write(guarded: Guarded, schema: str, epoch: str, *, moved: str, longer: list[Path], only: str = "") -> str:
    """Return the statement that journals what moved, an edge a row, and writes the count deltas of jobs."""
    edges = _edges(longer)
    source, target, back = ("m.journal_source", "m.journal_target", "0")
    if edges:
        source = "CASE WHEN e.target IS NULL THEN m.journal_source ELSE e.source END"
        target, back = "coalesce(e.target, m.journal_target)", "coalesce(e.back, 0)"
    attempt = "NULL::integer" if guarded.attempt == "NULL" else f"m.{guarded.attempt}"
    grant = "m.journal_grant"
    door = f"(SELECT d.maintenance_id FROM {schema}holdfast_maintenance d WHERE d.xid = {XID})"
    journal = (
        f"INSERT INTO {schema}holdfast_journal\n    ({JOURNAL_COLUMNS})\n"
        f"    SELECT {epoch}, {XID}, '{guarded.machine.name}', m.{guarded.id}, m.version - {back},\n"
        f"      {source},\n      {target}, m.event, m.actor, m.reason, {attempt}, m.move_id, {grant},\n"
        f"      {door},\n      {AT.format(row='m', column='updated_at')}\n"
        f"      FROM moved m{edges}{only}\n      ORDER BY 4, 5"
    )
    if not guarded.counted:
        return f"  WITH moved AS ({moved})\n  {journal};\n"
    return (
        f"  WITH moved AS MATERIALIZED ({moved}),\n  journalled AS (\n  {journal})\n"
        f"  INSERT INTO {schema}holdfast_count_deltas (operation, queue, source, target, n)\n"
        f"    SELECT m.operation, m.queue, m.journal_source, m.journal_target, count(*) FROM moved m\n"
        f"     GROUP BY 1, 2, 3, 4;\n"
    )


def _edges(longer: list[Path]) -> str:
    """Return a join to the edges of the longer paths, as literals; `back` counts the edges that follow."""
    if not longer:
        return ""
    rows = ",\n        ".join(
        f"({_text(path.source or '')}, {_text(path.target)}, {_text(edge.source)}, {_text(edge.target)}, {left})"
        for path in longer
        for left, edge in zip(reversed(range(len(path.edges))), path.edges, strict=True)
    )
    return (
        f"\n      LEFT JOIN (VALUES\n        {rows}\n      ) e (from_state, to_state, source, target, back)\n"
        "      ON e.from_state = coalesce(m.journal_source, '') AND e.to_state = m.journal_target"
    )


def _last(schema: str) -> str:
    # What was noted under the door stands between its opening and its shutting.
    return (
        f"(SELECT coalesce(max(j.version), 0) + 1 FROM {schema}holdfast_journal j\n"
        "      WHERE j.machine = 'MAINTENANCE' AND j.subject = OLD.maintenance_id)"
    )


def _door_row(schema: str, epoch: str, row: str, version: str, edge: tuple[str, str]) -> str:
    source, target = edge
    at = AT.format(row=row, column="opened_at")
    return (
        f"BEGIN\n  INSERT INTO {schema}holdfast_journal\n    ({JOURNAL_COLUMNS})\n  VALUES\n"
        f"    ({epoch}, {XID}, 'MAINTENANCE', {row}.maintenance_id,\n    {version},\n"
        f"    {source}, {target}, {target}, {row}.who, {row}.why,\n"
        f"    NULL, 'maintenance-' || {row}.maintenance_id, {row}.grant_id,\n"
        f"    {row}.maintenance_id, {at});\n"
        f"  RETURN {row};\nEND"
    )


def _text(word: str | None) -> str:
    return "NULL::text" if word is None else f"'{word}'"
