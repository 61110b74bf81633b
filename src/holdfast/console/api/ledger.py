"""The API of what spans the ledger: queues, switches, schedules, workers, stats, recovery, health and metrics.

Invariants: counts are read, never counted over jobs; a token that is limited sees only what lies within its limits.
"""

from __future__ import annotations

import msgspec
from litestar import Controller, Response, get
from litestar.openapi import ResponseSpec
from litestar.params import JSONBody

from holdfast.console import acts as perform
from holdfast.console.api.routes import NamePath, acts, reads
from holdfast.console.api.types import (
    ChangedAnswer,
    GovernedBody,
    HealthAnswer,
    QueueAnswer,
    ReasonBody,
    RecoveryAnswer,
    ScheduleAnswer,
    StatsAnswer,
    SwitchAnswer,
    WorkerAnswer,
    answer_of,
)
from holdfast.console.context import Visit
from holdfast.console.injected import ConsoleHere, Here
from holdfast.console.problems import PROBLEM_JSON, Problem
from holdfast.console.security.callers import Permission
from holdfast.console.views.links import name_of
from holdfast.core.errors import HoldfastError, StoreUnavailableError
from holdfast.core.machines import JobState
from holdfast.explain.values import by_state, counts_value
from holdfast.scheduling.schedules import active, schedule_values
from holdfast.store.verbs.alive import alive_workers
from holdfast.store.verbs.known_queues import known_queues
from holdfast.telemetry.prometheus import CONTENT_TYPE, exposition

COUNTED = (JobState.PENDING, JobState.RUNNING, JobState.FAILED, JobState.QUARANTINED)


class Queues(Controller):
    """Queues."""

    path = "/queues"
    tags = ["queues"]  # noqa: RUF012 - Litestar's own convention

    @reads("/", summary="List queues")
    def list_queues(self, here: Here) -> list[QueueAnswer]:
        """List the queues with their jobs and workers, and which are paused."""
        return queue_answers(here)

    @acts("/{queue:str}/pause", summary="Pause a queue")
    def pause(self, here: Here, queue: NamePath, data: JSONBody[ReasonBody]) -> ChangedAnswer:
        """Pause a queue; jobs that are running continue."""
        changed = perform.pause_queue(here, name_of(queue), reason=data.reason)
        return ChangedAnswer(name=name_of(queue), changed=changed)

    @acts("/{queue:str}/resume", summary="Resume a queue")
    def resume(self, here: Here, queue: NamePath, data: JSONBody[GovernedBody]) -> ChangedAnswer:
        """Resume a paused queue; outside dev this consumes a grant."""
        changed = perform.resume_queue(here, name_of(queue), reason=data.reason, grant_id=data.grant_id)
        return ChangedAnswer(name=name_of(queue), changed=changed)


class Switches(Controller):
    """Switches."""

    path = "/switches"
    tags = ["switches"]  # noqa: RUF012 - see above

    @reads("/", summary="List switches that are on")
    def list_switches(self, here: Here) -> list[SwitchAnswer]:
        """List the switches that are on."""
        here.caller.require_unlimited()
        with here.store.reading() as reading:
            found = list(reading.switches.on().values())
        return answer_of(found, list[SwitchAnswer])

    @acts("/{name:str}/throw", summary="Throw a switch")
    def throw(self, here: Here, name: NamePath, data: JSONBody[ReasonBody]) -> ChangedAnswer:
        """Throw a switch: what it names stops, for all workers."""
        done = perform.throw_switch(here, name_of(name), reason=data.reason)
        return ChangedAnswer(name=name_of(name), changed=done.changed)

    @acts("/{name:str}/lift", summary="Lift a switch")
    def lift(self, here: Here, name: NamePath, data: JSONBody[GovernedBody]) -> ChangedAnswer:
        """Lift a switch under a grant, which is consumed."""
        done = perform.lift_switch(here, name_of(name), reason=data.reason, grant_id=data.grant_id)
        return ChangedAnswer(name=name_of(name), changed=done.changed)


class ScheduleRoutes(Controller):
    """Schedules."""

    path = "/schedules"
    tags = ["schedules"]  # noqa: RUF012 - see above

    @reads("/", summary="List schedules")
    def list_schedules(self, here: Here) -> list[ScheduleAnswer]:
        """List the schedules with their next tick and their last job."""
        here.caller.require_unlimited()
        with here.store.reading() as reading:
            found = schedule_values(reading, active(reading), here.store.now())
        return answer_of(found, list[ScheduleAnswer])

    @acts("/{name:str}/pause", summary="Pause a schedule")
    def pause(self, here: Here, name: NamePath, data: JSONBody[ReasonBody]) -> ChangedAnswer:
        """Pause a schedule; its ticks do not fire, and are not made up for later."""
        changed = perform.pause_schedule(here, name_of(name), reason=data.reason)
        return ChangedAnswer(name=name_of(name), changed=changed)

    @acts("/{name:str}/resume", summary="Resume a schedule")
    def resume(self, here: Here, name: NamePath, data: JSONBody[ReasonBody]) -> ChangedAnswer:
        """Resume a paused schedule from its next tick."""
        changed = perform.resume_schedule(here, name_of(name), reason=data.reason)
        return ChangedAnswer(name=name_of(name), changed=changed)

    @acts("/{name:str}/trigger", summary="Trigger a schedule")
    def trigger(self, here: Here, name: NamePath, data: JSONBody[ReasonBody]) -> ChangedAnswer:
        """Submit the job of a schedule now, beside its ticks."""
        job_id = perform.trigger_schedule(here, name_of(name), reason=data.reason)
        return ChangedAnswer(name=name_of(name), changed=True, job_id=job_id)


class LedgerRoutes(Controller):
    """The ledger."""

    tags = ["ledger"]  # noqa: RUF012 - see above

    @reads("/workers", summary="List workers")
    def workers(self, here: Here) -> list[WorkerAnswer]:
        """List the workers that run, and how many jobs each holds."""
        here.caller.require_unlimited()
        now = here.store.now()
        with here.store.reading() as reading:
            found, held = alive_workers(reading, now), reading.lists.held_by_owner(now)
        rows = [{**msgspec.structs.asdict(one), "held": held.get(one.worker_id, 0)} for one in found]
        return answer_of(rows, list[WorkerAnswer])

    @reads("/stats", summary="Count jobs")
    def stats(self, here: Here) -> StatsAnswer:
        """Count jobs by state and operation."""
        return stats_answer(here)

    @acts("/recover", summary="Recover stalled jobs")
    def recover(self, here: Here, data: JSONBody[ReasonBody]) -> RecoveryAnswer:
        """Recover the jobs whose lease has expired."""
        return answer_of(perform.recover(here, reason=data.reason), RecoveryAnswer)

    @get(
        "/health",
        opt={"permission": Permission.PUBLIC, "any_host": True},
        sync_to_thread=False,
        summary="Whether the console runs",
    )
    def health(self) -> HealthAnswer:
        """Return ok while the process runs; it does not look at the database."""
        return HealthAnswer(status="ok")

    @get(
        "/ready",
        opt={"permission": Permission.PUBLIC, "any_host": True},
        sync_to_thread=True,
        summary="Whether the database answers",
        responses={
            503: ResponseSpec(
                Problem,
                description="The database is out of reach.",
                media_type=PROBLEM_JSON,
                generate_examples=False,
            )
        },
    )
    def ready(self, console: ConsoleHere) -> HealthAnswer:
        """Return ok if the database answers."""
        try:
            with console.store.reading() as reading:
                reading.settings.read()
        except HoldfastError:  # its words may name a host or a file, and this route needs no token
            raise StoreUnavailableError("The database does not answer.") from None
        return HealthAnswer(status="ok")


@get("/metrics", opt={"permission": Permission.VIEW, "tokens": True}, sync_to_thread=True, include_in_schema=False)
def metrics(here: Here) -> Response[str]:
    """Return the state of the ledger in Prometheus' text format."""
    here.caller.require_unlimited()
    return Response(exposition(here.store), media_type=CONTENT_TYPE.removesuffix("; charset=utf-8"))


def queue_answers(here: Visit) -> list[QueueAnswer]:
    """Return the queues within the limits of a caller; of each, the jobs within them."""
    with here.store.reading() as reading:
        now = here.store.now()
        names, paused, alive = known_queues(reading), set(reading.queues.paused()), alive_workers(reading, now)
        counts = [count for count in reading.counts.current() if here.caller.sees(count.queue, count.operation)]
    return [
        QueueAnswer(
            queue=name,
            paused=name in paused,
            workers=sum(name in worker.queues for worker in alive),
            **{state: n for state, n in by_state(counts, queue=name).items() if state in COUNTED},
        )
        for name in names
        if not here.caller.queues or name in here.caller.queues
    ]


def stats_answer(here: Visit) -> StatsAnswer:
    """Return the counts of the jobs within the limits of a caller."""
    with here.store.reading() as reading:
        counts, paused = reading.counts.current(), reading.queues.paused()
    seen = [count for count in counts if here.caller.sees(count.queue, count.operation)]
    named = [queue for queue in paused if not here.caller.queues or queue in here.caller.queues]
    return StatsAnswer(**counts_value(seen), paused=named)
