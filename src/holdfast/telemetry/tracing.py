"""Traces of a ledger: a span for each submit and for each attempt, in one trace from submit to attempt to follow-up.

The names and attributes are those of OpenTelemetry's messaging conventions: a submit is a PRODUCER span `submit QUEUE`,
an attempt a CONSUMER span `process QUEUE` whose parent is the submit. The submit writes its context with the job, in
the same transaction, so that the attempt finds it in any process, at any later time.

Invariants: without `trace` a ledger writes and reads no context, and none of this is imported; whatever fails here, the
submit and the handler are not affected; a span has no payload, no key, no error message.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from functools import partial, wraps
from typing import TYPE_CHECKING, Any

import msgspec

from holdfast.core.errors import HoldfastError
from holdfast.core.guarded import guarded
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Call, Operation
from holdfast.engine.submit import call_from, call_of
from holdfast.engine.worker.attempt import HeldAttempt
from holdfast.engine.worker.outcome import Outcome, Raised, Returned, Then
from holdfast.store.requests import Declared, Submission
from holdfast.store.verbs.traces import Trace, TracedSubmission, keep_traces, trace_of

if TYPE_CHECKING:
    from holdfast.engine.receipt import Receipt
    from holdfast.nodd.metrics import Span
    from holdfast.telemetry.sink import Telemetry

logger = logging.getLogger("holdfast")

SYSTEM = "holdfast"
NOT_FAILED = (Then.GIVE_BACK, Then.CANCEL)
MANY = "many queues"  # the destination of a submit to several queues


class TracedCall(Call[Any], frozen=True, kw_only=True):
    """A call with the trace in which it is made."""

    trace: Trace

    def submission(self, declared: Declared, text: str) -> Submission:
        """Return what the store takes, with the trace."""
        made = super().submission(declared, text)
        return TracedSubmission(
            **{name: getattr(made, name) for name in Submission.__struct_fields__}, trace=self.trace
        )


def trace(ledger: Ledger, telemetry: Telemetry) -> None:
    """Make spans of what this ledger object submits, and of the attempts that its workers run.

    Call it once, after the operations are declared. The span of an attempt whose handler runs in another process is
    made here, by its worker; there it is the current one, so that what the handler traces is in it.
    """
    tracing = _Tracing(ledger, telemetry)
    for name in ("submit", "submit_async", "submit_many"):
        setattr(ledger, name, partial(getattr(tracing, name), getattr(ledger, name)))
    for operation in ledger.operations:
        operation.fn = tracing.traced(operation)


class _Tracing:
    """The spans of one ledger object."""

    def __init__(self, ledger: Ledger, telemetry: Telemetry) -> None:
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415 - an extra
            TraceContextTextMapPropagator,
        )

        self._ledger = ledger
        self._telemetry = telemetry
        self._format = TraceContextTextMapPropagator()

    # -- submitting ---------------------------------------------------------------------------------------------------

    def submit(
        self,
        plain: Callable[..., Receipt[Any]],
        call: Call[Any] | str,
        payload: Mapping[str, Any] | None = None,
        *,
        connection: Any = None,
        **settings: Any,
    ) -> Receipt[Any]:
        """Submit inside a span."""
        made = call_of(call, payload, **settings)
        with self._sending([made]) as span:
            receipt = plain(self._stamped(made), connection=connection)
            span.set("messaging.message.id", str(receipt.job_id))
            return receipt

    async def submit_async(
        self,
        plain: Callable[..., Any],
        call: Call[Any] | str,
        payload: Mapping[str, Any] | None = None,
        *,
        connection: Any = None,
        **settings: Any,
    ) -> Receipt[Any]:
        """Submit inside a span, without blocking the event loop."""
        made = call_of(call, payload, **settings)
        with self._sending([made]) as span:
            receipt: Receipt[Any] = await plain(self._stamped(made), connection=connection)
            span.set("messaging.message.id", str(receipt.job_id))
            return receipt

    @guarded
    def submit_many(
        self, plain: Callable[..., list[Receipt[Any]]], calls: Sequence[Call[Any] | Mapping[str, Any]]
    ) -> list[Receipt[Any]]:
        """Submit many calls inside one span."""
        made = [call_from(call) for call in calls]
        with self._sending(made) as span:
            span.set("messaging.batch.message_count", str(len(made)))
            return plain([self._stamped(call) for call in made])

    def _sending(self, calls: Sequence[Call[Any]]) -> AbstractContextManager[Span]:
        keep_traces(self._ledger.store)
        queues = {self._queue(call) for call in calls}
        queue = queues.pop() if len(queues) == 1 else MANY
        operations = ",".join(sorted({call.operation for call in calls}))
        attributes = _attributes("submit", "send", queue) | {"holdfast.operation": operations}
        return self._telemetry.span(f"submit {queue}", attributes, kind="PRODUCER")

    def _queue(self, call: Call[Any]) -> str:
        handler = self._ledger.operations.get(call.operation, call.version)
        return call.queue or (handler.declared.queue if handler else "default")

    def _stamped(self, call: Call[Any]) -> Call[Any]:
        return _stamped(call, self._carrier())

    def _carrier(self, context: Any = None) -> dict[str, str]:
        """Return a context, by default the current one, as W3C's headers; none if nothing is traced."""
        carrier: dict[str, str] = {}
        self._format.inject(carrier, context)
        return carrier

    # -- attempts -----------------------------------------------------------------------------------------------------

    def traced(self, operation: Operation[Any, Any]) -> Callable[..., Any]:
        """Return the handler of an operation, to be run inside a span."""
        handler: Any = operation.fn
        if operation.is_async:

            @wraps(handler)
            async def run_async(run: Any, **arguments: Any) -> Any:
                if not isinstance(run, HeldAttempt):
                    return await handler(run, **arguments)
                with self._processing(run):
                    return await handler(run, **arguments)

            found: Any = run_async
        else:

            @wraps(handler)
            def run_plain(run: Any, **arguments: Any) -> Any:
                if not isinstance(run, HeldAttempt):
                    return handler(run, **arguments)
                with self._processing(run):
                    return handler(run, **arguments)

            found = run_plain
        found.untraced = handler
        found.sent = self.sent
        return found  # type: ignore[no-any-return]  # one of the two

    def _processing(self, run: HeldAttempt) -> AbstractContextManager[Span]:
        keep_traces(self._ledger.store)
        vars(run)["after_commit"] = lambda call: HeldAttempt.after_commit(run, self._stamped(call))
        return self._telemetry.span(
            f"process {run.job.queue}", _of_attempt(run), kind="CONSUMER", within=self._context(run.job.job_id)
        )

    def sent(self, run: HeldAttempt) -> SentSpan:
        """Begin the span of an attempt whose handler runs in another process."""
        from opentelemetry.trace import set_span_in_context  # noqa: PLC0415 - an extra

        keep_traces(self._ledger.store)
        span = self._telemetry.begin(
            f"process {run.job.queue}", _of_attempt(run), kind="CONSUMER", within=self._context(run.job.job_id)
        )
        return SentSpan(span, self._carrier(set_span_in_context(span)))

    def _context(self, job_id: int) -> Any:
        """Return the context in which a job was submitted; None if it is not known."""
        try:
            with self._ledger.store.reading() as reading:
                found = trace_of(reading, job_id)
        except HoldfastError as error:
            logger.warning("job %s: its trace cannot be read: %s", job_id, error)
            return None
        if found is None:
            return None
        carrier = {name: value for name, value in found._asdict().items() if value is not None}
        return self._format.extract(carrier)


class SentSpan:
    """The span of an attempt whose handler runs in another process; `carrier` leads to it."""

    def __init__(self, span: Any, carrier: dict[str, str]) -> None:
        self._span = span
        self.carrier = carrier

    def ended(self, outcome: Outcome) -> Outcome:
        """End the span, and return the outcome with its follow-up calls in the trace."""
        from opentelemetry.trace import StatusCode  # noqa: PLC0415 - an extra

        if isinstance(outcome, Raised) and outcome.then not in NOT_FAILED:
            self._span.set_status(StatusCode.ERROR, outcome.code)
            self._span.set_attribute("error.type", outcome.code)
        self._span.end()
        if isinstance(outcome, Returned) and outcome.calls:
            calls = [_stamped(call, self.carrier) for call in outcome.calls]
            return msgspec.structs.replace(outcome, calls=calls)
        return outcome


@contextmanager
def within(carrier: Mapping[str, str]) -> Iterator[None]:
    """Make the span that a worker sent the current one, in the process of the handler, if it has OpenTelemetry."""
    try:
        from opentelemetry import context  # noqa: PLC0415 - an extra
        from opentelemetry.trace.propagation.tracecontext import (  # noqa: PLC0415
            TraceContextTextMapPropagator,
        )
    except ImportError:  # a node of a cluster may have less than the worker
        yield
        return
    token = context.attach(TraceContextTextMapPropagator().extract(carrier))
    try:
        yield
    finally:
        context.detach(token)


def _stamped(call: Call[Any], carrier: Mapping[str, str]) -> Call[Any]:
    if "traceparent" not in carrier:
        return call
    where = Trace(carrier["traceparent"], carrier.get("tracestate"))
    return TracedCall(**{name: getattr(call, name) for name in Call.__struct_fields__}, trace=where)


def _of_attempt(run: HeldAttempt) -> dict[str, str]:
    return _attributes("process", "process", run.job.queue) | {
        "messaging.message.id": str(run.job.job_id),
        "holdfast.operation": run.job.operation,
        "holdfast.attempt": str(run.attempt),
    }


def _attributes(name: str, kind: str, queue: str) -> dict[str, str]:
    return {
        "messaging.system": SYSTEM,
        "messaging.operation.name": name,
        "messaging.operation.type": kind,
        "messaging.destination.name": queue,
    }
