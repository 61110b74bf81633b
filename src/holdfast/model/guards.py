"""Checks the guards of `core.decide` alone: each move is written at once, and the store compares nothing.

In `fleet.py` and `grants.py` the store compares the rows with the move, so a missing guard of `decide` can stay hidden
behind the store's refusal. Here the store refuses nothing, and every actor gives every command: a worker shows its
token for the job's latest execution, also for another worker's; a heartbeat comes after the end; an operator leaves out
the grant, the reason, the successor; retention empties jobs, and a budget is lowered. So each guard of `decide` has a
state in which only it refuses, and `KEEPS` names the invariant that breaks without it.

Invariants: no rule is repeated here: `decide` alone says what may happen. An invariant about a write is checked at that
write. A time is the time left of a lease, a delay or a grant, and now is always 0.
"""

from collections.abc import Callable, Iterator
from functools import partial
from typing import Any, NamedTuple

from holdfast.core import commands, governed
from holdfast.core.decide import REPLAY_REASONS, Answer, Move, decide, step_of
from holdfast.core.governed import RegistryValue, Switch
from holdfast.core.machine import Machine
from holdfast.core.machines import EXECUTION, GRANT, JOB, OPEN, SWITCH, VALUE, GrantState, JobState
from holdfast.model import rules
from holdfast.model.checker import Model
from holdfast.model.rules import Budget, Paper, Try, Work, at, grant_of, judged, moved, stamped, tried, with_at

NOW, LATER, LEASE = 0, 1, 2
PEOPLE = ("ann", "bob")

ONE_OPEN = "a job runs while an execution is open"
BUDGETED = "the attempts stay within the budget"
EMPTIED = "a job without its payload does not run again"
RECORDED_ONCE = "a job is recorded once"
DUE = "a job is claimed when it is due"
MANAGED = "a replay has a managed reason"
SIGNED = "a release names its operator and its reason"
GRANTED = "a release has a grant"
HELD = "a worker moves only the execution that it holds"
LOST = "a lost lease changes nothing"
LIVE = "a live lease is not taken"
OWN_BEAT = "a lease is extended only by its holder"
ENDED_BEAT = "an execution that has ended is not kept alive"
LATE_BEAT = "a lease that has expired is not extended"
AUTOMATIC = "a failure is retried within the automatic attempts"
SPENT = "a job without attempts left does not stay failed"
SELF = "a grant is approved by another person than requested it"
EXPIRED = "a grant is approved and used before it expires"
EARLY = "a grant is not expired before its time"
LIFTED = "a switch is lifted under a grant"
RETIRED = "a value is retired or superseded under a grant"
FOLLOWED = "a superseded value names its successor"

KEEPS = {
    ("_submit", "exists"): RECORDED_ONCE,
    ("_claim", "not_due"): DUE,
    ("_replay", "replay_reason_unknown"): MANAGED,
    ("_put_back", "wrong_state"): ONE_OPEN,
    ("_put_back", "attempts_exhausted"): BUDGETED,
    ("_take_out", "wrong_state"): ONE_OPEN,
    ("_release", "slimmed"): EMPTIED,
    ("_release", "operator_required"): SIGNED,
    ("_release", "grant_required"): GRANTED,
    ("not_held", "lease_lost"): HELD,
    ("not_held", "lease_expired"): LOST,
    ("_finish", "lease_lost"): HELD,
    ("_finish", "lease_live"): LIVE,
    ("_expire", "lease_live"): LIVE,
    ("_beat", "lease_lost"): OWN_BEAT,
    ("_beat", "wrong_state"): ENDED_BEAT,
    ("_beat", "lease_expired"): LATE_BEAT,
    ("_grant_event", "self_approval"): SELF,
    ("_grant_event", "grant_expired"): EXPIRED,
    ("_grant_event", "not_expired"): EARLY,
    ("_switch_event", "grant_required"): LIFTED,
    ("_value_event", "grant_required"): RETIRED,
    ("_value_event", "successor_required"): FOLLOWED,
}
"""The invariant that breaks without a guard of `decide`, by the guard's function and the code that it refuses with."""


# ---------------------------------------------------------------------------------------------------------------------
# A job, its workers, a reaper, an operator


class JobRows(NamedTuple):
    """A job with its executions and its budget, the token that each worker shows, and what the last write broke."""

    work: Work
    tries: tuple[Try, ...]
    budget: Budget
    tokens: tuple[int, ...]  # by worker; 0 for a worker that holds nothing
    released: int
    slips: tuple[str, ...]

    @property
    def latest(self) -> Try | None:
        return self.tries[-1] if self.tries else None


class Written(NamedTuple):
    """A write: the verb and its command, the token that was shown, the move, and the rows before it."""

    verb: str
    command: Any
    token: int
    move: Move
    before: JobRows
    attempt: Try | None

    @property
    def led_to(self) -> str | None:
        """Return the state that the write brings the job to."""
        step = self.move.step(JOB)
        return step.target if step else None


WORK = frozenset({"start", "commit", "complete", "fail", "give up", "give back"})
REAP = frozenset({"recover", "expire"})
ENDS = frozenset({"fail", "expire"})

_SLIPS: dict[str, Callable[[Written], bool]] = {
    RECORDED_ONCE: lambda written: written.verb == "submit",
    DUE: lambda written: written.verb in ("begin", "lease") and written.before.work.due > NOW,
    MANAGED: lambda written: written.verb == "replay" and written.command.replay_reason not in REPLAY_REASONS,
    SIGNED: lambda written: (
        written.verb == "release" and not (written.command.operator.strip() and written.command.reason.strip())
    ),
    GRANTED: lambda written: written.verb == "release" and written.command.grant_id is None,
    HELD: lambda written: (
        written.verb in WORK | {"finish"} and written.attempt is not None and written.token != written.attempt.token
    ),
    # Past the commit boundary a worker may finish however late it is, so `finish` is not among them.
    LOST: lambda written: written.verb in WORK and written.attempt is not None and written.attempt.expires <= NOW,
    LIVE: lambda written: written.verb in REAP and written.attempt is not None and written.attempt.expires > NOW,
    OWN_BEAT: lambda written: (
        written.verb == "beat" and written.attempt is not None and written.token != written.attempt.token
    ),
    ENDED_BEAT: lambda written: (
        written.verb == "beat" and written.attempt is not None and written.attempt.status in EXECUTION.final
    ),
    LATE_BEAT: lambda written: (
        written.verb == "beat" and written.attempt is not None and written.attempt.expires <= NOW
    ),
    AUTOMATIC: lambda written: (
        written.verb in ENDS
        and written.led_to == JobState.PENDING
        and written.before.work.spent >= written.before.budget.max_attempts
    ),
    SPENT: lambda written: (
        written.verb in ENDS
        and written.led_to == JobState.FAILED
        and written.before.work.spent >= sum(written.before.budget)
    ),
}


class JobGuards(NamedTuple):
    """The size of the model of a job."""

    workers: int = 2
    max_attempts: int = 1
    replay_attempts: int = 1
    excused: int = 1
    releases: int = 1

    def model(self) -> Model[JobRows]:
        budget = Budget(self.max_attempts, self.replay_attempts)
        return Model(
            initial=JobRows(rules.submitted(budget), (), budget, (0,) * self.workers, 0, ()),
            steps=partial(_job_steps, self),
            invariants={
                ONE_OPEN: lambda state: (
                    (state.work.state is JobState.RUNNING) == any(attempt.status in OPEN for attempt in state.tries)
                ),
                # Only a release gives a job more than its budget: one attempt each.
                BUDGETED: lambda state: state.work.spent <= sum(state.budget) + state.released,
                EMPTIED: lambda state: not state.work.slimmed or state.work.state in JOB.final,
                **{name: partial(_unslipped, name) for name in _SLIPS},
            },
        )


def _job_steps(model: JobGuards, state: JobRows) -> Iterator[tuple[str, JobRows]]:
    for worker, token in enumerate(state.tokens):
        yield from _worked(model, state, worker, token)
    if state.latest is not None:
        yield from _written(state, "recover", commands.Finish(), state.latest)
        yield from _written(state, "expire", commands.Expire(at(LATER)), state.latest)
    for verb, command in _RULINGS:
        if verb != "release" or state.released < model.releases:
            yield from _written(state, verb, command, None)
    if state.work.state in JOB.final and not state.work.slimmed:
        yield "empty", state._replace(work=state.work._replace(slimmed=True))
    lowered = state.budget._replace(replay_attempts=0)
    if state.work.state is JobState.FAILED and lowered != state.budget and state.work.spent <= sum(lowered):
        yield "lower the budget", state._replace(budget=lowered)
    older = tuple(attempt._replace(expires=max(attempt.expires - 1, NOW)) for attempt in state.tries)
    after = state._replace(work=state.work._replace(due=max(state.work.due - 1, NOW)), tries=older)
    if after != state:
        yield "tick", after


_RULINGS: tuple[tuple[str, object], ...] = (
    ("submit", commands.Submit()),
    ("quarantine", commands.Quarantine("bad")),
    ("cancel", commands.Cancel()),
    ("retry", commands.Retry(at(LATER))),
    ("replay", commands.Replay("incident")),
    ("replay", commands.Replay("because")),
    ("release", governed.Release("ann", "repaired", grant_id=1)),
    ("release", governed.Release(" ", "repaired", grant_id=1)),
    ("release", governed.Release("ann", "", grant_id=1)),
    ("release", governed.Release("ann", "repaired", grant_id=None)),
)


def _worked(model: JobGuards, state: JobRows, worker: int, token: int) -> Iterator[tuple[str, JobRows]]:
    """Yield what a worker can do; one that holds a token shows it for the job's latest execution."""
    if not token:
        for verb in ("begin", "lease"):
            for action, after in _written(state, verb, commands.Claim(begin=verb == "begin"), None):
                yield action, after._replace(tokens=_in_order(with_at(after.tokens, worker, len(after.tries))))
        return
    by_verb: dict[str, object] = {
        "start": commands.Start(token),
        "commit": commands.Commit(token),
        "finish": commands.Finish(token),
        "complete": commands.Complete(token),
        "fail": commands.Fail(token, "failed", "failed", retry_at=at(LATER)),
        "give up": commands.Fail(token, "failed", "failed", permanent=True),
        "beat": commands.Beat(token),
    }
    if state.work.excused < model.excused:
        by_verb["give back"] = commands.GiveBack(token, at(NOW))
    for verb, command in by_verb.items():
        yield from _written(state, verb, command, state.latest, token)
    # The heartbeat is a separate thread, so a worker shows its token after the end too, until this step.
    yield "let go", state._replace(tokens=_in_order(with_at(state.tokens, worker, 0)))


def _written(
    state: JobRows, verb: str, command: object, attempt: Try | None, token: int = 0
) -> Iterator[tuple[str, JobRows]]:
    """Call `decide` with a command and the rows as they are, and write its move."""
    move = judged(state.work, attempt, state.budget, command, NOW)
    if not isinstance(move, Move) or not (move.steps or verb == "beat"):
        return
    written = Written(verb, command, token, move, state, attempt)
    work = moved(move, state.work)
    execution = tried(move, attempt, token=len(state.tries) + 1, expires=LEASE)
    if verb == "beat" and execution is not None:
        execution = execution._replace(expires=LEASE)
    after = state._replace(
        work=work,
        tries=state.tries if execution is None else (*state.tries[: execution.token - 1], execution),
        released=state.released + (verb == "release"),
        slips=tuple(name for name, slipped in _SLIPS.items() if slipped(written)),
    )
    if after != state:
        yield verb, after


def _unslipped(name: str, state: Any) -> bool:
    return name not in state.slips


def _in_order(tokens: tuple[int, ...]) -> tuple[int, ...]:
    """Sort the workers: states that differ only in the order of workers are one state."""
    return tuple(sorted(tokens))


# ---------------------------------------------------------------------------------------------------------------------
# Grants, a switch, a value


class Record(NamedTuple):
    """The fields of a switch or a value that a rule reads."""

    state: str
    version: int


class GovernedRows(NamedTuple):
    """A grant, if one was requested, a switch, a value, and what the last write broke."""

    grant: Paper | None
    switch: Record | None
    value: Record
    grants: int  # how many more may be requested
    slips: tuple[str, ...]


class GovernedGuards(NamedTuple):
    """The size of the model of governed records."""

    grants: int = 2
    lasts: int = 1

    def model(self) -> Model[GovernedRows]:
        names = (SELF, EXPIRED, EARLY, LIFTED, RETIRED, FOLLOWED)
        birth = VALUE.path("admit", None)
        return Model(
            initial=GovernedRows(None, None, Record(birth.target, len(birth.edges)), self.grants, ()),
            steps=partial(_governed_steps, self),
            invariants={name: partial(_unslipped, name) for name in names},
        )


def _governed_steps(model: GovernedGuards, state: GovernedRows) -> Iterator[tuple[str, GovernedRows]]:
    grant = state.grant
    if state.grants and (grant is None or grant.state in GRANT.final):
        birth = GRANT.path("request", None)
        for person in PEOPLE:
            paper = Paper(GrantState(birth.target), len(birth.edges), 0, person, None, model.lasts)
            yield "request", state._replace(grant=paper, grants=state.grants - 1)
    if grant is not None:
        yield from _decided_on(state, grant)
        if grant.expires:
            yield "tick", state._replace(grant=grant._replace(expires=grant.expires - 1))
    if state.switch is None:
        birth = SWITCH.path("throw", None)
        yield "throw", state._replace(switch=Record(birth.target, len(birth.edges)))
    for used, after in ((None, state), *((1, used) for used in _used(state))):
        yield from _governed(after, used)


def _decided_on(state: GovernedRows, grant: Paper) -> Iterator[tuple[str, GovernedRows]]:
    """Yield the decisions of people about a grant."""
    commands = [governed.GrantEvent("approve", person) for person in PEOPLE]
    for command in (*commands, governed.GrantEvent("revoke", PEOPLE[0]), governed.GrantEvent("expire", "keeper")):
        move = decide(grant_of(grant), command, at(NOW))
        if isinstance(move, Move):
            slips = []
            if command.event == "approve":
                slips += [SELF] * (command.actor == grant.requested_by) + [EXPIRED] * (grant.expires <= NOW)
            if command.event == "expire":
                slips += [EARLY] * (grant.expires > NOW)
            yield command.event, state._replace(grant=stamped(move, grant, command.actor), slips=tuple(slips))


def _used(state: GovernedRows) -> Iterator[GovernedRows]:
    """Yield the state after the grant is consumed, if `decide` allows it; the act is in the same write."""
    if state.grant is not None:
        move = decide(grant_of(state.grant), governed.GrantEvent("consume", "runner"), at(NOW))
        if isinstance(move, Move):
            slips = (EXPIRED,) if state.grant.expires <= NOW else ()
            yield state._replace(grant=stamped(move, state.grant, "runner"), slips=slips)


def _governed(state: GovernedRows, grant_id: int | None) -> Iterator[tuple[str, GovernedRows]]:
    """Yield what an operator can do under a grant that the same write consumes, or without a grant."""
    if state.switch is not None:
        switch = rules.record_of(Switch, switch_id=1, name="replay", state=state.switch.state, version=1)
        for after in _after(SWITCH, state.switch, decide(switch, governed.SwitchEvent("lift", grant_id), at(NOW))):
            yield "lift", state._replace(switch=after, slips=(*state.slips, *[LIFTED] * (grant_id is None)))
    value = rules.record_of(RegistryValue, value_id=1, state=state.value.state, version=1)
    for event in ("retire", "supersede"):
        for successor in (None, ("code", "2.0.0")):
            answer = decide(value, governed.ValueEvent(event, grant_id, successor), at(NOW))
            slips = [RETIRED] * (grant_id is None) + [FOLLOWED] * (event == "supersede" and successor is None)
            for after in _after(VALUE, state.value, answer):
                yield event, state._replace(value=after, slips=(*state.slips, *slips))


def _after(machine: Machine, before: Record, answer: Answer) -> Iterator[Record]:
    """Yield a record after a move; nothing if it was refused."""
    if isinstance(answer, Move):
        step = step_of(answer, machine.name)
        yield Record(step.target, before.version + step.edges)
