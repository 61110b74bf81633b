"""The operation `nodd.ingest`, and its attempts with telemetry.

Invariants: an OperatorError is retried; an attempt quarantines its unit by itself if a retry cannot help; telemetry
never changes what an attempt does.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from holdfast.core.digest import Json
from holdfast.engine.failures import FailureKind, classify
from holdfast.engine.ledger import Ledger
from holdfast.engine.operations import Operation
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.signals import Quarantine
from holdfast.nodd import catalog, provenance
from holdfast.nodd.admission import DECLARED
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.ingest_attempt import IngestAttempt, IngestSettings, OperatorError
from holdfast.nodd.notices import Notice
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.units import OPERATION, Operator, OperatorVerdict, Unit

__all__ = ["IngestSettings", "declare"]


def declare(ledger: Ledger, settings: IngestSettings) -> Operation[..., Any]:
    """Declare the operations of nodd to a ledger, and return `nodd.ingest`; the application's tables must exist."""
    if settings.catalog is not None:
        catalog.declare(ledger, settings.catalog, settings.datasets)

    def ingest(
        run: Execution,
        *,
        wal_id: str,
        dataset: str,
        object_uri: str,
        source_uri: str,
        generation: int,
        provider: str,
        queue: str,
        event_time: str | None,
        time_range_start: str,
        time_range_end: str | None,
        supersedes: str | None,
        notice: Notice,
    ) -> dict[str, Json]:
        unit = Unit(
            wal_id=wal_id,
            dataset=dataset,
            object_uri=object_uri,
            source_uri=source_uri,
            generation=generation,
            provider=provider,
            queue=queue,
            event_time=event_time,
            time_range_start=time_range_start,
            time_range_end=time_range_end,
            supersedes=supersedes,
            notice=notice,
        )
        if settings.reporter is not None:
            return _ReportedAttempt(ledger, settings, run, unit, settings.reporter).carry_out()
        return IngestAttempt(ledger, settings, run, unit).carry_out()

    return ledger.operations.operation(
        OPERATION, version=DECLARED.version, lease_s=settings.lease_s, retry=settings.retry, classify=_kind
    )(ingest)


def _kind(error: BaseException) -> FailureKind:
    return FailureKind.TRANSIENT if isinstance(error, OperatorError) else classify(error)


class _ReportedAttempt(IngestAttempt):
    """An attempt that reports each operator and its verdict to telemetry."""

    def __init__(
        self, ledger: Ledger, settings: IngestSettings, run: Execution, unit: Unit, reporter: TelemetryReporter
    ) -> None:
        super().__init__(ledger, settings, run, unit)
        self._reporter = reporter

    def carry_out(self) -> dict[str, Json]:
        with self._reporter.attempt(self._run, self._unit):
            return super().carry_out()

    def _kept(self, operator: Operator, judge: Any) -> OperatorVerdict:
        def watched() -> OperatorVerdict:
            with self._reporter.step(operator):
                verdict: OperatorVerdict = judge()
            self._reporter.judged(self._unit, verdict)
            return verdict

        return super()._kept(operator, watched)

    def _integrity_failed(self, verdict: OperatorVerdict) -> None:
        self._report_failure(verdict, super()._integrity_failed)

    def _metadata_failed(self, verdict: OperatorVerdict) -> None:
        self._report_failure(verdict, super()._metadata_failed)

    def _governance_failed(self, verdict: OperatorVerdict) -> None:
        self._report_failure(verdict, super()._governance_failed)

    def _report_failure(self, verdict: OperatorVerdict, fail: Callable[[OperatorVerdict], None]) -> None:
        """Report a verdict that ends the attempt, with the reason of a quarantine."""
        try:
            fail(verdict)
        except Quarantine as error:
            self._reporter.judged(self._unit, verdict, error.reason)
            raise
        except Exception:
            self._reporter.judged(self._unit, verdict)
            raise

    def _register(self, dataset: Dataset) -> tuple[dict[str, Any], str]:
        self._reporter.registering(self._run)
        try:
            with self._reporter.step(Operator.STAC):
                item, fate = super()._register(dataset)
        except Exception as error:
            self._reporter.not_registered(self._unit)
            if isinstance(error, Quarantine):
                self._reporter.invalid(self._unit, error.reason)
            raise
        size = int(self._verdicts[Operator.INTEGRITY].data["actual_size_bytes"])
        self._reporter.registered(self._run, self._unit, fate, item_id=item["id"], size=size)
        return item, fate

    def _emit(self, dataset: Dataset, item: Mapping[str, Any]) -> str:
        try:
            with self._reporter.step(Operator.PROVENANCE):
                status = super()._emit(dataset, item)
        except Exception:
            self._reporter.not_emitted(self._unit)
            raise
        if status == provenance.FAILED:
            self._reporter.not_emitted(self._unit)
        else:
            self._reporter.emitted(self._run, status)
        return status
