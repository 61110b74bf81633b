"""The triggers of the SQLite dialect: the rules of `enforcement`, and the journal that no client can bypass.

Invariants: every row that changes its state leaves one journal row an edge, in the same transaction; `INSERT OR
REPLACE`, which fires no DELETE trigger, is stopped before it replaces anything; the texts returned here are exactly
what the database stores, so that opening a ledger can compare them.
"""

from collections.abc import Iterator

from holdfast.core.machine import Edge, Path
from holdfast.store.enforcement import (
    Refusal,
    Violation,
    birth_violations,
    committed_states,
    evidence_violation,
    granted,
    just_moved,
    lease_violation,
    long_paths,
    move_violations,
    texts,
    write_once_violation,
)
from holdfast.store.layout import laid_out
from holdfast.store.tables import GUARDED, Guarded

DOOR = "(SELECT maintenance_id FROM holdfast_maintenance)"
NO_DOOR = "NOT EXISTS (SELECT 1 FROM holdfast_maintenance)"


def triggers(epoch: str) -> dict[str, str]:
    """Return the text of every trigger by its name."""
    machines = (text for guarded in GUARDED for text in _machine_triggers(guarded, epoch))
    texts = (*machines, *_journal_triggers(), *_history_triggers(), *_door_triggers(epoch))
    return {text.split()[2]: text for text in texts}


def _machine_triggers(guarded: Guarded, epoch: str) -> Iterator[str]:
    table = guarded.table
    yield _guard(f"{table}_birth", f"BEFORE INSERT ON {table}", [*_collisions(guarded), *_births(guarded)])
    # Named columns only, so that a move does not read the payload; `SET rowid = …` is caught by the next trigger.
    columns = ",\n    ".join(guarded.write_once)
    once = f"BEFORE UPDATE OF\n    {columns}\n  ON {table}"
    yield _guard(f"{table}_once", once, [write_once_violation(guarded, "OLD", "NEW", NO_DOOR)])
    moves = [
        *(_local(violation) for violation in move_violations(guarded, "OLD", "NEW", NO_DOOR)),
        *_second_commit(guarded),
        *_brought_back(guarded),
    ]
    yield _guard(f"{table}_move", f"BEFORE UPDATE ON {table}", moves)
    yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [Violation(Refusal.NEVER_DELETED, NO_DOOR)])
    yield from _born(guarded, epoch)
    yield from _moved(guarded, epoch)


def _births(guarded: Guarded) -> Iterator[Violation]:
    return (_local(violation) for violation in birth_violations(guarded, "NEW", NO_DOOR))


def _collisions(guarded: Guarded) -> Iterator[Violation]:
    for columns in ((guarded.id,), *guarded.unique):
        yield Violation(Refusal.ILLEGAL_BIRTH, _there(guarded.table, columns))
    if guarded.alone:
        yield Violation(Refusal.ILLEGAL_BIRTH, _crowded(guarded, *guarded.alone))


def _crowded(guarded: Guarded, columns: tuple[str, ...], states: tuple[str, ...]) -> str:
    among = f"{{row}}{guarded.state} IN ({texts(states)})"
    if guarded.aside:
        column, word = guarded.aside
        among += f" AND {{row}}{column} <> {_text(word)}"
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


def _second_commit(guarded: Guarded) -> Iterator[Violation]:
    # The unique index forbids it too, but UPDATE OR REPLACE would make room by deleting the first one.
    if guarded.one_commit:
        committed = committed_states()
        other = f"EXISTS (SELECT 1 FROM {guarded.table} WHERE job_id = NEW.job_id AND exec_id <> NEW.exec_id"
        yield Violation(
            Refusal.SECOND_COMMIT,
            f"NEW.status IN ({committed}) AND OLD.status NOT IN ({committed}) AND {other} AND status IN ({committed}))",
        )


def _born(guarded: Guarded, epoch: str) -> Iterator[str]:
    # Rows written under maintenance (a restore) bring their own journal with them.
    longer = [path for path in long_paths(guarded.machine) if path.source is None]
    one = f"NEW.{guarded.state} NOT IN ({', '.join(_text(path.target) for path in longer)})" if longer else "1"
    head = f"AFTER INSERT ON {guarded.table}"
    yield _writer(f"{guarded.table}_born", head, f"{one} AND {NO_DOOR}", _journal(guarded, epoch, None))
    for path in longer:
        name = f"{guarded.table}_born_{path.target}"
        condition = f"NEW.{guarded.state} = {_text(path.target)} AND {NO_DOOR}"
        yield _writer(name, head, condition, _journal(guarded, epoch, path))
    if guarded.counted:
        yield _writer(f"{guarded.table}_born_count", head, "1", _delta("NULL", f"NEW.{guarded.state}"))


def _moved(guarded: Guarded, epoch: str) -> Iterator[str]:
    state = guarded.state
    longer = [path for path in long_paths(guarded.machine) if path.source is not None]
    ends = [f"(OLD.{state} = {_text(p.source or '')} AND NEW.{state} = {_text(p.target)})" for p in longer]
    head = f"AFTER UPDATE OF {state} ON {guarded.table}"
    changed = f"OLD.{state} <> NEW.{state}"
    one = f"{changed} AND NOT ({' OR '.join(ends)})" if ends else changed
    count = _delta(f"OLD.{state}", f"NEW.{state}") if guarded.counted else ""
    yield _writer(f"{guarded.table}_moved", head, one, _journal(guarded, epoch, None, moved=True) + count)
    for path, condition in zip(longer, ends, strict=True):
        name = f"{guarded.table}_moved_{path.source}_{path.target}"
        yield _writer(name, head, condition, _journal(guarded, epoch, path) + count)


def _journal(guarded: Guarded, epoch: str, path: Path | None, *, moved: bool = False) -> str:
    """Return the INSERT of one journal row an edge; without a path, the one edge is the row's own change."""
    edges: list[tuple[str, str, int]]
    if path is None:
        edges = [(f"OLD.{guarded.state}" if moved else "NULL", f"NEW.{guarded.state}", 0)]
    else:
        last = len(path.edges) - 1
        edges = [(*_ends(edge), last - step) for step, edge in enumerate(path.edges)]
    grant = granted(guarded, "OLD" if moved or (path and path.source) else None, "NEW")
    attempt = "NULL" if guarded.attempt == "NULL" else f"NEW.{guarded.attempt}"
    # One INSERT a row: several rows in one would go through a temporary table, since the journal has a trigger.
    return "".join(
        f"  INSERT INTO holdfast_journal\n    ({_JOURNAL_COLUMNS})\n  VALUES\n"
        f"    ({epoch}, 0, '{guarded.machine.name}', NEW.{guarded.id}, NEW.version{f' - {back}' if back else ''},\n"
        f"    {source}, {target}, NEW.event, NEW.actor, NEW.reason, {attempt}, NEW.move_id,\n"
        f"    {laid_out(grant, 4)},\n    {DOOR}, NEW.updated_at);\n"
        for source, target, back in edges
    )


_JOURNAL_COLUMNS = (
    "epoch, xid, machine, subject, version,\n    source, target, event, actor, reason, attempt, move_id, grant_id,\n"
    "    maintenance_id, at"
)


def _delta(source: str, target: str) -> str:
    return (
        "  INSERT INTO holdfast_count_deltas (operation, queue, source, target, n) VALUES\n"
        f"    (NEW.operation, NEW.queue, {source}, {target}, 1);\n"
    )


def _journal_triggers() -> Iterator[str]:
    moved = " ".join(
        f"WHEN '{guarded.machine.name}' THEN {just_moved(guarded, 'NEW').format(schema='')}" for guarded in GUARDED
    )
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
        head = f"BEFORE INSERT ON {table}"
        yield _guard(f"{table}_insert", head, [Violation(Refusal.WRITTEN_BY_HAND, by_hand)])
        yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", [_always(Refusal.APPEND_ONLY)])
        yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [_always(Refusal.APPEND_ONLY)])
    yield from _kept("holdfast_evidence", Refusal.APPEND_ONLY, _kept_evidence(), evidence_violation("OLD", "NEW"))
    older = "EXISTS (SELECT 1 FROM holdfast_leases WHERE name = NEW.name AND token >= NEW.token)"
    yield from _kept("holdfast_leases", Refusal.NEVER_DELETED, older, lease_violation("OLD", "NEW"))


def _kept(table: str, deleted: Refusal, replaced: str, changed: Violation) -> Iterator[str]:
    yield _guard(f"{table}_insert", f"BEFORE INSERT ON {table}", [Violation(changed.refusal, replaced)])
    yield _guard(f"{table}_update", f"BEFORE UPDATE ON {table}", [changed])
    yield _guard(f"{table}_delete", f"BEFORE DELETE ON {table}", [_always(deleted)])


def _kept_evidence() -> str:
    table = "holdfast_evidence"
    stands = _there(table, ("run_id", "kind"), "voided_at IS NULL")
    return f"{_there(table, ('evidence_id',))} OR (NEW.voided_at IS NULL AND {stands})"


def _door_triggers(epoch: str) -> Iterator[str]:
    table = "holdfast_maintenance"
    # What was noted under the door stands between its opening and its shutting.
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
    """Return a trigger whose body is entered only by a row that breaks a rule."""
    conditions = [laid_out(violation.condition, 4) for violation in violations]
    when = " OR ".join(f"(\n    {condition}\n  )" for condition in conditions)
    body = "".join(
        f"  SELECT RAISE(ABORT, '{violation.refusal} {violation.refusal.meaning}') WHERE\n    {condition};\n"
        for violation, condition in zip(violations, conditions, strict=True)
    )
    return f"CREATE TRIGGER {name} {head}\nWHEN {when}\nBEGIN\n{body}END"


def _writer(name: str, head: str, condition: str, body: str) -> str:
    return f"CREATE TRIGGER {name} {head}\nWHEN {laid_out(condition, 2)}\nBEGIN\n{body}END"


def _ends(edge: Edge) -> tuple[str, str]:
    return _text(edge.source) if edge.source else "NULL", _text(edge.target)


def _text(word: str) -> str:
    return f"'{word}'"
