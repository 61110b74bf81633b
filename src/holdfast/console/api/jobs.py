"""The API of jobs: submit, list, show, explain, and the acts on one job.

Invariants: a job outside of the limits of a token does not exist for it; a page is found by keyset.
"""

from __future__ import annotations

from datetime import datetime
from typing import Annotated, Any

import msgspec
from litestar import Controller, Response
from litestar.openapi import ResponseSpec
from litestar.params import FromQuery, JSONBody, QueryParameter

from holdfast.console import acts as perform
from holdfast.console import governed_acts
from holdfast.console.acts import SubmitBody, seen_job, zoned
from holdfast.console.api.routes import Cursor, IdempotencyKey, IdPath, Limit, WordQuery, acts, before, reads
from holdfast.console.api.types import (
    GovernedBody,
    JobActBody,
    JobAnswer,
    JobDetails,
    JobsAnswer,
    MovedAnswer,
    QuarantineBody,
    SubmitAnswer,
    answer_of,
)
from holdfast.console.context import Visit
from holdfast.console.injected import Here
from holdfast.console.security.callers import Caller, Permission, out_of_scope
from holdfast.console.selections import JobSelection
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Window
from holdfast.explain.explain import explain
from holdfast.explain.explanation import Explanation
from holdfast.explain.values import admission_value, job_history
from holdfast.store.verbs.tracebacks import tracebacks_of
from holdfast.store.verbs.watch import JobFilters


class Jobs(Controller):
    """Jobs."""

    path = "/jobs"
    tags = ["jobs"]  # noqa: RUF012 - Litestar's own convention

    @acts(
        "/",
        Permission.SUBMIT,
        status_code=201,
        summary="Submit a job",
        responses={200: ResponseSpec(SubmitAnswer, description="The key has a job already.", generate_examples=False)},
    )
    def submit(
        self, here: Here, data: JSONBody[SubmitBody], idempotency_key: IdempotencyKey = None
    ) -> Response[SubmitAnswer]:
        """Submit a job. With an Idempotency-Key a repeated request gives the same job, and its result."""
        admission = perform.submit(here, data, idempotency_key)
        answer = answer_of(admission_value(admission), SubmitAnswer)
        return Response(answer, status_code=201 if answer.is_new else 200)

    @reads("/", summary="List jobs")
    def list_jobs(
        self,
        here: Here,
        *,
        in_state: Annotated[JobState | None, QueryParameter(name="state")] = None,
        queue: WordQuery = None,
        operation: WordQuery = None,
        client: WordQuery = None,
        code: WordQuery = None,
        since: FromQuery[datetime | None] = None,
        until: FromQuery[datetime | None] = None,
        key: WordQuery = None,
        cursor: Cursor = None,
        limit: Limit = 100,
    ) -> JobsAnswer:
        """List jobs, newest first; `code` is that of the last error, `since` and `until` are when they were submitted.

        A page looks through a bounded number of jobs: follow `next_cursor` until it is null, also after a page without
        jobs. `key` finds the job of a client (default: the name of the token) by its key.
        """
        filters = JobFilters(state=in_state, queue=queue, operation=operation, client=client, code=code)
        if key is not None:
            return keyed_job(here, filters, key)
        times = Window(zoned(since, "since"), zoned(until, "until"))
        return listed_jobs(here, filters, times, cursor=cursor, limit=limit)

    @reads("/{job_id:int}", summary="Show a job")
    def show(self, here: Here, job_id: IdPath) -> JobDetails:
        """Show a job with its payload, attempts and journal."""
        return job_details(here, job_id)

    @reads("/{job_id:int}/explain", summary="Explain a job")
    def explain(self, here: Here, job_id: IdPath) -> Explanation:
        """Explain why a job is not running, with the next command."""
        seen_job(here, job_id)
        with here.store.reading() as reading:
            return explain(reading, job_id, here.store.now())

    @acts("/{job_id:int}/cancel", summary="Cancel a job")
    def cancel(self, here: Here, job_id: IdPath, data: JSONBody[JobActBody]) -> MovedAnswer:
        """Cancel a pending or failed job; request a running one to stop."""
        state = perform.cancel(here, job_id, reason=data.reason, version=data.version)
        return MovedAnswer(job_id=job_id, state=state, changed=True)

    @acts("/{job_id:int}/retry", summary="Retry a job")
    def retry(self, here: Here, job_id: IdPath, data: JSONBody[JobActBody]) -> MovedAnswer:
        """Retry a failed job if it has attempts left."""
        state = perform.retry(here, job_id, reason=data.reason, version=data.version)
        return MovedAnswer(job_id=job_id, state=state, changed=True)

    @acts("/{job_id:int}/quarantine", summary="Quarantine a job")
    def quarantine(self, here: Here, job_id: IdPath, data: JSONBody[QuarantineBody]) -> MovedAnswer:
        """Quarantine a pending or failed job."""
        done = perform.quarantine(here, job_id, data.code, reason=data.reason, version=data.version)
        return MovedAnswer(job_id=job_id, state=done.job.state, changed=done.changed)

    @acts("/{job_id:int}/release", summary="Release a quarantined job")
    def release(self, here: Here, job_id: IdPath, data: JSONBody[GovernedBody]) -> MovedAnswer:
        """Release a quarantined job under a grant, which is consumed."""
        done = governed_acts.release(here, job_id, reason=data.reason, grant_id=data.grant_id, version=data.version)
        return MovedAnswer(job_id=job_id, state=done.job.state, changed=done.changed, grant_id=done.grant_id)


def listed_jobs(here: Visit, filters: JobFilters, times: Window, *, cursor: str | None, limit: int) -> JobsAnswer:
    """Return a page of the jobs that match, within the limits of the caller.

    It looks through a bounded number of jobs: a page can be short, or empty, and still have a next one.
    """
    named = msgspec.structs.replace(
        filters,
        queue=within(here.caller, "queue", here.caller.queues, filters.queue),
        operation=within(here.caller, "operation", here.caller.operations, filters.operation),
    )
    selection = JobSelection(filters=named, since=times.start, until=times.end)
    with here.store.reading() as reading:
        found = selection.page(reading, before=before(cursor), limit=limit)
        jobs = {job.job_id: job for job in reading.jobs.get_many([line.job_id for line in found.lines])}
    return JobsAnswer(
        jobs=[JobAnswer.of(jobs[line.job_id]) for line in found.lines],
        next_cursor=str(found.looked_from) if found.more and found.looked_from is not None else None,
    )


def keyed_job(here: Visit, filters: JobFilters, key: str) -> JobsAnswer:
    """Return the job that a client submitted under a key, if it matches and is within the limits of the caller."""
    with here.store.reading() as reading:
        found = reading.jobs.by_key([(filters.client or here.caller.name, key)]).values()
    jobs = [JobAnswer.of(job) for job in found if _fits(job, filters) and here.caller.sees(job.queue, job.operation)]
    return JobsAnswer(jobs=jobs, next_cursor=None)


def _fits(job: Job, filters: JobFilters) -> bool:
    values: dict[str, Any] = {**msgspec.structs.asdict(filters)}
    values["last_error_code"] = values.pop("code")
    return all(value is None or getattr(job, name) == value for name, value in values.items())


def within(caller: Caller, name: str, allowed: frozenset[str], wanted: str | None) -> str | None:
    """Return a filter within the limits of a caller; raise GovernanceError if it is outside, or must be named."""
    if not allowed or wanted in allowed:
        return wanted
    if wanted is None and len(allowed) == 1:
        return next(iter(allowed))
    message = f"Name one {name} of the token." if wanted is None else f"It does not cover the {name} {wanted}."
    raise out_of_scope(caller, message)


def job_details(here: Visit, job_id: int) -> JobDetails:
    """Return a job with its attempts and its journal, in the order in which they were written."""
    seen_job(here, job_id)
    with here.store.reading() as reading:
        job = reading.jobs.get(job_id)
        executions = reading.lists.executions(job_id)
        rows = job_history(reading, job_id)
        traces = dict(tracebacks_of(reading, job_id))
    return JobDetails.of(job, executions, rows, traces)
