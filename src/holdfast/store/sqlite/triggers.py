"""The triggers of the SQLite dialect: the rules of `enforcement`, and the journal that no client can bypass.

Invariants: every row that changes its state leaves one journal row, in the same transaction; `INSERT OR
REPLACE`, which fires no DELETE trigger, is stopped before it replaces anything; the texts returned here are exactly
what the database stores, so that opening a ledger can compare them.
"""

from collections.abc import Iterator
from textwrap import fill, indent

from holdfast.core.machines import JOB
from holdfast.store import enforcement, joint
from holdfast.store.enforcement import Refusal, Violation, sql_text, sql_texts
from holdfast.store.layout import WIDTH, laid_out
from holdfast.store.statements import statements
from holdfast.store.tables import GUARDED, KEPT_SETTINGS, Guarded, table_named

DOOR = "(SELECT maintenance_id FROM holdfast_maintenance)"
NO_DOOR = "NOT EXISTS (SELECT 1 FROM holdfast_maintenance)"


def triggers(epoch: str) -> dict[str, str]:
    others = (guarded for guarded in GUARDED if guarded.machine is not JOB)
    machines = (text for guarded in others for text in _machine_triggers(guarded, epoch))
    texts = (
        *_job_triggers(epoch),
        *_call_triggers(),
        *_aborted_triggers(),
        *_traceback_triggers(),
        *_erased_triggers(),
        *machines,
        _fold_trigger(),
        *_journal_triggers(),
        *_history_triggers(),
        *_setting_triggers(),
        *_approver_triggers(),
        *_door_triggers(epoch),
    )
    return {text.split()[2]: text for text in texts}


def governed_triggers() -> dict[str, str]:
    """Return the triggers that only a governed ledger has."""
    table, name = joint.JOBS.table, f"{joint.JOBS.table}_in_force"
    usable = f"EXISTS (SELECT 1 {joint.in_force('NEW.operation', joint.version_of('NEW'))})"
    other = Violation(Refusal.NOT_IN_FORCE, f"{joint.governs('NEW')} AND NOT {usable} AND {NO_DOOR}")
    return {name: _guard(name, f"BEFORE INSERT ON {table}", [_local(other)])}


def views() -> dict[str, str]:
    return {name: f"CREATE VIEW {name} AS\n{text.format(schema='')}" for name, text in joint.views().items()}


def _job_triggers(epoch: str) -> Iterator[str]:
    table, guarded = joint.JOBS.table, joint.JOBS
    births = [*_collisions(guarded), *map(_local, joint.job_birth_violations("NEW", NO_DOOR))]
    yield _guard(f"{table}_birth", f"BEFORE INSERT ON {table}", births)
    yield _once(guarded)
    by_id = Violation(Refusal.WRITE_ONCE, f"NEW.job_id <> OLD.job_id AND {NO_DOOR}")
    moves = [by_id, *map(_local, joint.job_violations("OLD", "NEW", NO_DOOR))]
    yield _guard(f"{table}_move", f"BEFORE UPDATE ON {table}", moves)
    yield _never_deleted(table)
    yield from _noted(guarded)
    head = f"AFTER INSERT ON {table}"
    # Rows written under maintenance (a restore) bring their own journal with them.
    yield _writer(f"{table}_born", head, NO_DOOR, _job_journal(epoch, joint.journal_values(None, "NEW")))
    yield _writer(f"{table}_born_count", head, "1", _delta(None))
    head = f"AFTER UPDATE OF state, status ON {table}"
    moved = _job_journal(epoch, joint.journal_values("OLD", "NEW"))
    yield _writer(f"{table}_moved", head, "NEW.state <> OLD.state", moved + _delta("OLD"))
    yield _writer(f"{table}_stepped", head, "NEW.state = OLD.state AND NEW.status IS DISTINCT FROM OLD.status", moved)
    aborted = f"  INSERT INTO holdfast_aborted\n    ({joint.ABORTED_COLUMNS})\n  VALUES\n    ({{}});\n"
    values = joint.aborted_values("OLD", "NEW", flag="{}")
    request = joint.request_values("NEW", epoch=epoch, xid="0", door=DOOR)
    body = f"  INSERT INTO holdfast_journal\n    ({joint.REQUEST_COLUMNS})\n  VALUES\n    ({request});\n"
    requested = f"AFTER UPDATE OF cancel_requested_at ON {table}"
    yield _writer(f"{table}_requested", requested, joint.made_request("OLD", "NEW"), body)
    yield _writer(f"{table}_aborted", head, joint.ended("OLD", "NEW"), aborted.format(values))


def _job_journal(epoch: str, values: dict[str, str]) -> str:
    values_sql = ",\n    ".join(laid_out(value, 4) for value in values.values())
    return (
        f"  INSERT INTO holdfast_journal ({', '.join(values)},\n"
        "    epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at)\n"
        f"  VALUES\n    ({values_sql},\n"
        f"    {epoch}, 0, NEW.event, NEW.actor, NEW.reason, NEW.attempts, NEW.move_id,\n"
        f"    {DOOR}, NEW.updated_at);\n"
    )


def _call_triggers() -> Iterator[str]:
    table = table_named("calls")
    replaced = [
        Violation(Refusal.ILLEGAL_BIRTH, _there(table.full_name, columns))
        for columns in (("job_id",), ("client", "key"))
    ]
    yield _guard(f"{table.full_name}_birth", f"BEFORE INSERT ON {table.full_name}", replaced)
    changed = " OR ".join(f"NEW.{column} IS DISTINCT FROM OLD.{column}" for column in table.names)
    once = Violation(Refusal.WRITE_ONCE, f"({changed}) AND {NO_DOOR}")
    yield _guard(f"{table.full_name}_once", f"BEFORE UPDATE ON {table.full_name}", [once])
    yield _never_deleted(table.full_name)
    rewrite = f"{enforcement.call_rewritten('OLD', 'NEW')} AND NOT {NO_DOOR}"
    note = _note(enforcement.REWRITE, "'CALL ' || NEW.job_id")
    yield _writer(f"{table.full_name}_rewritten", f"AFTER UPDATE ON {table.full_name}", rewrite, note)


def _aborted_triggers() -> Iterator[str]:
    table = "holdfast_aborted"
    again, ended = _there(table, ("job_id", "attempt")), joint.just_ended("NEW").format(schema="")
    by_hand = Violation(Refusal.WRITTEN_BY_HAND, f"{again} OR (NOT {ended} AND {NO_DOOR})")
    yield from _append_only(table, [by_hand], deleted=Violation(Refusal.NEVER_DELETED, NO_DOOR))


def _traceback_triggers() -> Iterator[str]:
    table = "holdfast_tracebacks"
    again = Violation(Refusal.ILLEGAL_BIRTH, _there(table, ("job_id", "attempt")))
    births = [again, _local(enforcement.traceback_violation("NEW"))]
    yield from _append_only(table, births, deleted=Violation(Refusal.NEVER_DELETED, NO_DOOR))


def _erased_triggers() -> Iterator[str]:
    table = "holdfast_erased"
    again = " OR ".join(_there(table, columns) for columns in (("job_id",), ("client", "key_hash")))
    births = [Violation(Refusal.ILLEGAL_BIRTH, again), _local(enforcement.erasure_violation("NEW", NO_DOOR))]
    yield from _append_only(table, births, deleted=_always(Refusal.APPEND_ONLY))


def _append_only(table: str, births: list[Violation], *, deleted: Violation) -> Iterator[str]:
    yield _guard(f"{table}_insert", f"BEFORE INSERT ON {table}", births)
    yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", [_always(Refusal.APPEND_ONLY)])
    yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [deleted])


def _once(guarded: Guarded) -> str:
    # Named columns only, so that other writes do not read them; `SET rowid = …` is caught by the guard of moves.
    columns = ",\n    ".join(guarded.write_once)
    once = f"BEFORE UPDATE OF\n    {columns}\n  ON {guarded.table}"
    return _guard(f"{guarded.table}_once", once, [enforcement.write_once_violation(guarded, "OLD", "NEW", NO_DOOR)])


def _never_deleted(table: str) -> str:
    return _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [Violation(Refusal.NEVER_DELETED, NO_DOOR)])


def _noted(guarded: Guarded) -> Iterator[str]:
    """Yield what journals that a record is rewritten at rest, or deleted, under maintenance."""
    table = guarded.table
    columns = fill(", ".join(enforcement.noted_columns(guarded)), WIDTH, subsequent_indent="  ")
    changed = f"{enforcement.rewritten(guarded, 'OLD', 'NEW')} AND NOT {NO_DOOR}"
    note = _note(enforcement.REWRITE, enforcement.rewritten_note(guarded, "OLD", "NEW"))
    yield _writer(f"{table}_rewritten", f"AFTER UPDATE OF\n  {columns}\n  ON {table}", changed, note)
    yield _deletion_noted(table, f"'{guarded.machine.name} ' || OLD.{guarded.id}")


def _deletion_noted(table: str, what: str) -> str:
    return _writer(f"{table}_deleted", f"AFTER DELETE ON {table}", f"NOT {NO_DOOR}", _note(enforcement.DELETE, what))


def _note(event: str, what: str) -> str:
    return (
        f"  INSERT INTO holdfast_journal\n    ({_JOURNAL_COLUMNS})\n"
        "    SELECT g.epoch, g.xid, g.machine, g.subject, g.version + 1, g.target, g.target,\n"
        f"      '{event}', g.actor, {laid_out(what, 6)},\n"
        "      NULL, g.move_id, g.grant_id, g.maintenance_id, g.at\n"
        f"    FROM holdfast_journal g\n    WHERE g.machine = 'MAINTENANCE' AND g.subject = {DOOR}\n"
        "    ORDER BY g.version DESC LIMIT 1;\n"
    )


def _machine_triggers(guarded: Guarded, epoch: str) -> Iterator[str]:
    table, births = guarded.table, map(_local, enforcement.birth_violations(guarded, "NEW", NO_DOOR))
    yield _guard(f"{table}_birth", f"BEFORE INSERT ON {table}", [*_collisions(guarded), *births])
    yield _once(guarded)
    moves = [*map(_local, enforcement.move_violations(guarded, "OLD", "NEW", NO_DOOR)), *_brought_back(guarded)]
    yield _guard(f"{table}_move", f"BEFORE UPDATE ON {table}", moves)
    yield _never_deleted(table)
    yield from _noted(guarded)
    # Rows written under maintenance (a restore) bring their own journal with them.
    yield _writer(f"{table}_born", f"AFTER INSERT ON {table}", NO_DOOR, _journal(guarded, epoch, None))
    head = f"AFTER UPDATE OF {guarded.state} ON {table}"
    yield _writer(
        f"{table}_moved", head, f"OLD.{guarded.state} <> NEW.{guarded.state}", _journal(guarded, epoch, "OLD")
    )


def _collisions(guarded: Guarded) -> Iterator[Violation]:
    for columns in ((guarded.id,), *guarded.unique):
        yield Violation(Refusal.ILLEGAL_BIRTH, _there(guarded.table, columns))
    if guarded.alone:
        yield Violation(Refusal.ILLEGAL_BIRTH, _crowded(guarded, *guarded.alone))


def _crowded(guarded: Guarded, columns: tuple[str, ...], states: tuple[str, ...]) -> str:
    among = f"{{row}}{guarded.state} IN ({sql_texts(states)})"
    if guarded.aside:
        column, word = guarded.aside
        among += f" AND {{row}}{column} <> {sql_text(word)}"
    there = _there(guarded.table, columns, f"{among.format(row='')} AND {guarded.id} IS NOT NEW.{guarded.id}")
    return f"{among.format(row='NEW.')} AND {there}"


def _brought_back(guarded: Guarded) -> Iterator[Violation]:
    # As with a second commit: UPDATE OR REPLACE would make room.
    if guarded.alone and guarded.aside:
        column, _ = guarded.aside
        crowded = _crowded(guarded, *guarded.alone)
        yield Violation(Refusal.ILLEGAL_BIRTH, f"NEW.{column} <> OLD.{column} AND {crowded}")


def _there(table: str, columns: tuple[str, ...], among: str = "1") -> str:
    same = " AND ".join(f"{column} = NEW.{column}" for column in columns)
    return f"EXISTS (SELECT 1 FROM {table} WHERE {same} AND {among})"


def _journal(guarded: Guarded, epoch: str, old: str | None) -> str:
    """Return the INSERT of the journal row of a record that was made or has moved."""
    source = f"{old}.{guarded.state}" if old else "NULL"
    return (
        f"  INSERT INTO holdfast_journal\n    ({_JOURNAL_COLUMNS})\n  VALUES\n"
        f"    ({epoch}, 0, '{guarded.machine.name}', NEW.{guarded.id}, NEW.version,\n"
        f"    {source}, NEW.{guarded.state}, NEW.event, NEW.actor, NEW.reason, NULL, NEW.move_id,\n"
        f"    {laid_out(enforcement.granted(guarded, old, 'NEW'), 4)},\n    {DOOR}, NEW.updated_at);\n"
    )


_JOURNAL_COLUMNS = (
    "epoch, xid, machine, subject, version,\n    source, target, event, actor, reason, attempt, move_id, grant_id,\n"
    "    maintenance_id, at"
)


def _delta(old: str | None) -> str:
    source = f"{old}.state" if old else "NULL"
    return (
        "  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n, event, code, at) VALUES\n"
        f"    (NEW.operation, NEW.queue, {source}, NEW.state, 1, NEW.event,\n"
        f"    {joint.delta_code(old, 'NEW')}, NEW.updated_at);\n"
    )


def _fold_trigger() -> str:
    """Return what folds the deltas where no worker does; a keeper deletes old minutes."""
    body = "".join(indent(f"{part};\n", "  ") for part in statements("sqlite")["fold_counts"][:-1])
    return _writer(
        f"{joint.DELTAS}_folded", f"AFTER INSERT ON {joint.DELTAS}", f"NEW.delta_id % {joint.FOLD_EVERY} = 0", body
    )


def _journal_triggers() -> Iterator[str]:
    lookups = {guarded.machine.name: enforcement.just_moved(guarded, "NEW") for guarded in GUARDED}
    lookups["EXECUTION"] = joint.just_stepped("NEW")
    lookups["REQUEST"] = joint.just_requested("NEW")
    moved = " ".join(f"WHEN '{name}' THEN {condition.format(schema='')}" for name, condition in lookups.items())
    door = "WHEN 'MAINTENANCE' THEN EXISTS (SELECT 1 FROM holdfast_maintenance WHERE maintenance_id = NEW.subject)"
    # A column takes any number here, so 1.5 is ruled out too.
    known = f"typeof(NEW.version) = 'integer' AND CASE NEW.machine {moved} {door} ELSE 0 END"
    # A number that SQLite is yet to choose is -1 here.
    again = (
        "EXISTS (SELECT 1 FROM holdfast_journal WHERE machine = NEW.machine AND subject = NEW.subject"
        " AND version = NEW.version) OR (NEW.seq <> -1 AND EXISTS (SELECT 1 FROM holdfast_journal WHERE seq = NEW.seq))"
    )
    yield _guard(
        "holdfast_journal_insert",
        "BEFORE INSERT ON holdfast_journal",
        [Violation(Refusal.WRITTEN_BY_HAND, f"{again} OR (NOT ({known}) AND {NO_DOOR})")],
    )
    yield _guard("holdfast_journal_update", "BEFORE UPDATE ON holdfast_journal", [_always(Refusal.APPEND_ONLY)])
    yield _guard(
        "holdfast_journal_delete",
        "BEFORE DELETE ON holdfast_journal",
        [Violation(Refusal.APPEND_ONLY, NO_DOOR)],
    )


def _history_triggers() -> Iterator[str]:
    """Yield what keeps seals, the record of archives, evidence, and the tokens of leases."""
    follows = (
        "NEW.seal_id <> 1 + (SELECT coalesce(max(seal_id), 0) FROM holdfast_seals) OR NEW.previous IS NOT coalesce("
        "(SELECT hash FROM holdfast_seals ORDER BY seal_id DESC LIMIT 1), NEW.previous)"
    )
    again = "EXISTS (SELECT 1 FROM holdfast_archives WHERE archive_id = NEW.archive_id)"
    for table, by_hand in (("holdfast_seals", follows), ("holdfast_archives", again)):
        births = [Violation(Refusal.WRITTEN_BY_HAND, by_hand)]
        yield from _append_only(table, births, deleted=_always(Refusal.APPEND_ONLY))
    yield from _kept(
        "holdfast_evidence", Refusal.APPEND_ONLY, _kept_evidence(), enforcement.evidence_violation("OLD", "NEW")
    )
    older = "EXISTS (SELECT 1 FROM holdfast_leases WHERE name = NEW.name AND token >= NEW.token)"
    yield from _kept("holdfast_leases", Refusal.NEVER_DELETED, older, enforcement.lease_violation("OLD", "NEW"))


def _kept(table: str, deleted: Refusal, replaced: str, changed: Violation) -> Iterator[str]:
    yield _guard(f"{table}_insert", f"BEFORE INSERT ON {table}", [Violation(changed.refusal, replaced)])
    yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", [changed])
    yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [_always(deleted)])


def _kept_evidence() -> str:
    table = "holdfast_evidence"
    valid = _there(table, ("run_id", "kind"), "voided_at IS NULL")
    return f"{_there(table, ('evidence_id',))} OR (NEW.voided_at IS NULL AND {valid})"


def _setting_triggers() -> Iterator[str]:
    table = "holdfast_meta"
    kept = f"NEW.name IN ({sql_texts(KEPT_SETTINGS)}) AND {NO_DOOR}"
    # REPLACE fires no trigger for the row that it deletes.
    lowered = f"EXISTS (SELECT 1 FROM {table} m WHERE {enforcement.setting_replaced('NEW', 'm')})"
    again = [
        Violation(Refusal.NOT_MONOTONE, lowered),
        Violation(Refusal.WRITE_ONCE, f"{_there(table, ('name',))} AND {kept}"),
    ]
    yield _guard(f"{table}_insert", f"BEFORE INSERT ON {table}", again)
    yield _guard(
        f"{table}_update",
        f"BEFORE UPDATE ON {table}",
        [*map(_local, enforcement.setting_violations("OLD", "NEW", NO_DOOR))],
    )
    yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [enforcement.setting_deleted("OLD", NO_DOOR)])


def _approver_triggers() -> Iterator[str]:
    table = "holdfast_approvers"
    # REPLACE fires no trigger for the row that it deletes; a new registration follows a revocation.
    active = f"EXISTS (SELECT 1 FROM {table} r WHERE r.name = NEW.name AND r.revoked_at IS NULL) AND {NO_DOOR}"
    births = [
        Violation(Refusal.ILLEGAL_BIRTH, active),
        *map(_local, enforcement.approver_birth_violations("NEW", NO_DOOR)),
    ]
    yield _guard(f"{table}_insert", f"BEFORE INSERT ON {table}", births)
    moves = [*map(_local, enforcement.approver_violations("OLD", "NEW", NO_DOOR))]
    yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", moves)
    yield _never_deleted(table)
    changed = f"NOT {NO_DOOR}"
    yield _writer(
        f"{table}_rewritten", f"AFTER UPDATE ON {table}", changed, _note(enforcement.REWRITE, "'APPROVER ' || NEW.name")
    )
    yield _deletion_noted(table, "'APPROVER ' || OLD.name")


def _door_triggers(epoch: str) -> Iterator[str]:
    table = "holdfast_maintenance"
    # Notes of maintenance are journalled between its opening and its shutting.
    last = (
        "(SELECT coalesce(max(version), 0) + 1 FROM holdfast_journal\n"
        "      WHERE machine = 'MAINTENANCE' AND subject = OLD.maintenance_id)"
    )
    for name, head, row, version, source, target, event in (
        ("opened", "AFTER INSERT", "NEW", "1", "NULL", "'open'", "'open'"),
        ("shut", "BEFORE DELETE", "OLD", last, "'open'", "'shut'", "'shut'"),
    ):
        values = (
            f"({epoch}, 0, 'MAINTENANCE', {row}.maintenance_id,\n    {version},\n"
            f"    {source}, {target}, {event}, {row}.who, {row}.why, NULL, 'maintenance-' || {row}.maintenance_id,\n"
            f"    {row}.grant_id, {row}.maintenance_id, {row}.opened_at)"
        )
        body = f"  INSERT INTO holdfast_journal\n    ({_JOURNAL_COLUMNS})\n  VALUES\n    {values};\n"
        yield _writer(f"{table}_{name}", f"{head} ON {table}", "1", body)
    yield _guard(f"{table}_one", f"BEFORE INSERT ON {table}", [Violation(Refusal.DOOR_LEFT_OPEN, f"NOT {NO_DOOR}")])
    yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", [_always(Refusal.WRITE_ONCE)])


def _always(refusal: Refusal) -> Violation:
    return Violation(refusal, "1")


def _local(violation: Violation) -> Violation:
    return Violation(violation.refusal, violation.condition.format(schema=""))


def _guard(name: str, head: str, violations: list[Violation]) -> str:
    """Return a trigger that refuses a row that breaks a rule.

    Without a WHEN, which would repeat every condition: each connection reads the text of all triggers.
    """
    body = "".join(
        f"  SELECT RAISE(ABORT, '{violation.refusal} {violation.refusal.meaning}') WHERE\n"
        f"    {laid_out(violation.condition, 4)};\n"
        for violation in violations
    )
    return f"CREATE TRIGGER {name} {head}\nBEGIN\n{body}END"


def _writer(name: str, head: str, condition: str, body: str) -> str:
    return f"CREATE TRIGGER {name} {head}\nWHEN {laid_out(condition, 2)}\nBEGIN\n{body}END"
