"""The rules that both databases enforce, as SQL conditions derived from the transition table.

A `Guarded` of `store.tables` says which table has the records of a machine; `birth_violations` and `move_violations`
turn the machine into SQL conditions that are true for a forbidden write. Each dialect puts the same conditions into its
own triggers, which `store.generate` writes into files.

Invariants: the edges are literals in the conditions, not rows of a table that a client could change; for a permitted
row the conditions are evaluated once and nothing else runs; only conditions with `no_door` are suspended during
maintenance.
"""

from collections.abc import Iterable, Iterator
from enum import StrEnum

import msgspec

from holdfast.core.authority import Act
from holdfast.core.errors import invariant
from holdfast.core.machine import Machine, Path
from holdfast.core.machines import GRANT, GrantState, ProcedureState
from holdfast.store.tables import CALL, EVIDENCE, KEPT_SETTINGS, STRICTER, Guarded

ERASE = "erase"  # the action of a grant to erase the data of a job


class Refusal(StrEnum):
    """The codes of the refusals: the SQLSTATE on PostgreSQL, the first word of the message on SQLite."""

    ILLEGAL_EDGE = "HF001"
    ILLEGAL_BIRTH = "HF002"
    NEVER_DELETED = "HF003"
    APPEND_ONLY = "HF004"
    WRITTEN_BY_HAND = "HF005"
    WRITE_ONCE = "HF006"
    NOT_MONOTONE = "HF007"
    UNSIGNED = "HF008"
    GRANT_REQUIRED = "HF009"
    DOOR_LEFT_OPEN = "HF011"
    SLIMMED = "HF012"
    WRONG_ROLE = "HF014"
    NOT_IN_FORCE = "HF015"

    @property
    def meaning(self) -> str:
        """Return the reason of the refusal as a sentence."""
        return _MEANINGS[self]


_MEANINGS = {
    Refusal.ILLEGAL_EDGE: "the transition table does not allow this event between these states and versions",
    Refusal.ILLEGAL_BIRTH: "a new record must have an unused id and key, an initial state and its event",
    Refusal.NEVER_DELETED: "records cannot be deleted",
    Refusal.APPEND_ONLY: "history cannot be changed or deleted, only appended",
    Refusal.WRITTEN_BY_HAND: "only the triggers of the ledger may write the journal",
    Refusal.WRITE_ONCE: "this column cannot be changed",
    Refusal.NOT_MONOTONE: "this number cannot decrease",
    Refusal.UNSIGNED: "a change of state needs a new move_id, a higher version and a later updated_at",
    Refusal.GRANT_REQUIRED: "this change needs a grant that the same move has consumed",
    Refusal.DOOR_LEFT_OPEN: "the maintenance door must be shut before the transaction ends or opens it again",
    Refusal.SLIMMED: "retention has deleted the payload, so the record cannot change its state",
    Refusal.WRONG_ROLE: "an approval by a database role must name the role of its session",
    Refusal.NOT_IN_FORCE: "new work in a governed ledger needs a version of its operation that is in force",
}


NOTED = (
    "event", "actor", "reason", "move_id", "grant_id", "approved_by", "approved_via", "consumed_by", "last_error_code",
    "last_error_message", "excuse_code", "excuse_message", "quarantine_code", "replay_reason", "stop_state", "run_at",
    "result",
)  # fmt: skip
"""The columns whose change under maintenance is journalled if the record does not move, besides write-once columns."""
REWRITE, DELETE = "rewrite", "delete"
"""The events by which the journal notes a record that was rewritten or deleted under maintenance."""


class Violation(msgspec.Struct, frozen=True):
    """A refusal and the SQL condition that is true for a row to refuse."""

    refusal: Refusal
    condition: str


def birth_violations(guarded: Guarded, new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of an INSERT. `new` is the alias of the row; `no_door` is true outside of maintenance."""
    legal = " OR ".join(
        "("
        + " AND ".join(
            (
                f"{new}.{guarded.state} = {sql_text(path.target)}",
                f"{new}.event = {sql_text(path.event)}",
                f"{new}.version = {len(path.edges)}",
            )
        )
        + ")"
        for path in guarded.machine.births()
    )
    born = "".join(f" AND {new}.{column} = {value}" for column, value in guarded.born_with)
    born += "".join(f" AND {new}.{column} IS NULL" for column in guarded.born_without)
    yield Violation(Refusal.ILLEGAL_BIRTH, f"(NOT (({legal}){born})) AND {no_door}")
    governed = [path for path in guarded.machine.births() if path.governed]
    if governed:
        states = sql_texts(path.target for path in governed)
        condition = f"{new}.{guarded.state} IN ({states}) AND NOT {_granted(guarded, new, born=True)} AND {no_door}"
        yield Violation(Refusal.GRANT_REQUIRED, condition)


def move_violations(guarded: Guarded, old: str, new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of any UPDATE; `write_once_violation` covers the statements that name write-once columns."""
    yield Violation(Refusal.WRITE_ONCE, f"{new}.{guarded.id} <> {old}.{guarded.id} AND {no_door}")
    moved = f"{new}.{guarded.state} IS DISTINCT FROM {old}.{guarded.state}"
    shrinks = " OR ".join(f"{new}.{column} < {old}.{column}" for column in ("version", *guarded.only_grow))
    yield Violation(Refusal.NOT_MONOTONE, f"({shrinks}) AND {no_door}")
    stale = f"{new}.move_id = {old}.move_id OR {new}.updated_at < {old}.updated_at OR {new}.version <= {old}.version"
    yield Violation(Refusal.UNSIGNED, f"{moved} AND ({stale})")
    legal = " OR ".join(f"({_taken(guarded, path, old, new)})" for path in _by_ends(guarded.machine))
    still = f"{new}.{guarded.state} = {old}.{guarded.state} AND {new}.version <> {old}.version"
    yield Violation(Refusal.ILLEGAL_EDGE, f"(({moved} AND NOT ({legal})) OR ({still})) AND {no_door}")
    governed = [path for path in guarded.machine.moves() if path.governed]
    if governed:
        ends = " OR ".join(f"({_ends(guarded, path, old, new)})" for path in governed)
        # A row keeps the grant_id of its last governed move; the same grant must not permit a second one.
        own = f"{_granted(guarded, new, born=False)} AND {new}.grant_id IS DISTINCT FROM {old}.grant_id"
        if guarded.one_a_grant:
            # A record at version 1 has not moved yet, so its grant_id is not that of a move.
            used = f"r.grant_id = {new}.grant_id AND r.{guarded.id} <> {new}.{guarded.id} AND r.version > 1"
            own += f" AND NOT EXISTS (SELECT 1 FROM {{schema}}{guarded.table} r WHERE {used})"
        if guarded.put_back:
            name, there = sql_text(guarded.machine.name), f"j.target = {new}.{guarded.state} AND j.grant_id IS NOT NULL"
            recorded = f"j.subject = {new}.{guarded.id} AND j.machine = {name} AND {there}"
            own += f" OR (NOT {no_door} AND EXISTS (SELECT 1 FROM {{schema}}holdfast_journal j WHERE {recorded}))"
        yield Violation(Refusal.GRANT_REQUIRED, f"({ends}) AND NOT ({own})")
    if guarded.built_by_runs:
        # `status` is not part of the state machine: only a running build of the collection may change it.
        under_way = sql_texts([ProcedureState.RUNNING, ProcedureState.COMPENSATING])
        building = f"p.lease = 'registry:' || {new}.collection AND p.state IN ({under_way})"
        placed = f"{new}.status IS DISTINCT FROM {old}.status"
        run = f"EXISTS (SELECT 1 FROM {{schema}}holdfast_procedures p WHERE {building})"
        yield Violation(Refusal.GRANT_REQUIRED, f"{placed} AND NOT {run} AND {no_door}")
    yield Violation(Refusal.WRITE_ONCE, f"({_rewritten(guarded, old, new)}) AND {no_door}")


def _rewritten(guarded: Guarded, old: str, new: str) -> str:
    """Return the condition that evidence of the last move changes without a move, or a column by another event."""
    changed = [f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in guarded.kept]
    if "updated_at" not in guarded.kept:
        changed.append(f"{new}.updated_at < {old}.updated_at")
    others = [
        f"({new}.{column} IS DISTINCT FROM {old}.{column} AND {new}.event <> {sql_text(event)})"
        for column, event in guarded.only_at
    ]
    return " OR ".join((f"({new}.{guarded.state} = {old}.{guarded.state} AND ({' OR '.join(changed)}))", *others))


def rewritten(guarded: Guarded, old: str, new: str) -> str:
    """Return the condition that a record which does not move gets another last move, approval, error or code."""
    return f"{new}.{guarded.state} = {old}.{guarded.state} AND ({' OR '.join(_distinct(guarded, old, new).values())})"


def rewritten_note(guarded: Guarded, old: str, new: str) -> str:
    """Return the SQL of the note that says which columns of a record were rewritten under maintenance."""
    columns = _distinct(guarded, old, new).items()
    names = " || ".join(f"CASE WHEN {differs} THEN ' {column}' ELSE '' END" for column, differs in columns)
    return f"'{guarded.machine.name} ' || {new}.{guarded.id} || ':' || {names}"


def noted_columns(guarded: Guarded) -> list[str]:
    """Return the columns of a record whose change under maintenance is journalled. Retention moves `history_from`."""
    once = [column for column in guarded.write_once if column != "history_from"]
    return once + [column for column in guarded.kept if column in NOTED]


def call_rewritten(old: str, new: str) -> str:
    """Return the condition that a call changes. Retention drops payloads: that is not journalled."""
    other = " OR ".join(f"{new}.{name} IS DISTINCT FROM {old}.{name}" for name in CALL if name != "payload")
    return f"({other} OR ({new}.payload IS DISTINCT FROM {old}.payload AND {new}.payload IS NOT NULL))"


def _distinct(guarded: Guarded, old: str, new: str) -> dict[str, str]:
    changed = {column: f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in noted_columns(guarded)}
    if "result" in changed:  # retention drops results: that is not journalled
        changed["result"] = f"({new}.result IS NOT NULL AND {changed['result']})"
    return changed


def setting_violations(old: str, new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of an UPDATE of a setting that says which ledger this is or how it is governed."""
    yield Violation(Refusal.NOT_MONOTONE, f"{new}.name = {old}.name AND {_strictness(new)} < {_strictness(old)}")
    # A grant that was approved under the rules of the old environment would be used under those of the new one.
    raised = f"{old}.name = 'environment' AND {new}.value <> {old}.value"
    active = f"EXISTS (SELECT 1 FROM {{schema}}holdfast_grants g WHERE g.state = {sql_text(GrantState.ACTIVE)})"
    yield Violation(Refusal.WRITE_ONCE, f"{raised} AND {active}")
    renamed = f"{new}.name <> {old}.name AND ({_in(old, STRICTER)} OR {_in(new, STRICTER)})"
    kept = f"({_in(old, KEPT_SETTINGS)} OR {_in(new, KEPT_SETTINGS)})"
    changed = f"{new}.name <> {old}.name OR {new}.value <> {old}.value"
    yield Violation(Refusal.WRITE_ONCE, f"({renamed}) OR ({kept} AND ({changed}) AND {no_door})")


def setting_replaced(new: str, stored: str) -> str:
    """Return the condition that a setting that is inserted would be less strict than the stored one."""
    return f"{new}.name = {stored}.name AND {_strictness(new)} < {_strictness(stored)}"


def setting_deleted(old: str, no_door: str) -> Violation:
    """Return the violation of a DELETE of a setting; those that say how strict the ledger is are never deleted."""
    return Violation(Refusal.NEVER_DELETED, f"{_in(old, STRICTER)} OR ({_in(old, KEPT_SETTINGS)} AND {no_door})")


def _strictness(row: str) -> str:
    # In parentheses: PL/pgSQL ends the condition of an IF at the first THEN outside of any.
    ranks = " ".join(
        f"WHEN {sql_text(name)} THEN CASE {row}.value "
        + " ".join(f"WHEN {sql_text(value)} THEN {rank}" for rank, value in enumerate(values))
        + f" ELSE {len(values) - 1} END"  # an unknown value is as strict as the strictest
        for name, values in STRICTER.items()
    )
    return f"(CASE {row}.name {ranks} ELSE 0 END)"


def _in(row: str, names: Iterable[str]) -> str:
    return f"{row}.name IN ({sql_texts(names)})"


def approver_birth_violations(new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of an INSERT of an approver: a consumed grant must have registered this name."""
    later = f"{new}.revoked_at IS NOT NULL OR {new}.revoked_by IS NOT NULL"
    yield Violation(Refusal.ILLEGAL_BIRTH, f"({later}) AND {no_door}")
    yield Violation(Refusal.GRANT_REQUIRED, f"NOT {_registered(new)} AND {no_door}")


def approver_violations(old: str, new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of an UPDATE of an approver: legal are a revocation, and a new registration after one."""
    again = f"{old}.revoked_at IS NOT NULL AND {new}.revoked_at IS NULL"
    again += f" AND coalesce({new}.grant_id, 0) > coalesce({old}.grant_id, 0)"
    ended = f"{old}.revoked_at IS NULL AND {new}.revoked_at IS NOT NULL"
    facts = ("name", "public_key", "added_by", "reason", "grant_id", "added_at")
    other = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in facts)
    unlike = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in ("revoked_at", "revoked_by"))
    legal = f"({again} AND {new}.name = {old}.name) OR ({ended} AND NOT ({other})) OR NOT ({other} OR {unlike})"
    yield Violation(Refusal.WRITE_ONCE, f"NOT ({legal}) AND {no_door}")
    yield Violation(Refusal.GRANT_REQUIRED, f"{again} AND NOT {_registered(new)} AND {no_door}")
    revoked = _used(Act.DISMISS, new, f"g.grant_id > coalesce({old}.grant_id, 0)")
    yield Violation(Refusal.GRANT_REQUIRED, f"{ended} AND NOT {revoked} AND {no_door}")


def _registered(new: str) -> str:
    return _used(Act.APPROVER, new, f"g.grant_id = {new}.grant_id")


def _used(act: Act, new: str, which: str) -> str:
    """Return the condition that a grant for an act on an approver was consumed."""
    consumed = f"g.state = {sql_text(GrantState.CONSUMED)} AND g.action = {sql_text(act)}"
    return f"EXISTS (SELECT 1 FROM {{schema}}holdfast_grants g WHERE {which} AND {consumed} AND g.target = {new}.name)"


def write_once_violation(guarded: Guarded, old: str, new: str, no_door: str) -> Violation:
    """Return the violation of an UPDATE that changes a write-once column."""
    changed = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in guarded.write_once)
    return Violation(Refusal.WRITE_ONCE, f"({changed}) AND {no_door}")


def evidence_violation(old: str, new: str) -> Violation:
    """Return the violation of an UPDATE of evidence that does more than declare it void."""
    changed = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in EVIDENCE)
    return Violation(Refusal.APPEND_ONLY, f"{old}.voided_at IS NOT NULL OR {changed}")


def traceback_violation(new: str) -> Violation:
    """Return the violation of an INSERT of a traceback whose attempt does not exist."""
    made = f"r.job_id = {new}.job_id AND r.attempts >= {new}.attempt"
    return Violation(Refusal.ILLEGAL_BIRTH, f"NOT EXISTS (SELECT 1 FROM {{schema}}holdfast_jobs r WHERE {made})")


def erasure_violation(new: str, no_door: str) -> Violation:
    """Return the violation of an INSERT of an erasure: it needs the door, and a grant that the same move consumed."""
    erases = f"{granted_by_move(new)[:-1]} AND g.action = {sql_text(ERASE)})"
    return Violation(Refusal.GRANT_REQUIRED, f"{no_door} OR NOT {erases}")


def lease_violation(old: str, new: str) -> Violation:
    """Return the violation of an UPDATE of a named lease that would make an old token valid again."""
    taken = f"{new}.holder <> {old}.holder AND {new}.token = {old}.token"
    return Violation(Refusal.NOT_MONOTONE, f"{new}.name <> {old}.name OR {new}.token < {old}.token OR ({taken})")


def just_moved(guarded: Guarded, row: str, written_here: str | None = None) -> str:
    """Return the condition that a journal row is of the latest move of its record; others are refused."""
    here = f" AND {written_here}" if written_here else ""
    return (
        f"EXISTS (SELECT 1 FROM {{schema}}{guarded.table} r WHERE r.{guarded.id} = {row}.subject"
        f" AND r.move_id = {row}.move_id AND r.version = {row}.version AND {row}.version >= r.history_from{here})"
    )


def granted(guarded: Guarded, old: str | None, new: str) -> str:
    """Return the SQL of the grant that a journal row names: that of the record if the move was governed, else NULL."""
    if guarded.machine is GRANT:
        return f"{new}.{guarded.id}"
    ends = [
        _ends(guarded, path, old, new) if old and path.source else f"{new}.{guarded.state} = {sql_text(path.target)}"
        for path in guarded.machine.paths
        if path.governed and (path.source is None) == (old is None)
    ]
    return f"CASE WHEN {' OR '.join(ends)} THEN {new}.grant_id END" if ends else "NULL"


def sql_texts(words: Iterable[str]) -> str:
    return ", ".join(sql_text(word) for word in words)


def sql_text(word: str) -> str:
    invariant("'" not in word, f"the state or event {word!r} contains a quote")
    return f"'{word}'"


def _by_ends(machine: Machine) -> Iterable[Path]:
    """Return one move for each pair of a source and a target."""
    found: dict[tuple[str | None, str], Path] = {}
    for path in machine.moves():
        found.setdefault((path.source, path.target), path)
    return found.values()


def _ends(guarded: Guarded, path: Path, old: str, new: str) -> str:
    invariant(path.source, f"the path {path} has no source state")
    state = guarded.state
    return f"{old}.{state} = {sql_text(path.source or '')} AND {new}.{state} = {sql_text(path.target)}"


def _taken(guarded: Guarded, path: Path, old: str, new: str) -> str:
    same_ends = (p for p in guarded.machine.moves() if (p.source, p.target) == (path.source, path.target))
    events = sql_texts(p.event for p in same_ends)
    version = f"{new}.version = {old}.version + {len(path.edges)}"
    return f"{_ends(guarded, path, old, new)} AND {new}.event IN ({events}) AND {version}"


def granted_by_move(new: str) -> str:
    """Return the condition that the move of a record has consumed the grant that the record names."""
    return _consumed(new, f"g.move_id = {new}.move_id")


def _granted(guarded: Guarded, new: str, *, born: bool) -> str:
    # A governed move and the consumption of its grant have the same move_id.
    own = f"g.move_id = {new}.move_id"
    if born and guarded.built_by_runs:
        # A build consumes its grant at its start, and then admits many values under it while it is running.
        # These values are `staged`: they are not in force before the build has finished.
        running = (
            f"p.run_id = {new}.run_id AND p.grant_id = g.grant_id AND p.state = {sql_text(ProcedureState.RUNNING)}"
        )
        running += f" AND {new}.status = 'staged'"
        own = f"({own} OR EXISTS (SELECT 1 FROM {{schema}}holdfast_procedures p WHERE {running}))"
    return _consumed(new, own)


def _consumed(new: str, own: str) -> str:
    consumed = sql_text(GrantState.CONSUMED)
    return (
        f"EXISTS (SELECT 1 FROM {{schema}}holdfast_grants g "
        f"WHERE g.grant_id = {new}.grant_id AND g.state = {consumed} AND {own})"
    )
