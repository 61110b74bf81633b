"""The write-ahead log of Holdfast: keys that are used again, answers that get lost, crashes between any two steps.

One process at a time owns the log; `fleet.py` models several workers. A client may send a request for a key again at
any time, also with another payload. The process may crash between any two steps, also during recovery. Every move of an
entry is one that `core.decide` allows.

Invariants: the model counts *effects per key*, because the entries per key can be right although the work was done
twice. A `Flaw` is one wrong implementation; each breaks a named invariant or promise, so none of these holds trivially.
"""

from collections.abc import Iterator
from enum import StrEnum
from functools import partial
from typing import NamedTuple

from holdfast.core.commands import Claim, Complete, Expire, Fail
from holdfast.core.decide import Move
from holdfast.core.entries import ENTRY_STATUS, EntryStatus
from holdfast.core.machines import JobState
from holdfast.model.checker import Model, Promise
from holdfast.model.rules import Budget, Try, Work, at, judged, moved, submitted, tried, with_at

FAIR = frozenset({"apply", "claim", "complete", "expire", "fail", "mark", "recovered", "restart"})
NOW, LATER = 1, 2  # a lease expires at LATER while its process lives, and at NOW after it has crashed


class Flaw(StrEnum):
    """One wrong implementation."""

    KEY_NOT_LOOKED_UP = "append does not look for the key"
    CONFLICT_NOT_SEEN = "another payload under a used key is answered as if it were the first"
    ANSWER_BEFORE_WRITE = "append answers before the entry is durable"
    CLEANUP_DROPS_KEY = "cleanup removes the key with the entry"
    CLEANUP_TAKES_PENDING = "cleanup removes entries that have not ended"
    MARK_APART = "the effect is applied in one step and the entry marked in another"
    FAILURE_IS_FREE = "a failed attempt leaves the entry as it was"


class Mode(StrEnum):
    """What the process is doing."""

    UP = "up"
    DOWN = "down"
    RECOVERING = "recovering"


class Entry(NamedTuple):
    """One entry of the log: a job, and the attempt at it that is open."""

    key: int
    payload: int
    work: Work
    attempt: Try | None = None
    applied: bool = False  # the current process has seen its effect happen
    durable: bool = True

    @property
    def status(self) -> EntryStatus:
        """Return the status of the entry, from the state of its job."""
        return ENTRY_STATUS[self.work.state]


class State(NamedTuple):
    """The state of the model. Effects, answers and requests are by key."""

    entries: tuple[Entry, ...]
    effects: tuple[int, ...]
    answered: tuple[int | None, ...]  # the payload that was acknowledged to the client
    requests: tuple[int, ...]  # how many requests the client may still send
    mode: Mode

    @property
    def idle(self) -> bool:
        return not any(entry.status is EntryStatus.PENDING for entry in self.entries)


class Log(NamedTuple):
    """The size of the model and its flaw; with `keyed_target` the target of an effect knows its key."""

    keys: int = 2
    payloads: int = 2
    requests: int = 2
    max_attempts: int = 2
    poison: frozenset[int] = frozenset()  # keys whose work never succeeds
    keyed_target: bool = False
    flaw: Flaw | None = None

    def model(self) -> Model[State]:
        none: tuple[int | None, ...] = (None,) * self.keys
        invariants = {
            "one entry a key": lambda state: len({entry.key for entry in state.entries}) == len(state.entries),
            "one effect a key": lambda state: max(state.effects) <= 1,
            "completed has its effect": _completed_has_its_effect,
            "answered is recorded": _answered_is_recorded,
        }
        if not self.keyed_target:  # a failure cannot take back an effect in another system
            invariants["failed has no effect"] = _failed_has_no_effect
        return Model(
            initial=State((), (0,) * self.keys, none, (self.requests,) * self.keys, Mode.UP),
            steps=partial(_steps, self),
            invariants=invariants,
            promises={
                "EventualRecovery": Promise(
                    lambda state: state.mode is Mode.DOWN, lambda state: state.mode is Mode.UP and state.idle
                ),
                "EventualCompletion": Promise(lambda state: not state.idle, lambda state: state.idle),
                "ProgressUnderCrash": Promise(
                    lambda state: state.mode is Mode.DOWN, lambda state: state.mode is not Mode.DOWN
                ),
            },
            fair=FAIR,
            faults=frozenset({"crash"}),
        )

    @property
    def budget(self) -> Budget:
        """Return how often an entry is tried: a log has no replay, so an entry without attempts left ends Failed."""
        return Budget(self.max_attempts)

    @property
    def apart(self) -> bool:
        """Return whether an effect and the mark that it happened are two steps."""
        return self.keyed_target or self.flaw is Flaw.MARK_APART


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(log: Log, state: State) -> Iterator[tuple[str, State]]:
    if state.mode is Mode.DOWN:
        yield "restart", state._replace(mode=Mode.RECOVERING)
        return
    yield "crash", _crashed(state)
    if state.mode is Mode.UP:
        yield from _requested(log, state)
        yield from _cleaned(log, state)
    elif state.idle:
        yield "recovered", state._replace(mode=Mode.UP)
    for index, entry in enumerate(state.entries):
        if not entry.durable:
            yield "flush", _with(state, index, entry._replace(durable=True))
        yield from _worked_on(log, state, index)
        if state.mode is Mode.RECOVERING and entry.status is EntryStatus.PENDING:
            break  # oldest first: recovery starts the next entry after this one has ended


def _requested(log: Log, state: State) -> Iterator[tuple[str, State]]:
    """Let a client send a request for a key: the request or the answer may be lost."""
    for key, left in enumerate(state.requests):
        if not left:
            continue
        sent = state._replace(requests=with_at(state.requests, key, left - 1))
        yield "request lost", sent
        known = next((entry for entry in state.entries if entry.key == key), None)
        for payload in range(log.payloads):
            if known is None or log.flaw is Flaw.KEY_NOT_LOOKED_UP:
                durable = log.flaw is not Flaw.ANSWER_BEFORE_WRITE
                entry = Entry(key, payload, submitted(log.budget), durable=durable)
                after, action = sent._replace(entries=(*sent.entries, entry)), "append"
            elif known.payload == payload or log.flaw is Flaw.CONFLICT_NOT_SEEN:
                after, action = sent, "append again"
            else:
                yield "append refused", sent
                continue
            yield action, after._replace(answered=with_at(after.answered, key, payload))
            yield f"{action}, answer lost", after


def _cleaned(log: Log, state: State) -> Iterator[tuple[str, State]]:
    for index, entry in enumerate(state.entries):
        if entry.status is EntryStatus.PENDING and log.flaw is not Flaw.CLEANUP_TAKES_PENDING:
            continue
        if log.flaw in (Flaw.CLEANUP_DROPS_KEY, Flaw.CLEANUP_TAKES_PENDING):
            yield "cleanup", state._replace(entries=state.entries[:index] + state.entries[index + 1 :])
        elif not entry.work.slimmed:
            yield "cleanup", _with(state, index, entry._replace(work=entry.work._replace(slimmed=True)))


def _worked_on(log: Log, state: State, index: int) -> Iterator[tuple[str, State]]:
    """Take the steps of one entry's work: the current process does it, during recovery too."""
    entry = state.entries[index]
    if entry.attempt is None:
        yield from _move(log, state, index, "claim", Claim())
        return
    token = entry.attempt.token
    if entry.attempt.expires <= NOW:  # the process that held it has crashed
        yield from _move(log, state, index, "expire", Expire(at(NOW)))
        return
    may_succeed = entry.key not in log.poison
    if may_succeed and log.apart and not entry.applied:
        known = log.keyed_target and state.effects[entry.key] > 0
        effects = state.effects if known else with_at(state.effects, entry.key, state.effects[entry.key] + 1)
        yield "apply", _with(state._replace(effects=effects), index, entry._replace(applied=True))
    elif may_succeed:
        action = "mark" if log.apart else "complete"
        yield from _move(log, state, index, action, Complete(token))
    if entry.applied:
        return  # the process does not report a failure for an effect that it has seen
    if log.flaw is Flaw.FAILURE_IS_FREE:
        yield "fail", _with(state, index, entry._replace(work=Work(JobState.PENDING, 1), attempt=None))
    else:
        yield from _move(log, state, index, "fail", Fail(token, "failed", "failed", retry_at=at(NOW)))
        yield from _move(log, state, index, "give up", Fail(token, "failed", "failed", permanent=True))


def _move(log: Log, state: State, index: int, action: str, command: object) -> Iterator[tuple[str, State]]:
    """Write the move of one entry if `decide` allows it; a move past the commit boundary includes its effect."""
    entry = state.entries[index]
    answer = judged(entry.work, entry.attempt, log.budget, command, NOW)
    if not isinstance(answer, Move):
        return
    work = moved(answer, entry.work)
    attempt = tried(answer, entry.attempt, token=work.attempts, expires=LATER)
    running = work.state is JobState.RUNNING
    effects = state.effects
    if action == "complete":
        effects = with_at(effects, entry.key, effects[entry.key] + 1)
    after = entry._replace(work=work, attempt=attempt if running else None, applied=False)
    yield action, _with(state._replace(effects=effects), index, after)


def _crashed(state: State) -> State:
    """Lose what was only in memory: entries that were not written, effects that were seen, and the lease."""
    entries = tuple(
        entry._replace(applied=False, attempt=entry.attempt and entry.attempt._replace(expires=NOW))
        for entry in state.entries
        if entry.durable
    )
    return state._replace(entries=entries, mode=Mode.DOWN)


# ---------------------------------------------------------------------------------------------------------------------
# What must hold


def _completed_has_its_effect(state: State) -> bool:
    return all(state.effects[entry.key] >= 1 for entry in state.entries if entry.status is EntryStatus.COMPLETED)


def _failed_has_no_effect(state: State) -> bool:
    completed = {entry.key for entry in state.entries if entry.status is EntryStatus.COMPLETED}
    return all(
        state.effects[entry.key] == 0
        for entry in state.entries
        if entry.status is EntryStatus.FAILED and entry.key not in completed
    )


def _answered_is_recorded(state: State) -> bool:
    recorded = {entry.key: entry.payload for entry in reversed(state.entries)}
    return all(payload is None or recorded.get(key) == payload for key, payload in enumerate(state.answered))


def _with(state: State, index: int, entry: Entry) -> State:
    return state._replace(entries=with_at(state.entries, index, entry))
