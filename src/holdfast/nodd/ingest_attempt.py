"""One attempt at one unit: runs the operators in order, stores their verdicts, and commits all results at once.

Invariants: an operator runs only if those before it passed; verdicts are stored as checkpoints with the end of the
attempt, so the next attempt continues after them, and after a crash with the first operator; items and provenance are
written only at the commit, and not at all after a later generation of the object was admitted; failures that can pass
by themselves are retried, all others are quarantined at once.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from holdfast.core.digest import Json, canonical
from holdfast.core.errors import EffectError
from holdfast.core.records import time_text
from holdfast.engine.ledger import Ledger
from holdfast.engine.worker.execution import Execution
from holdfast.engine.worker.retry import RetryPolicy
from holdfast.engine.worker.signals import Quarantine, Snooze
from holdfast.nodd import catalog, governance, integrity, metadata, observations, provenance, stac, validity
from holdfast.nodd.admission import DECLARED, SUPERSEDED, superseded_by
from holdfast.nodd.dataset import Dataset, Datasets
from holdfast.nodd.fetched import FetchedObjects
from holdfast.nodd.governance import GovernanceRules
from holdfast.nodd.integrity import Sidecar
from holdfast.nodd.objects import ObjectReader
from holdfast.nodd.replays import replay_of
from holdfast.nodd.reporter import TelemetryReporter
from holdfast.nodd.statements import run_statement, statements
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

GATES_KEPT = "validation-gates"
SOFTWARE = {"holdfast-nodd": "1.0.0"}

# Another attempt would find the same issue in the same object.
PERMANENT_ISSUES = frozenset({
    "size_zero", "size_too_small", "size_too_large", "size_mismatch", "etag_mismatch", "missing_required_header",
    "access_denied",
})  # fmt: skip


class IngestSettings(msgspec.Struct, frozen=True, kw_only=True):
    """The configuration of ingestion."""

    datasets: Datasets
    source: Any  # an ObjectSource
    rules: GovernanceRules = GovernanceRules()
    catalog: Any = None  # the CatalogTarget of the static catalogue; None writes no files
    retry: RetryPolicy = RetryPolicy(max_attempts=DECLARED.max_attempts)
    lease_s: float = 120.0
    reporter: TelemetryReporter | None = None  # None reports no telemetry
    not_yet_s: float = 60.0  # how long to wait before looking again for an object that is not published yet


class OperatorError(Exception):
    """An operator failed in a way that another attempt may overcome; the code is stored with the unit."""

    def __init__(self, code: str, message: str) -> None:
        super().__init__(message)
        self.code = code


class IngestAttempt:
    """One attempt at one unit."""

    def __init__(self, ledger: Ledger, settings: IngestSettings, run: Execution, unit: Unit) -> None:
        self._ledger, self._run, self._unit = ledger, run, unit
        self._settings = settings
        self._verdicts: dict[Operator, OperatorVerdict] = {}

    def carry_out(self) -> dict[str, Json]:
        """Run the operators, stage their results, and return the statuses."""
        dataset = self._dataset()
        self._require_current()
        self._objects: ObjectReader = self._fetched(dataset)
        self._kept(Operator.PARSE, self._parsed)
        self._kept(Operator.INTEGRITY, lambda: self._integrity(dataset))
        self._kept(Operator.METADATA, lambda: self._metadata(dataset))
        self._kept(Operator.GOVERNANCE, lambda: self._governed(dataset))
        if dataset.spec.policy.same_observation:
            self._run.if_refused(lambda refused: self._made_again(dataset, refused))
        return self._made(dataset)

    def _made_again(self, dataset: Dataset, refused: EffectError) -> dict[str, Json]:
        """Stage the results again if another file of the observation committed first; raise any other refusal."""
        if not observations.is_conflict(refused):
            raise refused
        return self._made(dataset)

    def _made(self, dataset: Dataset) -> dict[str, Json]:
        """Stage the item, its provenance and the outcome of the unit, and return the statuses."""
        item, registered = self._register(dataset)
        emitted = self._emit(dataset, item)
        if self._run.job.replaces is not None:
            self._take_over()
        outcome: dict[str, Json] = {
            "integrity_status": self._verdicts[Operator.INTEGRITY].status,
            "metadata_status": self._verdicts[Operator.METADATA].status,
            "stac_status": registered,
            "provenance_status": emitted,
            "stac_item_id": item["id"],
            "stac_collection_id": item["collection"],
            "stac_item_href": stac.href_of(item),
            "ingest_run_id": self._verdicts[Operator.PARSE].data["ingest_run_id"],
        }
        # Also stored with the unit: retention removes the job's result, and a later generation replaces the item.
        self._effect("settle_unit", rows=1, wal_id=self._unit.wal_id, **outcome)
        gates = self._gates(governance.PASS if emitted != provenance.FAILED else governance.WAIVED)
        return {**outcome, "gates": gates}

    # -- operators ----------------------------------------------------------------------------------------------------

    def _kept(self, operator: Operator, judge: Any) -> OperatorVerdict:
        """Return the verdict of an operator: from the checkpoint of an earlier attempt, or from `judge`."""
        # Stored with the end of the attempt: after a crash a few ranges are read again, which costs less than a write.
        value = self._run.checkpoint(str(operator), lambda: judge().as_json(), with_next=True)
        verdict = msgspec.convert(value, OperatorVerdict)
        self._verdicts[operator] = verdict
        return verdict

    def _parsed(self) -> OperatorVerdict:
        # The first attempt sets the id, and the checkpoint keeps it: later attempts belong to the same run.
        job = self._run.job
        number = str(self._run.attempt) if job.replaces is None else f"{job.job_id}.{self._run.attempt}"
        data = {"ingest_run_id": f"{self._unit.wal_id}/{number}"}
        return OperatorVerdict(operator=Operator.PARSE, status="ok", data=data)

    def _integrity(self, dataset: Dataset) -> OperatorVerdict:
        verdict = integrity.check(self._unit, dataset, self._objects, self._sidecars, self._began)
        if verdict.status == "failed":
            self._integrity_failed(verdict)
        return verdict

    def _integrity_failed(self, verdict: OperatorVerdict) -> None:
        issue = verdict.issues[0]
        detail = str(verdict.data.get("structure_detail", "")) or issue.replace("_", " ")
        if issue == "etag_mismatch":
            detail = self._written_again(verdict)
        if issue == integrity.NOT_YET:
            raise Snooze(self._settings.not_yet_s, "the object is not published yet")
        if issue == integrity.EXPIRED:
            raise Quarantine(
                "source_expired", "the object does not exist any more: it is older than the dataset's max_age"
            )
        if issue in PERMANENT_ISSUES or (issue == "missing_object" and self._is_last):
            self._stopped_at({governance.SCHEMA: governance.FAIL})
            raise Quarantine(f"integrity_{issue}", detail)
        code = "io_error_upstream" if issue in integrity.RETRY_LATER else f"integrity_{issue}"
        raise OperatorError(code, detail)

    def _written_again(self, verdict: OperatorVerdict) -> str:
        notice, found = self._unit.notice, verdict.data.get("actual_etag")
        if notice.content_etag in (None, found):
            return f"the bytes of the object do not have the MD5 that its ETag {found} gives"
        return (
            f"the object was written again: its ETag is {found}, that of the notice is {notice.content_etag}. The later"
            f" write has a record of its own; if its notice was lost: {self._unit.reconcile_command}"
        )

    def _metadata(self, dataset: Dataset) -> OperatorVerdict:
        verdict = metadata.extract(self._unit, dataset, self._objects, self._verdicts[Operator.INTEGRITY])
        if verdict.status == "failed":
            self._metadata_failed(verdict)
        return verdict

    def _metadata_failed(self, verdict: OperatorVerdict) -> None:
        issue = verdict.issues[0] if verdict.issues else "incomplete_product_metadata"
        if issue in integrity.RETRY_LATER:
            raise OperatorError("io_error_upstream", "the object could not be read from S3")
        self._stopped_at({governance.SCHEMA: governance.FAIL})
        raise Quarantine(f"metadata_{issue}", f"the metadata of the object is not complete: {issue}")

    def _governed(self, dataset: Dataset) -> OperatorVerdict:
        verdict = governance.gate(self._unit, dataset, self._verdicts, self._settings.rules)
        if verdict.status != governance.PASS:
            self._governance_failed(verdict)
        return verdict

    def _governance_failed(self, verdict: OperatorVerdict) -> None:
        self._stopped_at(verdict.data["gates"])
        code = governance.HARD_FAIL_CODE if verdict.status == governance.HARD_FAIL else "governance_hold"
        raise Quarantine(code, f"{verdict.data['rule_id']}: {verdict.data['why']}")

    def _gates(self, provenance_gate: str) -> dict[str, Json]:
        """Return the result of every gate in order."""
        return {**self._verdicts[Operator.GOVERNANCE].data.get("gates", {}), governance.PROV: provenance_gate}

    def _stopped_at(self, gates: Mapping[str, Json]) -> None:
        """Store the gate results of an attempt that a gate stopped; those of a successful one are in its result."""
        self._run.checkpoint(f"{GATES_KEPT}/{self._run.attempt}", lambda: dict(gates))

    # -- results ------------------------------------------------------------------------------------------------------

    def _register(self, dataset: Dataset) -> tuple[dict[str, Any], str]:
        """Stage the item, and return it with its status: created, updated or no-op."""
        family, before, now = None, self._before, time_text(self._began)
        if dataset.spec.policy.same_observation:  # else no other unit can write the item while this one is the latest
            with self._ledger.store.reading() as reading:
                rows = run_statement(reading, "item_content", item_id=stac.item_id(self._unit))
                family = observations.files_of(reading, self._unit, dataset)
                now = time_text(reading.now())
            before = rows[0] if rows else None
        found, learned = self._verdicts[Operator.INTEGRITY], self._verdicts[Operator.METADATA]
        created = before[1] if before else now
        item = stac.item_of(self._unit, dataset, found, learned, created=created, updated=now)
        item = item if family is None else family.marked(self._unit, item)
        problems = validity.problems(item)
        if problems:
            raise Quarantine("stac_validation_failed", "; ".join(problems)[:400])
        content = stac.content_digest(item)
        own = {"item_id": item["id"], "wal_id": self._unit.wal_id, "generation": self._unit.generation}
        if before is not None and before[0] == content:
            self._effect("own_item", **own)
            return {**item, "properties": {**item["properties"], "updated": before[2]}}, "no-op"
        changed = [item["id"]]
        # The row of the observation is written first: commits for the same observation wait for each other here,
        # before they hold other locks, so they cannot deadlock.
        for write in family.joined(self._unit, item, now) if family else ():
            self._effect(write.statement, rows=write.rows, **write.params)
            changed += [write.item_id] if write.item_id else []
        self._effect(
            "put_item",
            **own,
            collection_id=item["collection"],
            dataset=dataset.name,
            href=stac.href_of(item),
            item=canonical(item),
            content=content,
            created=created,
            updated=now,
        )
        for item_id in changed if self._settings.catalog is not None else ():
            self._run.after_commit(catalog.publish_call(item_id, dataset.name))
        return item, "updated" if before else "created"

    def _emit(self, dataset: Dataset, item: Mapping[str, Any]) -> str:
        """Stage the provenance, and return its status."""
        run = provenance.RunFacts(
            job_id=self._run.job.job_id,
            attempt=self._run.attempt,
            replay=replay_of(self._ledger.store, self._run.job),
            follows=self._follows(),
            software=SOFTWARE,
            at=self._unit.event_time or self._unit.time_range_start,
        )
        verdict, records = provenance.emitted(self._unit, dataset, self._verdicts, item, run=run)
        if verdict.status != provenance.OK:
            self._emit_failed(dataset, verdict)
        rows = canonical([[record.record_id, record.kind, record.content] for record in records])
        self._effect("put_provenance", wal_id=self._unit.wal_id, created_at=run.at, records=rows)
        return verdict.status

    def _follows(self) -> int | None:
        unit = self._unit
        if unit.supersedes is None:
            return None
        with self._ledger.store.reading() as reading:
            source = {"source_uri": unit.source_uri, "time_range_start": unit.time_range_start}
            [[generation]] = run_statement(reading, "catalogued_before", generation=unit.generation, **source)
        return None if generation is None else int(generation)

    def _emit_failed(self, dataset: Dataset, verdict: OperatorVerdict) -> None:
        """Fail the attempt, unless the dataset allows provenance to fail; then store the verdict."""
        if verdict.status == provenance.FAILED and not dataset.spec.policy.provenance_may_fail:
            self._stopped_at(self._gates(governance.FAIL))
            raise OperatorError(provenance.FAILED_CODE, "; ".join(verdict.data["problems"])[:400])
        # A verdict that is ok is part of the result and needs no write of its own.
        self._run.checkpoint(str(Operator.PROVENANCE), verdict.as_json)

    def _take_over(self) -> None:
        """Stage that the unit belongs to this job, which replaces another, and keep the counts of the other."""
        with self._ledger.store.reading() as reading:
            [[job_id]] = run_statement(reading, "unit_job", wal_id=self._unit.wal_id)
            before = reading.jobs.get(job_id)
        self._effect(
            "take_over",
            rows=1,
            wal_id=self._unit.wal_id,
            job_id=self._run.job.job_id,
            before=before.job_id,
            attempts=before.attempts,
            version=before.version,
            created=time_text(before.created_at),
            error=before.last_error_code,
            message=before.last_error_message,
        )

    # -- guards -------------------------------------------------------------------------------------------------------

    def _dataset(self) -> Dataset:
        if self._unit.dataset not in self._settings.datasets:
            raise Quarantine("missing_dataset", f"dataset {self._unit.dataset} is not known here")
        return self._settings.datasets[self._unit.dataset]

    def _require_current(self) -> None:
        with self._ledger.store.glance() as reading:
            item_id = stac.item_id(self._unit)
            rows = run_statement(reading, "unit_now", wal_id=self._unit.wal_id, item_id=item_id)
            follower, content = rows[0][:2]
            self._before = rows[0][1:4] if content is not None else None
            self._sidecars = [Sidecar(*row[4:]) for row in rows if row[4] is not None]
            self._began = reading.now()
            by = run_statement(reading, "unit_job", wal_id=follower) if follower is not None else None
        if by is not None:
            raise Quarantine(SUPERSEDED, superseded_by(follower, by[0][0]))

    def _fetched(self, dataset: Dataset) -> FetchedObjects:
        sizes = {sidecar.key: sidecar.size for sidecar in self._sidecars}
        sizes[self._unit.notice.key] = self._unit.notice.size
        return FetchedObjects(self._settings.source, dataset.spec.format, sizes)

    @property
    def _is_last(self) -> bool:
        return self._run.job.spent >= self._run.job.max_attempts

    def _effect(self, name: str, *, rows: int | None = None, **params: Any) -> None:
        [sql] = statements(self._ledger.store.dialect)[name]
        self._run.effect(sql, params, rows=rows)
