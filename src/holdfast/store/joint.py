"""The rules of the row that has a job and its current attempt, and the views that show the two apart.

`joint_moves` of `core.machines` says which moves are legal. From it come the conditions of the triggers, and two views:
`holdfast_executions` shows every attempt as a row, and `holdfast_edges` every edge of the journal.

Invariants: while neither the state nor the status changes, only the lease's expiry, the progress and the first request
to cancel may change; owner and token change only at a claim, and the token only grows; a result is written once, at or
after the commit boundary.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core.machine import Path
from holdfast.core.machines import COMMITTED, EXEC_IDS, EXECUTION, JOB, REQUEST, ExecutionStatus, JobState, ValueState
from holdfast.core.pairing import DEPTH, joint_moves
from holdfast.core.records import Execution
from holdfast.core.vocabulary import BUILT_IN, OPERATIONS, RegistryStatus
from holdfast.store.enforcement import Refusal, Violation, birth_violations, granted_by_move, sql_text, sql_texts
from holdfast.store.statements import CURRENT_ATTEMPT
from holdfast.store.tables import GUARDED, PREFIX, REQUESTED

JOBS = next(guarded for guarded in GUARDED if guarded.machine is JOB)
# The numbers that only grow change with a move too.
_KEPT = (*JOBS.only_grow, *JOBS.kept)
_RELEASE = next(path for path in JOB.paths if path.governed)
_RUNNING = JobState.RUNNING
EXECUTIONS, EDGES = f"{PREFIX}executions", f"{PREFIX}edges"
DELTAS = f"{PREFIX}count_deltas"
FOLD_EVERY = 1_000  # the deltas that a trigger leaves unfolded at most, so that a read of the counts adds up few


class _Ends(NamedTuple):
    """Where a move of the row begins and ends, and how many edges of JOB it takes."""

    source: str
    target: str
    edges: int
    status_from: str | None
    status_to: str | None


def moved(old: str, new: str) -> str:
    """Return the condition that the job or its attempt has moved."""
    return f"({new}.state <> {old}.state OR {new}.status IS DISTINCT FROM {old}.status)"


def job_birth_violations(new: str, no_door: str) -> Iterator[Violation]:
    yield from birth_violations(JOBS, new, no_door)
    call = f"EXISTS (SELECT 1 FROM {{schema}}{PREFIX}calls c WHERE c.job_id = {new}.job_id)"
    yield Violation(Refusal.ILLEGAL_BIRTH, f"(NOT {call}) AND {no_door}")


def in_force(operation: str, version: str) -> str:
    """Return the FROM and WHERE of the value `v`, with its collection `s`, that lets new work use a version."""
    status = sql_text(RegistryStatus.IN_FORCE)
    return (
        f"FROM {{schema}}{PREFIX}values v JOIN {{schema}}{PREFIX}collections s ON s.collection = v.collection"
        f" WHERE v.operation_code = {operation} AND v.protocol_version = {version}"
        f" AND v.collection = {sql_text(OPERATIONS)} AND v.state = {sql_text(ValueState.ACTIVE)}"
        f" AND v.status = {status} AND s.status = {status}"
    )


def version_of(new: str) -> str:
    """Return the SQL of the version of its operation that a new job was submitted at."""
    return f"(SELECT k.operation_version FROM {{schema}}{PREFIX}calls k WHERE k.job_id = {new}.job_id)"


def governs(new: str) -> str:
    """Return the condition that the registry of a governed ledger decides about a new job."""
    return f"{new}.operation <> {sql_text(BUILT_IN)}"


def job_violations(old: str, new: str, no_door: str) -> Iterator[Violation]:
    """Yield the violations of an UPDATE of a job; the trigger of its write-once columns covers those."""
    changed = moved(old, new)
    shrinks = " OR ".join(f"{new}.{column} < {old}.{column}" for column in ("version", *JOBS.only_grow))
    yield Violation(Refusal.NOT_MONOTONE, f"({shrinks}) AND {no_door}")
    stale = (
        f"{new}.move_id = {old}.move_id OR {new}.updated_at < {old}.updated_at"
        f" OR ({new}.state <> {old}.state AND {new}.version <= {old}.version)"
    )
    yield Violation(Refusal.UNSIGNED, f"{changed} AND ({stale})")
    illegal = f"({changed} AND NOT ({_legal(old, new)})) OR (NOT {changed} AND {new}.version <> {old}.version)"
    yield Violation(Refusal.ILLEGAL_EDGE, f"({illegal}) AND {no_door}")
    released = f"{old}.state = {sql_text(_RELEASE.source or '')} AND {new}.state = {sql_text(_RELEASE.target)}"
    # A row keeps the grant_id of its last governed move; the same grant must not permit a second one.
    own = f"{granted_by_move(new)} AND {new}.grant_id IS DISTINCT FROM {old}.grant_id"
    yield Violation(Refusal.GRANT_REQUIRED, f"{released} AND NOT ({own})")
    emptied = f"EXISTS (SELECT 1 FROM {{schema}}{PREFIX}calls c WHERE c.job_id = {new}.job_id AND c.payload IS NULL)"
    yield Violation(Refusal.SLIMMED, f"{released} AND {emptied}")
    # If the cancellation of an attempt was requested and the attempt ends without a commit, its job is cancelled.
    kept_on = f"{old}.cancel_requested_at IS NOT NULL AND {ended(old, new)} AND {new}.event <> 'cancel'"
    yield Violation(Refusal.ILLEGAL_EDGE, f"{kept_on} AND {no_door}")
    yield Violation(Refusal.WRITE_ONCE, f"({_rewritten(old, new, changed)} OR {_requested(old, new)}) AND {no_door}")


def _legal(old: str, new: str) -> str:
    """Return the condition that a move is one of `joint_moves`; the two of a job that succeeds at once come first."""
    events: dict[_Ends, list[str]] = {}
    for move in joint_moves():
        job, execution = move.job, move.execution
        source, target, edges = (job.source, job.target, len(job.edges)) if job else (_RUNNING, _RUNNING, 0)
        status_from, status_to = (execution.source, execution.target) if execution else (None, None)
        events.setdefault(_Ends(source or "", target, edges, status_from, status_to), []).append(move.event)
    sources: dict[tuple[_Ends, tuple[str, ...]], list[str | None]] = {}
    for ends, names in events.items():
        sources.setdefault((ends._replace(status_from=None), tuple(names)), []).append(ends.status_from)
    done = (ExecutionStatus.IN_PROGRESS, ExecutionStatus.DONE)
    order = sorted(sources, key=lambda shape: (shape[0].status_to not in done, not shape[0].edges))
    return " OR ".join(f"({_taken(old, new, ends, names, sources[ends, names])})" for ends, names in order)


def _taken(old: str, new: str, ends: _Ends, events: tuple[str, ...], sources: list[str | None]) -> str:
    held = [status for status in sources if status is not None]
    aborted = ends.status_to == ExecutionStatus.ABORTED
    conditions = [
        f"{old}.state = {sql_text(ends.source)}",
        f"{new}.state = {sql_text(ends.target)}",
        f"{old}.status IN ({sql_texts(held)})" if held else f"{old}.status IS NULL",
        f"{new}.status IS NULL" if aborted or ends.status_to is None else f"{new}.status = {sql_text(ends.status_to)}",
        f"{new}.event IN ({sql_texts(events)})",
        f"{new}.version = {old}.version + {ends.edges}",
    ]
    if ends.target == _RUNNING and ends.edges:
        conditions += [f"{new}.attempts = {old}.attempts + 1", f"{new}.lease_token > coalesce({old}.lease_token, 0)"]
    else:
        conditions += [
            f"{new}.attempts = {old}.attempts",
            f"{new}.lease_token IS NOT DISTINCT FROM {old}.lease_token",
            f"{new}.lease_owner IS NOT DISTINCT FROM {old}.lease_owner",
        ]
    conditions.append(f"{new}.excused {f'<= {old}.excused + 1' if aborted else f'= {old}.excused'}")
    return " AND ".join(conditions)


def _rewritten(old: str, new: str, changed: str) -> str:
    """Return the condition that evidence changes: of a row that does not move, or a result that is not new."""
    at_rest = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in _KEPT)
    noted = (
        f"{new}.progress IS DISTINCT FROM {old}.progress OR {new}.progress_note IS DISTINCT FROM {old}.progress_note"
    )
    at_rest += f" OR ({old}.state <> {sql_text(JobState.RUNNING)} AND ({noted}))"
    committed = sql_texts(sorted(COMMITTED))
    early = f"{old}.result IS NOT NULL OR {new}.status IS NULL OR {new}.status NOT IN ({committed})"
    result = f"{new}.result IS DISTINCT FROM {old}.result AND ({early})"
    return f"(NOT {changed} AND ({at_rest})) OR ({changed} AND {result})"


def _requested(old: str, new: str) -> str:
    """Return the condition that a request to cancel changes, other than by being made, or dropped for a new attempt.

    A request is signed, and only an attempt that has not committed can get one. Lost leases are counted one by one,
    each at the end of an attempt. A deadline is set once, before the first move.
    """
    differs = " OR ".join(f"{new}.{column} IS DISTINCT FROM {old}.{column}" for column in REQUESTED)
    held = sql_texts([ExecutionStatus.LEASED, ExecutionStatus.IN_PROGRESS])
    made = f"{made_request(old, new)} AND {old}.status IN ({held}) AND {new}.status = {old}.status"
    gone = " AND ".join(f"{new}.{column} IS NULL" for column in REQUESTED)
    dropped = f"{gone} AND ({new}.state = 'pending' OR {new}.attempts > {old}.attempts)"
    counted = f"{new}.lost = coalesce({old}.lost, 0) + 1 AND {ended(old, new)}"
    lost = f"({new}.lost IS DISTINCT FROM {old}.lost AND ({counted}) IS NOT TRUE)"
    first = f"{old}.deadline_at IS NULL AND {new}.version = 1 AND {old}.version = 1"
    deadline = f"({new}.deadline_at IS DISTINCT FROM {old}.deadline_at AND NOT ({first}))"
    return f"(({differs}) AND (({made}) OR ({dropped})) IS NOT TRUE) OR {lost} OR {deadline}"


# ---------------------------------------------------------------------------------------------------------------------
# What the triggers write


def journal_values(old: str | None, new: str) -> dict[str, str]:
    """Return the SQL of the journal columns that say what moved; without `old` for a new job."""
    if old is None:
        return {
            "machine": "'JOB'", "subject": f"{new}.job_id", "version": f"{new}.version", "source": "NULL",
            "target": f"{new}.state", "status_from": "NULL", "status_to": "NULL", "grant_id": "NULL",
        }  # fmt: skip
    alone = f"{new}.state = {old}.state"
    started = sql_text(ExecutionStatus.IN_PROGRESS)
    after_start, after_commit = DEPTH[ExecutionStatus.IN_PROGRESS], DEPTH[ExecutionStatus.COMMITTED]
    released = f"{new}.event = {sql_text(_RELEASE.event)}"
    return {
        "machine": f"CASE WHEN {alone} THEN 'EXECUTION' ELSE 'JOB' END",
        "subject": f"CASE WHEN {alone} THEN {new}.job_id * {EXEC_IDS} + {new}.attempts ELSE {new}.job_id END",
        "version": (
            f"CASE WHEN {alone} THEN CASE {new}.status WHEN {started} THEN {after_start} ELSE {after_commit} END"
            f" ELSE {new}.version END"
        ),
        "source": f"CASE WHEN {alone} THEN {old}.status ELSE {old}.state END",
        "target": f"CASE WHEN {alone} THEN {new}.status ELSE {new}.state END",
        "status_from": f"CASE WHEN {alone} THEN NULL ELSE {old}.status END",
        "status_to": (
            f"CASE WHEN {alone} THEN NULL WHEN {new}.status IS NOT NULL THEN {new}.status"
            f" WHEN {old}.status IS NOT NULL THEN {sql_text(ExecutionStatus.ABORTED)} END"
        ),
        "grant_id": f"CASE WHEN {released} THEN {new}.grant_id END",
    }


REQUEST_COLUMNS = (
    "machine, subject, version, source, target, epoch, xid, event, actor, reason, attempt, move_id, maintenance_id, at"
)


def made_request(old: str, new: str) -> str:
    """Return the condition that the cancellation of an attempt has been requested."""
    signed = f"{new}.cancel_by IS NOT NULL AND {new}.cancel_move_id IS NOT NULL"
    return f"{old}.cancel_requested_at IS NULL AND {new}.cancel_requested_at IS NOT NULL AND {signed}"


def request_values(new: str, *, epoch: str, xid: str, door: str) -> str:
    """Return the SQL of the journal row of a request: its subject is the job, and its version the attempt."""
    [birth] = REQUEST.births()
    return (
        f"{sql_text(REQUEST.name)}, {new}.job_id, {new}.attempts, NULL, {sql_text(birth.target)}, {epoch}, {xid},\n"
        f"    {sql_text(birth.event)}, {new}.cancel_by, {new}.cancel_reason, {new}.attempts, {new}.cancel_move_id,\n"
        f"    {door},\n    {new}.cancel_requested_at"
    )


def just_requested(row: str, written_here: str | None = None) -> str:
    """Return the condition that a journal row is of the request that the row of its job has."""
    here = f" AND {written_here}" if written_here else ""
    return (
        f"EXISTS (SELECT 1 FROM {{schema}}{PREFIX}jobs r WHERE r.job_id = {row}.subject"
        f" AND r.attempts = {row}.version AND r.cancel_move_id = {row}.move_id{here})"
    )


ABORTED_COLUMNS = (
    "job_id, attempt, version, excused, lease_owner, lease_token, lease_expires_at,\n"
    "    created_at, started_at, finished_at, cancel_requested_at, progress, progress_note,\n"
    "    event, actor, reason, move_id, error_code, error_message"
)


def aborted_values(old: str, new: str, *, flag: str) -> str:
    """Return the SQL of the row of an attempt that ended without success; `flag` turns a condition into a value."""
    excused = f"{new}.excused > {old}.excused"
    depth = " ".join(f"WHEN {sql_text(status)} THEN {number + 1}" for status, number in DEPTH.items())
    return (
        f"{new}.job_id, {new}.attempts,\n    CASE {old}.status {depth} END,\n    {flag.format(excused)},\n"
        f"    {old}.lease_owner, {old}.lease_token, coalesce({old}.lease_expires_at, {old}.updated_at),\n"
        f"    {old}.last_attempt_at, {old}.started_at, {new}.updated_at, {old}.cancel_requested_at, {old}.progress,\n"
        f"    {old}.progress_note, {new}.event, {new}.actor, {new}.reason, {new}.move_id,\n"
        f"    {_error_code(old, new)},\n"
        f"    CASE WHEN {excused} THEN {new}.excuse_message ELSE {new}.last_error_message END"
    )


def _error_code(old: str, new: str) -> str:
    return f"CASE WHEN {new}.excused > {old}.excused THEN {new}.excuse_code ELSE {new}.last_error_code END"


def delta_code(old: str | None, new: str) -> str:
    """Return the SQL of the error code of a move: the one of the attempt that it ended without success, or NULL."""
    if old is None:
        return "NULL"
    return f"CASE\n      WHEN {ended(old, new)}\n      THEN {_error_code(old, new)}\n      END"


def ended(old: str, new: str) -> str:
    """Return the condition that an attempt has ended without success."""
    return f"{old}.status IS NOT NULL AND {new}.status IS NULL"


def just_ended(row: str, written_here: str | None = None) -> str:
    """Return the condition that a row of an ended attempt is of the latest move of its job; others are refused."""
    here = f" AND {written_here}" if written_here else ""
    return (
        f"EXISTS (SELECT 1 FROM {{schema}}{PREFIX}jobs r WHERE r.job_id = {row}.job_id AND r.attempts = {row}.attempt"
        f" AND r.status IS NULL AND r.move_id = {row}.move_id AND r.lease_token = {row}.lease_token"
        f" AND r.lease_owner = {row}.lease_owner{here})"
    )


def just_stepped(row: str, written_here: str | None = None) -> str:
    """Return the condition that a journal row is of the start or commit that the row of its job has."""
    here = f" AND {written_here}" if written_here else ""
    return (
        f"EXISTS (SELECT 1 FROM {{schema}}{PREFIX}jobs r WHERE r.job_id = {row}.subject / {EXEC_IDS}"
        f" AND r.attempts = {row}.subject % {EXEC_IDS} AND r.status = {row}.target AND r.move_id = {row}.move_id{here})"
    )


# ---------------------------------------------------------------------------------------------------------------------
# Views


def views() -> dict[str, str]:
    return {EXECUTIONS: _executions_view(), EDGES: _edges_view()}


def _executions_view() -> str:
    """Return the view of every attempt: the current one of each job, and those that ended without success."""
    signature = ("event", "actor", "reason", "move_id")
    names = (*Execution.__struct_fields__, *signature)
    current = ",\n  ".join(f"{CURRENT_ATTEMPT.get(name, f'j.{name}')} AS {name}" for name in names)
    own = {
        "exec_id": f"a.job_id * {EXEC_IDS} + a.attempt",
        "status": sql_text(ExecutionStatus.ABORTED),
        "updated_at": "a.finished_at",
    }
    aborted = ",\n  ".join(own.get(name, f"a.{name}") for name in names)
    return (
        f"SELECT {current}\nFROM {{schema}}{PREFIX}jobs j WHERE j.status IS NOT NULL\n"
        f"UNION ALL\nSELECT {aborted}\nFROM {{schema}}{PREFIX}aborted a"
    )


def _edges_view() -> str:
    """Return the view of every edge: `record` is the subject of the stored row, `step` orders the edges of one row."""
    same = "g.seq, g.subject AS record, g.epoch, g.xid"
    tail = "g.actor, g.reason, g.attempt, g.move_id, g.grant_id, g.maintenance_id, g.at"
    depth = " ".join(f"WHEN {sql_text(status)} THEN {number}" for status, number in DEPTH.items())
    unlisted = f"\n    CASE g.status_to {depth}\n    ELSE 1 +\n    CASE g.status_from {depth}\n    ELSE 0 END END"
    return (
        f"SELECT {same},\n"
        "  10 - coalesce(e.column3, 0) AS step,\n"
        "  'EXECUTION' AS machine,\n"
        f"  g.subject * {EXEC_IDS} + g.attempt AS subject,\n"
        f"  coalesce(e.column7, {unlisted}) AS version,\n"
        "  CASE WHEN e.column2 IS NULL THEN g.status_from ELSE nullif(e.column5, '') END AS source,\n"
        "  coalesce(e.column6, g.status_to) AS target,\n"
        "  coalesce(e.column4, g.event) AS event,\n"
        f"  {tail}\n"
        f"FROM {{schema}}{PREFIX}journal g LEFT JOIN (VALUES\n  {_rows(_execution_edges())}) e\n"
        "  ON e.column1 = coalesce(g.status_from, '') AND e.column2 = g.status_to\n"
        "WHERE g.status_to IS NOT NULL\n"
        "UNION ALL\n"
        f"SELECT {same},\n"
        "  20 - coalesce(e.column3, 0),\n"
        "  g.machine,\n"
        "  g.subject,\n"
        "  g.version - coalesce(e.column3, 0),\n"
        "  CASE WHEN e.column2 IS NULL THEN g.source ELSE e.column4 END,\n"
        "  coalesce(e.column5, g.target),\n"
        "  g.event,\n"
        f"  {tail}\n"
        f"FROM {{schema}}{PREFIX}journal g LEFT JOIN (VALUES\n  {_rows(_job_edges())}) e\n"
        # A repair goes where it must, in one edge; other moves under maintenance take the edges of their event.
        "  ON g.machine = 'JOB' AND g.event <> 'repair' AND e.column1 = g.source AND e.column2 = g.target"
    )


def _execution_edges() -> Iterator[tuple[str | int, ...]]:
    """Yield (from, to, edges that follow, event, source, target, version) for each edge of each path of EXECUTION."""
    for path in EXECUTION.paths:
        version = len(path.edges) if path.source is None else DEPTH[ExecutionStatus(path.source)] + len(path.edges)
        for back, edge in _backwards(path):
            yield path.source or "", path.target, back, path.event, edge[0] or "", edge[1], version - back


def _job_edges() -> Iterator[tuple[str | int, ...]]:
    """Yield (from, to, edges that follow, source, target) for each edge of the longer paths of JOB."""
    seen = set()
    for path in JOB.moves():
        if len(path.edges) > 1 and (path.source, path.target) not in seen:
            seen.add((path.source, path.target))
            for back, edge in _backwards(path):
                yield path.source or "", path.target, back, edge[0] or "", edge[1]


def _backwards(path: Path) -> Iterator[tuple[int, tuple[str | None, str]]]:
    for number, edge in enumerate(path.edges, start=1):
        yield len(path.edges) - number, (edge.source, edge.target)


def _rows(rows: Iterator[tuple[str | int, ...]]) -> str:
    literals = ([sql_text(value) if isinstance(value, str) else str(value) for value in row] for row in rows)
    return ",\n  ".join(f"({', '.join(row)})" for row in literals)
