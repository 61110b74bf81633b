"""Pages that confirm an act on what spans jobs: queues, switches, schedules, stalled work and replays.

Invariants: as in `confirm.py`.
"""

from __future__ import annotations

import shlex

import msgspec

from holdfast.console.views.confirm import REASON, Confirmation, Field, confirm_governed, request_grant
from holdfast.console.views.links import path
from holdfast.console.views.replays import ReplayLook
from holdfast.console.views.words import number
from holdfast.core.authority import Act
from holdfast.core.environments import DEV, PROD
from holdfast.core.machines import GrantState, JobState
from holdfast.core.selection import ReplayReason
from holdfast.core.spans import counted
from holdfast.explain.values import by_state
from holdfast.governance.approval import environment_of
from holdfast.governance.switches import PAUSE_TARGET, TARGET, operation_of
from holdfast.store.transaction import Reading


def confirm_queue(reading: Reading, queue: str, act: str) -> Confirmation:
    page = path("/queues", queue)
    pending = by_state(reading.counts.current(), queue=queue)[JobState.PENDING]
    if act == "pause":
        return Confirmation(
            title=f"Pause queue {queue}",
            subject=f"Queue {queue}",
            says="None of its jobs starts until it is resumed. Running jobs continue.",
            facts=(f"{counted(pending, 'job is', 'jobs are')} pending in it.",),
            action=f"{page}/pause",
            back=page,
            button="Pause the queue",
            tone="bad",
            command=f"holdfast pause --queue {shlex.quote(queue)} --reason TEXT",
        )
    made = Confirmation(
        title=f"Resume queue {queue}",
        subject=f"Queue {queue}",
        says=f"Its {counted(pending, 'pending job starts', 'pending jobs start')} as workers are free.",
        action=f"{page}/resume",
        back=page,
        button="Resume the queue",
        command=f"holdfast resume --queue {shlex.quote(queue)} --reason TEXT",
    )
    return confirm_governed(reading, Act.LIFT, PAUSE_TARGET + queue, made)


def confirm_switch(reading: Reading, name: str, act: str) -> Confirmation:
    page = path("/switches", name)
    stops = operation_of(name)
    held = by_state(reading.counts.current(), operation=stops)[JobState.PENDING]
    dev = environment_of(reading) == DEV
    if act == "throw":
        what = f"No job of {stops} starts" if stops else "What it names stops"
        return Confirmation(
            title=f"Switch off {stops}" if stops else f"Throw {name}",
            subject=f"Switch {name}",
            says=f"{what} until it is lifted{'' if dev else ', which takes a grant'}. Running jobs continue.",
            facts=(f"{counted(held, 'job is', 'jobs are')} pending now.",) if stops else (),
            action=f"{page}/throw",
            back="/switches",
            button="Throw the switch",
            tone="bad",
            command=f"holdfast switch throw {shlex.quote(name)} --reason TEXT",
        )
    made = Confirmation(
        title=f"Let {stops} run again" if stops else f"Lift {name}",
        subject=f"Switch {name}",
        says=f"{counted(held, 'pending job', 'pending jobs')} may start at once." if stops else "It no longer stops.",
        action=f"{page}/lift",
        back="/switches",
        button="Lift the switch",
        command=f"holdfast switch lift {shlex.quote(name)} --reason TEXT",
    )
    return confirm_governed(reading, Act.LIFT, TARGET + name, made)


_SCHEDULE = {
    "pause": ("Pause", "Its ticks do not fire, and are not made up for later.", "bad"),
    "resume": ("Resume", "It fires again from its next tick on.", "go"),
    "trigger": ("Run", "Its job is submitted now, beside its ticks.", "go"),
}


def confirm_schedule(name: str, act: str) -> Confirmation:
    word, says, tone = _SCHEDULE[act]
    return Confirmation(
        title=f"{word} schedule {name}",
        subject=f"Schedule {name}",
        says=says,
        action=path("/schedules", name, act),
        back="/schedules",
        button=f"{word} the schedule",
        tone=tone,
        command=f"holdfast schedules {act} {shlex.quote(name)}" + ("" if act == "trigger" else " --reason TEXT"),
    )


def confirm_recovery(expired: int) -> Confirmation:
    if not expired:
        return Confirmation(
            title="Recover stalled jobs",
            subject="0 expired leases",
            says="There is nothing to recover: no lease has expired.",
            facts=("A running worker recovers jobs by itself.",),
            action="/recover",
            back="/workers",
            button="",
            fields=(),
            command="holdfast stalled",
        )
    return Confirmation(
        title="Recover stalled jobs",
        subject=counted(expired, "expired lease"),
        says="A committed attempt is finished. Any other job becomes pending again if it has attempts left.",
        facts=("Only expired leases are taken, never a long run. A running worker does this by itself.",),
        action="/recover",
        back="/workers",
        button="Recover",
        command="holdfast recover",
    )


# ---------------------------------------------------------------------------------------------------------------------
# Replays


def confirm_run(look: ReplayLook) -> Confirmation:
    """Return the confirmation of a replay: in prod the number of jobs is typed."""
    run, draft = look.run, look.draft
    typed = run.environment == PROD
    hidden = [(name, value) for name, value in draft.given]
    hidden += [("candidates_hash", run.candidates_hash)]
    hidden += [] if typed else [("total", str(run.total))]
    if look.grant is not None and look.grant.state is GrantState.ACTIVE:
        hidden += [("grant_id", str(look.grant.grant_id))]
    count = Field(name="total", label=f"Type {run.total} to begin", help="The number of jobs that will run again.")
    reasons = tuple(str(one) for one in ReplayReason if not (typed and one is ReplayReason.TEST))
    return Confirmation(
        title=f"Run {counted(run.total, 'job')} again",
        subject=f"Replay of {counted(run.total, 'failed job')}",
        says=f"{number(run.total)} failed jobs become pending, in {counted(run.batches, 'batch', 'batches')}"
        f" of at most {number(run.batch_size)}.",
        facts=("Their effects still take place once each. It can be stopped between batches.",),
        action="/replays/new",
        back=draft.address("look"),
        button=f"Run {counted(run.total, 'job')}",
        governed=run.grant_needed,
        hidden=tuple(hidden),
        fields=(
            *((count,) if typed else ()),
            Field(name="replay_reason", label="Kind of reason", kind="select", options=reasons, value="incident"),
            REASON,
        ),
        command="holdfast replay run --dry-run-file FILE --reason TEXT",
    )


def confirm_replay_grant(look: ReplayLook) -> Confirmation:
    needed = look.wanted
    words = f"replay of {counted(look.run.total, 'failed job')}"
    back = look.draft.address("look")
    made = request_grant(str(needed.act), needed.target, back=back, plan=needed.plan or "", words=words)
    return msgspec.structs.replace(made, hidden=(*made.hidden, *look.draft.given))


def confirm_replay(run_id: str, act: str) -> Confirmation:
    page = path("/replays", run_id)
    if act == "stop":
        return Confirmation(
            title=f"Stop {run_id}",
            subject=f"Replay {run_id}",
            says="It ends before its next batch. What ran stays done; it can be continued.",
            action=f"{page}/stop",
            back=page,
            button="Stop the replay",
            tone="bad",
        )
    return Confirmation(
        title=f"Continue {run_id}",
        subject=f"Replay {run_id}",
        says="It continues after its last batch, on its first terms.",
        action=f"{page}/continue",
        back=page,
        button="Continue the replay",
        command=f"holdfast replay run --continue {shlex.quote(run_id)} --reason TEXT --confirm",
    )
