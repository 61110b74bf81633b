"""What needs attention: findings with their cause and a link to the next step.

Invariants: everything is read from the reading of the overview; a finding goes away when what it names is put right.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterator, Sequence
from datetime import datetime, timedelta
from enum import IntEnum

import msgspec

from holdfast.console.views.activity import RATE_MINUTES, RETRY_MINUTES, Activity, Alike
from holdfast.console.views.failures import Group
from holdfast.console.views.grants import use_of
from holdfast.console.views.jobs import JobQuery
from holdfast.console.views.links import job_list, path, replay_draft
from holdfast.console.views.next_steps import NextStep
from holdfast.console.views.queues import Fleet, QueueRow, QueueStatus
from holdfast.console.views.words import clock, number
from holdfast.core.authority import scope_of
from holdfast.core.governed import Grant, ProcedureRun
from holdfast.core.machines import GrantState, JobState
from holdfast.core.records import LOSSES_EXCUSED, time_from
from holdfast.core.spans import age, counted, span
from holdfast.engine.worker.processes import PROCESS_DIED
from holdfast.governance.granted import granted
from holdfast.governance.switches import OPERATION
from holdfast.scheduling.schedules import active
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import HeldAttempt, JobLine, attempts_held

STILL = timedelta(minutes=10)  # a group that failed within this time still fails
RETRIED_MANY = 30  # attempts of one operation that failed alike and are retried, within RETRY_MINUTES
MANY = 10  # failed jobs of one group in the last hour that need attention
ALIKE_SHOWN = 5  # operations and codes of quarantined jobs
RETRIED = (JobState.PENDING, JobState.RUNNING)  # where a job is that is retried
SAMPLE_MAX = 160  # characters of an error message
SEAL_LATE = timedelta(minutes=5)
TICK_LATE = timedelta(minutes=2)
GRANTS_SHOWN = 3
SUSPECTS_READ = 200  # newest jobs of an operation and state, among which a job that kills its process is looked for
HANGS = timedelta(minutes=5)  # an attempt of a queue that does nothing hangs if it is older
LATE_S = 60.0  # a due job that has waited for longer while all slots are taken needs attention


class Weight(IntEnum):
    """How decisive a finding is."""

    STOPPED = 0  # work does not go on
    FAILING = 1
    HELD = 2  # a person stopped it
    DECISION = 3  # a person has to decide
    SLOW = 4


class Need(msgspec.Struct, frozen=True, kw_only=True):
    """Something that needs attention: what, the cause, and where to go."""

    weight: Weight
    code: str
    title: str
    text: str
    detail: str = ""
    mono: str = ""
    links: tuple[NextStep, ...] = ()

    @property
    def tone(self) -> str:
        """Return the colour: failed for what does not work, attention for what waits for a person."""
        return "failed" if self.weight <= Weight.FAILING else "attention"


def needs_of(
    reading: Reading, fleet: Fleet, queues: Sequence[QueueRow], groups: Sequence[Group], activity: Activity
) -> Iterator[Need]:
    """Yield what the jobs, workers, queues, switches, schedules and seals of a ledger need, in any order."""
    yield from _of_queues(reading, queues, fleet)
    yield from _of_leases(reading.lists.lost_by_owner(fleet.now), fleet)
    yield from _of_gone(reading, fleet)
    yield from _of_groups(groups, fleet.now)
    yield from _of_killers(reading, activity.process_lost(), fleet.now)
    yield from _of_taken_out(reading, activity.taken_out(), fleet)
    yield from _of_retries(activity.retries(), fleet)
    yield from _of_switches(fleet)
    yield from _of_schedules(reading, fleet.now)
    yield from _of_seals(reading, fleet.now)


def needs_of_people(
    reading: Reading, grants: Sequence[Grant], stopped: Sequence[ProcedureRun], now: datetime
) -> Iterator[Need]:
    """Yield what waits for a person: grants to approve, approved grants to use, and replays to continue."""
    yield from _of_drafts(reading, [grant for grant in grants if grant.state is GrantState.DRAFT], now)
    yield from _of_approved(reading, [grant for grant in grants if grant.state is GrantState.ACTIVE], now)
    yield from _of_stopped(stopped)


def _of_queues(reading: Reading, queues: Sequence[QueueRow], fleet: Fleet) -> Iterator[Need]:
    for row in queues:
        due = number(row.due) + (" or more" if row.due_more else "")
        waited = "" if row.oldest_s is None else f" The oldest has waited for {span(row.oldest_s)}."
        if row.status is QueueStatus.NO_WORKER:
            last = max((w.seen_at for w in fleet.workers if row.name in w.queues), default=None)
            seen = (
                f"A worker of this queue was last seen at {clock(last, fleet.now)} ({age(last, fleet.now)})."
                if last
                else "No worker has ever served this queue."
            )
            yield Need(
                weight=Weight.STOPPED,
                code="no_worker",
                title=f"{row.name} has no running worker.",
                text=f"{due} {'job is' if row.due == 1 else 'jobs are'} due.{waited}",
                detail=f"{seen} Nothing is lost: the jobs wait. Start one:",
                mono=f"holdfast worker MODULE:LEDGER --queue {shlex.quote(row.name)}",
                links=(
                    NextStep("Workers", path("/workers", queue=row.name)),
                    NextStep("Queue", path("/queues", row.name)),
                ),
            )
        elif row.status is QueueStatus.STALLED:
            yield _stalled(row, fleet, f"{due} {'job is' if row.due == 1 else 'jobs are'} due.{waited}")
        elif row.status is QueueStatus.PAUSED and row.pause is not None:
            yield Need(
                weight=Weight.HELD,
                code="queue_paused",
                title=f"Queue {row.name} is paused",
                text=f"by {row.pause.by}, {age(row.pause.at, fleet.now)}: “{row.pause.reason}”",
                detail=f"{counted(row.counts[JobState.PENDING], 'job waits', 'jobs wait')} in it."
                " Running jobs continue.",
                links=(NextStep("Resume…", path("/queues", row.name, "resume"), governed=True),),
            )
        elif row.status is QueueStatus.FULL and row.oldest_s is not None and row.oldest_s > LATE_S:
            held = [one for one in attempts_held(reading) if one.queue == row.name]
            longest = min(held, key=lambda one: one.began_at, default=None)
            if longest is not None and not row.rate and fleet.now - longest.began_at > HANGS:
                yield _hanging(row, longest, fleet.now)
                continue
            yield Need(
                weight=Weight.SLOW,
                code="falls_behind",
                title=f"{row.name} falls behind.",
                text=f"All {row.slots} slots are taken and {due} jobs are due.{waited}",
                detail=f"It does {row.rate:.0f} jobs a minute. More workers or slots would help."
                if row.rate
                else f"No job succeeded in the last {RATE_MINUTES} minutes: see whether the handlers hang."
                " If they are only slow, more workers or slots would help.",
                links=(
                    NextStep("Workers", path("/workers", queue=row.name)),
                    NextStep("Queue", path("/queues", row.name)),
                ),
            )


def _stalled(row: QueueRow, fleet: Fleet, due: str) -> Need:
    """Return that workers run and start nothing: they are stuck, or none knows the operations."""
    serving = [worker for worker in fleet.alive if row.name in worker.queues]
    known = {operation.partition("@")[0] for worker in serving for operation in worker.operations}
    unknown = sorted(fleet.waiting(row.name) - known)
    if unknown:
        cause = f"No worker of the queue has a handler for {', '.join(unknown[:3])}. Workers:"
    else:
        cause = "A worker that has free slots and claims nothing is stuck: restart it. Workers:"
    return Need(
        weight=Weight.STOPPED,
        code="nothing_starts",
        title=f"{row.name} starts nothing:",
        text=f"{row.running} of {counted(row.slots, 'slot')} of its workers {'is' if row.slots == 1 else 'are'} in use."
        f" {due}",
        detail=cause,
        mono=", ".join(worker.worker_id for worker in serving[:3]),
        links=(NextStep("Workers", path("/workers", queue=row.name)), NextStep("Queue", path("/queues", row.name))),
    )


def _hanging(row: QueueRow, longest: HeldAttempt, now: datetime) -> Need:
    """Return that a queue is full of attempts that do not end: more workers would soon be full too."""
    return Need(
        weight=Weight.STOPPED,
        code="slots_held",
        title=f"{row.name} does nothing: all {counted(row.slots, 'slot')} are held.",
        text=f"No job succeeded in the last {RATE_MINUTES} minutes. The longest attempt, of job {longest.job_id}"
        f" ({longest.operation}), began {age(longest.began_at, now)}.",
        detail="If its handler hangs, end the attempt: the job runs again, and other jobs get the slot 10 seconds"
        " later. Worker:",
        mono=longest.owner,
        links=(
            NextStep(f"Job {longest.job_id}", path("/jobs", str(longest.job_id))),
            NextStep("End the attempt…", path("/jobs", str(longest.job_id), "revoke")),
            NextStep("Workers", path("/workers", queue=row.name)),
        ),
    )


def _of_leases(lost: dict[str, datetime], fleet: Fleet) -> Iterator[Need]:
    if lost and not fleet.alive:
        owners = ", ".join(sorted(lost)[:3])
        yield Need(
            weight=Weight.STOPPED,
            code="leases_expired",
            title=f"Leases of {counted(len(lost), 'worker')} expired, and no worker runs to recover them.",
            text="Their jobs stay running until a worker starts.",
            detail="They can be recovered now. Held by",
            mono=owners,
            links=(NextStep("Recover…", "/recover"), NextStep("Workers", "/workers")),
        )


def _of_gone(reading: Reading, fleet: Fleet) -> Iterator[Need]:
    """Yield workers that do not run and hold leases: no worker recovers those jobs before the leases expire."""
    alive = {worker.worker_id for worker in fleet.alive}
    gone = {worker.worker_id: worker for worker in fleet.workers if worker.worker_id not in alive}
    if not gone or not fleet.total(JobState.RUNNING):
        return
    held = [one for one in attempts_held(reading) if one.owner in gone and one.lease_expires_at > fleet.now]
    for owner in sorted({one.owner for one in held}):
        own = [one for one in held if one.owner == owner]
        what = "was lost" if gone[owner].stopped_at is None else "has stopped"
        ends = f"Its last lease expires {age(max(one.lease_expires_at for one in own), fleet.now)}"
        jobs = NextStep("Its jobs", path("/workers", queue=own[0].queue))
        yield Need(
            weight=Weight.STOPPED,
            code="worker_gone",
            title=f"A worker {what} and still holds {counted(len(own), 'job')}.",
            text=f"{ends}; until then no other worker runs {'it' if len(own) == 1 else 'them'}.",
            detail="If its process is gone, end the attempt now. Worker:",
            mono=owner,
            links=(
                NextStep("End the attempt…", path("/jobs", str(own[0].job_id), "revoke")) if len(own) == 1 else jobs,
                NextStep("Workers", "/workers"),
            ),
        )


def _of_groups(groups: Sequence[Group], now: datetime) -> Iterator[Need]:
    for group in groups:
        if group.last_hour < MANY or now - group.last_at > STILL:
            continue
        where = group.queues[0] if len(group.queues) == 1 else f"{len(group.queues)} queues"
        yield Need(
            weight=Weight.FAILING,
            code="failing",
            title=f"{counted(group.jobs, 'job')} of {where} failed with the same error",
            text=f"since {clock(group.first_at, now, parts='minutes')}, and they still do:"
            f" {group.last_hour} in the last hour.",
            detail=group.pattern,
            mono=group.code,
            links=(
                NextStep("Look at the group", path("/failures", group.hash)),
                NextStep("Prepare a replay", replay_draft(operation=group.operation, code=group.code)),
            ),
        )


def _of_killers(reading: Reading, lost: Sequence[Alike], now: datetime) -> Iterator[Need]:
    """Yield, for each operation, the job whose attempts lost their process most often."""
    found: dict[str, tuple[int, JobLine]] = {}
    for operation in dict.fromkeys(one.operation for one in lost[:ALIKE_SHOWN]):
        for state in (JobState.RUNNING, JobState.PENDING, JobState.FAILED):  # quarantined: it is put right
            query = JobQuery(operation=operation, state=state)
            for line in query.selection(now).page(reading, limit=SUSPECTS_READ).lines:
                died = line.attempts - line.excused if line.last_error_code == PROCESS_DIED else 0
                n = max(line.lost or 0, died)
                if n >= LOSSES_EXCUSED and n > found.get(operation, (0, line))[0]:
                    found[operation] = n, line
    for operation, (n, line) in found.items():
        page = path("/jobs", str(line.job_id))
        stop = {
            JobState.RUNNING: NextStep("End the attempt…", f"{page}/revoke"),
            JobState.PENDING: NextStep("Quarantine it…", f"{page}/quarantine"),
            JobState.FAILED: NextStep("Quarantine it…", f"{page}/quarantine"),
        }[line.state]
        yield Need(
            weight=Weight.FAILING,
            code="kills_process",
            title=f"Job {line.job_id} of {operation} may kill its worker.",
            text=f"{n} of its attempts lost their process; now it is {line.state}.",
            detail="After two lost leases it runs alone in a child process, and each attempt that dies there counts."
            " See what it does with memory and native code.",
            links=(NextStep("Show the job", page), stop),
        )


def _of_taken_out(reading: Reading, taken_out: Sequence[Alike], fleet: Fleet) -> Iterator[Need]:
    for one in taken_out[:ALIKE_SHOWN]:
        there = sum(c.n for c in fleet.counts if c.operation == one.operation and c.state is JobState.QUARANTINED)
        if not there:
            continue  # they were released or replayed since
        many, n = one.n >= MANY, min(one.n, there)
        jobs = job_list(operation=one.operation, code=one.code, state=JobState.QUARANTINED)
        off = NextStep("Switch it off…", path("/switches", OPERATION + one.operation, "throw"))
        yield Need(
            weight=Weight.FAILING if many else Weight.DECISION,
            code="taken_out",
            title=f"{counted(n, 'job')} of {one.operation} went to quarantine",
            text=f"in the last hour{' with the same error' if n > 1 else ''}."
            f" {'It does not run until it is' if n == 1 else 'They do not run until they are'} released.",
            detail=f"{_sample(reading, one, fleet.now)} Mend the cause, then release"
            f" {'it' if n == 1 else 'them all from the list'}.",
            mono=one.code,
            links=(NextStep("Show the jobs" if n > 1 else "Show the job", jobs), *((off,) if many else ())),
        )


def _sample(reading: Reading, one: Alike, now: datetime) -> str:
    """Return what the newest of these jobs says, as a sentence in quotes; nothing if it is not found at once."""
    query = JobQuery(state=JobState.QUARANTINED, operation=one.operation, code=one.code)
    for line in query.selection(now).page(reading, before=None, limit=1).lines:
        message = " ".join((line.last_error_message or "").split())
        return f"“{message if len(message) <= SAMPLE_MAX else message[:SAMPLE_MAX] + '…'}”." if message else ""
    return ""


def _of_retries(retries: Sequence[Alike], fleet: Fleet) -> Iterator[Need]:
    for one in retries:
        if one.n < RETRIED_MANY or OPERATION + one.operation in fleet.switches or fleet.pauses.keys() >= {*one.queues}:
            continue  # or a person has stopped it: that is a finding of its own
        if not any(c.n for c in fleet.counts if c.operation == one.operation and c.state in RETRIED):
            continue  # all of them have ended since
        yield Need(
            weight=Weight.FAILING,
            code="retrying",
            title=f"{one.operation} fails and is retried:",
            text=f"{counted(one.n, 'attempt')} in the last {RETRY_MINUTES} minutes ended with the same error.",
            detail="Its jobs run again until their attempts are used. If the cause lasts, stop it for now.",
            mono=one.code,
            links=(
                NextStep("Show the jobs", job_list(operation=one.operation, code=one.code, state=JobState.PENDING)),
                *(NextStep(f"Pause {queue}…", path("/queues", queue, "pause")) for queue in one.queues[:2]),
                NextStep("Switch it off…", path("/switches", OPERATION + one.operation, "throw")),
            ),
        )


def _of_switches(fleet: Fleet) -> Iterator[Need]:
    for name, switch in sorted(fleet.switches.items()):
        stops = name.removeprefix(OPERATION) if name.startswith(OPERATION) else None
        held = sum(c.n for c in fleet.counts if c.operation == stops and c.state is JobState.PENDING)
        yield Need(
            weight=Weight.HELD,
            code="switch_on",
            title=f"{stops or name} is switched off" if stops else f"The switch {name} is on",
            text=f"by {switch.thrown_by}, {age(switch.created_at, fleet.now)}: “{switch.reason}”",
            detail=f"{counted(held, 'pending job stays', 'pending jobs stay')} as they are." if stops else "",
            links=(
                *((NextStep("Show the jobs", job_list(operation=stops, state=JobState.PENDING)),) if stops else ()),
                NextStep("Lift…", path("/switches", name, "lift"), governed=True),
            ),
        )


def _of_drafts(reading: Reading, drafts: Sequence[Grant], now: datetime) -> Iterator[Need]:
    if drafts:
        first = min(grant.expires_at for grant in drafts)
        shown = (
            f"{g.grant_id}: {granted(reading, g).words}, requested by {g.requested_by}" for g in drafts[:GRANTS_SHOWN]
        )
        yield Need(
            weight=Weight.DECISION,
            code="grants_wait",
            title=f"{counted(len(drafts), 'grant waits', 'grants wait')} for an approver.",
            text=f"{'It' if len(drafts) == 1 else 'The first'} expires {age(first, now)}.",
            detail=" · ".join(shown),
            links=(
                NextStep(f"Grant {drafts[0].grant_id}", path("/grants", str(drafts[0].grant_id)))
                if len(drafts) == 1
                else NextStep("Grants", "/grants"),
            ),
        )


def _of_approved(reading: Reading, approved: Sequence[Grant], now: datetime) -> Iterator[Need]:
    for grant in approved[:GRANTS_SHOWN]:
        about, scope = granted(reading, grant), scope_of(grant)
        step = use_of(grant, about)
        yield Need(
            weight=Weight.DECISION,
            code="grant_approved",
            title=f"Grant {grant.grant_id} is approved and not used.",
            text=f"It permits the {about.words}, by {scope.executor if scope else '?'}; it expires"
            f" {age(grant.expires_at, now)}.",
            detail="" if step else "Use it:",
            mono="" if step else about.command,
            links=(
                *((step,) if step else ()),
                NextStep(f"Grant {grant.grant_id}", path("/grants", str(grant.grant_id))),
            ),
        )


def _of_stopped(runs: Sequence[ProcedureRun]) -> Iterator[Need]:
    for run in runs:
        yield Need(
            weight=Weight.DECISION,
            code="replay_stopped",
            title=f"Replay {run.idempotency_root} has stopped:",
            text=f"{run.stop_state or 'no reason given'}. It can be continued after its last batch.",
            detail=run.failure or "",
            links=(NextStep("Replay", path("/replays", run.idempotency_root)),),
        )


def _of_schedules(reading: Reading, now: datetime) -> Iterator[Need]:
    found = active(reading)
    last = reading.schedules.last_ticks([one.name for one in found])
    for one in found:
        since = last[one.name].tick_at if one.name in last else one.setting.created_at
        missed = None if one.schedule.paused else one.schedule.times.next_after(since)
        if missed is not None and missed < now - TICK_LATE:
            yield Need(
                weight=Weight.SLOW,
                code="schedule_late",
                title=f"The schedule {one.name} is late.",
                text=f"Its tick of {clock(missed, now, parts='minutes')} has not fired ({age(missed, now)}).",
                detail="A running worker fires ticks; see whether one runs.",
                links=(NextStep("Schedules", "/schedules"), NextStep("Workers", "/workers")),
            )


def _of_seals(reading: Reading, now: datetime) -> Iterator[Need]:
    seal = reading.seals.last()
    if seal is None or now - time_from(seal.sealed_at) < SEAL_LATE or reading.seals.next_row(seal.high_seq) is None:
        return
    at = time_from(seal.sealed_at)
    yield Need(
        weight=Weight.SLOW,
        code="seal_late",
        title="The journal has entries that are not sealed.",
        text=f"The last seal, {seal.seal_id}, was made at {clock(at, now)} ({age(at, now)}).",
        detail="A running worker seals every minute. To seal now:",
        mono="holdfast audit head",
        links=(NextStep("Checks", "/checks"),),
    )
