"""What `replay` says: the values that programs read, and the lines and tables for people.

Invariants: a value is plain data, the same in JSON and YAML; no payload is shown but the fields that were asked for by
name, one line each, and without what looks like a secret.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.cli import output
from holdfast.cli.documents import Tree
from holdfast.cli.output import Column
from holdfast.cli.replay.spec_files import tree_of
from holdfast.cli.values import JOB_FIELDS, job_value
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import IN_PROGRESS, Selection
from holdfast.engine.redact import redacted
from holdfast.governance.replay.replay import Candidates, DryRun, ReplayReport, wanted

# What a record of the write-ahead log calls a field of a job. A payload that has a wal_id of its own goes by that.
NAMES = {"wal_id": "job_id", "dataset": "queue"}
SHOWN = ("wal_id", "dataset", "status", "attempts", "last_error_code", "created_at")
GO = "GO"


def plain(value: object) -> Any:
    """Return a struct as plain data."""
    return msgspec.json.decode(msgspec.json.encode(value))


# ---------------------------------------------------------------------------------------------------------------------
# select


def candidates_value(selection: Selection, found: Candidates, shown: int) -> Tree:
    """Return what a selection found: its spec, its hashes, counts, and as many examples as were asked for."""
    return {
        "spec": tree_of(selection),
        "selection_hash": selection.hash,
        "candidates_hash": found.hash,
        "total": found.total,
        "more": found.more,
        "skipped": found.skipped,
        "by_dataset": found.by_dataset,
        "by_operation": found.by_operation,
        "by_error": found.by_error,
        "examples": [job_value(job) for job in found.examples[:shown]],
    }


def print_candidates(selection: Selection, found: Candidates, shown: int) -> None:
    """Print what a selection found."""
    more = ", and there are more beyond its limits" if found.more else ""
    output.line(f"{jobs(found.total)} to replay ({selection.mode}, {selection.env}){more}")
    output.fields([("selection", selection.hash), ("candidates", found.hash)])
    _print_counts("DATASET", found.by_dataset)
    _print_counts("ERROR", found.by_error)
    _print_counts("PASSED OVER", found.skipped)
    if shown and found.examples:
        output.line("")
        print_records(found.examples[:shown], SHOWN)


# ---------------------------------------------------------------------------------------------------------------------
# dry-run


def dry_run_value(made: DryRun, notes: Sequence[str]) -> Tree:
    """Return a dry run, whether every guard passed, and what may be a slip."""
    return {**plain(made), "ok": made.ok, "notes": list(notes)}


def print_dry_run(made: DryRun, next_step: str, notes: Sequence[str] = ()) -> None:
    """Print what a run would do, what every guard says, and what to type next."""
    output.line(f"would replay {jobs(made.total)} in {_batches(made.batches)}; nothing has been changed")
    output.fields(
        [
            ("selection", made.selection_hash),
            ("candidates", made.candidates_hash),
            ("batch size", str(made.batch_size)),
            ("takes at least", output.span(made.seconds_at_least)),
            ("grant", _authority(made)),
        ]
    )
    _print_counts("DATASET", made.by_dataset)
    _print_counts("ERROR", made.by_error)
    _print_counts("PASSED OVER", made.skipped)
    output.line("")
    output.table(
        [Column("GUARD"), Column("SAYS"), Column("WHY", folds=True)],
        [(guard.guard_type, "passed" if guard.passed else "REFUSED", guard.message) for guard in made.guards],
    )
    for note in notes:
        output.line(f"note:  {output.clean(note)}")
    steps = [guard.next_step for guard in made.guards if not guard.passed]
    if made.grant_needed and made.authority != GO:
        steps.append(_grant_request(made))
    for step in [*steps, next_step if made.total else None][:1]:
        if step:
            output.line(f"next:  {step}")


def _grant_request(made: DryRun) -> str:
    asked = wanted(made.selection, made.candidates_hash, environment=made.environment, executor=made.made_by)
    who = shlex.quote(asked.executor)
    return (
        f"holdfast grant request {asked.act} {asked.target} --plan {asked.plan} --executor {who} --reason TEXT"
        " --rollback-plan TEXT"
    )


def _authority(made: DryRun) -> str:
    if not made.grant_needed:
        return "not needed"
    return "there is one" if made.authority == GO else f"needed ({made.authority})"


# ---------------------------------------------------------------------------------------------------------------------
# run, inspect


def print_report(report: ReplayReport, program: str) -> None:
    """Print where a run stands, and what it has touched if that was read too."""
    stopped = f": {report.stop_reason}" if report.stop_reason else ""
    output.line(f"{report.run_id}  {report.state}{stopped}")
    if report.failure:
        output.line(output.clean(report.failure))
    done = f"{report.replayed:,} of {jobs(report.total)} in {report.batches} of {_batches(report.batches_planned)}"
    output.fields(
        [
            ("replayed", done),
            ("mode", f"{report.mode} ({report.environment})"),
            ("by", f"{report.actor}: {report.reason} ({report.replay_reason})"),
            *([("grant", str(report.grant_id))] if report.grant_id else []),
            ("began", output.instant(report.began_at)),
            ("selection", report.selection_hash),
            ("candidates", report.candidates_hash),
        ]
    )
    _print_counts("PASSED OVER", Counter(report.passed_over) + Counter(report.skipped))
    _print_counts("WAITED FOR", report.throttled, times="TIMES")
    if report.touched:
        output.line("")
        output.table(
            [Column("BATCH", right=True), Column("AT"), Column("BY"), Column("JOBS", folds=True)],
            [(t.number, output.instant(t.at), t.actor, _ids([*t.replayed, *t.replaced])) for t in report.touched],
        )
    for old, new in report.mismatched:
        output.line(f"job {new} replaced job {old}, with another result")
    if not report.done:
        output.line(f"next:  {program} run --continue {report.run_id} --reason TEXT --confirm")


def record_value(job: Job, more: Sequence[str]) -> Tree:
    """Return a job, with other fields that were asked for by name: of its record, or of its payload."""
    return {**job_value(job), **{name: field_of(job, name) for name in more if name not in JOB_FIELDS}}


def print_records(found: Iterable[Job], names: Sequence[str]) -> None:
    """Print a line for each job."""
    titles = [Column(name.upper().replace("_", " "), folds=name not in SHOWN) for name in names]
    output.table(titles, [[_cell(job, name) for name in names] for job in found])


def print_record(job: Job, more: Sequence[str]) -> None:
    """Print one job, field by field."""
    output.fields((name, _text(value)) for name, value in record_value(job, more).items())


def field_of(job: Job, name: str) -> object:
    """Return a field of a job by the name that its record gives it, or of its payload; None if there is none."""
    if name == "status":
        return status_of(job)
    payload = json.loads(job.payload or "null")
    if name == "wal_id" and isinstance(payload, dict) and isinstance(payload.get(name), str):
        return payload[name]
    name = NAMES.get(name, name)
    if name in JOB_FIELDS:
        return job_value(job)[name]
    if name in ("replaces", "excused", "quarantine_code", "operation_version"):
        return getattr(job, name)
    value = payload.get(name) if isinstance(payload, dict) else None
    # With its name before it, as it would stand in a message: that is how a secret is known.
    return redacted(f"{name}={value}").removeprefix(f"{name}=") if isinstance(value, str) else _scalar(value)


def status_of(job: Job) -> str:
    """Return the state of a job in the words of the write-ahead record."""
    return IN_PROGRESS if job.state is JobState.RUNNING else str(job.state)


def _scalar(value: object) -> object:
    return value if isinstance(value, (bool, int, float)) or value is None else f"({type(value).__name__})"


def _cell(job: Job, name: str) -> object:
    if name == "created_at":
        return output.instant(job.created_at)
    value = _text(field_of(job, name))
    return output.state(value) if name == "status" else value


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _print_counts(title: str, counts: Mapping[str, int], *, times: str = "JOBS") -> None:
    if counts:
        output.line("")
        rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        output.table([Column(title), Column(times, right=True)], [(name, f"{n:,}") for name, n in rows])


def jobs(n: int) -> str:
    """Return how many jobs, in words."""
    return "1 job" if n == 1 else f"{n:,} jobs"


def _batches(n: int) -> str:
    return "1 batch" if n == 1 else f"{n:,} batches"


def _ids(job_ids: Sequence[int]) -> str:
    """Return ids as people read them: how many, and from where to where."""
    if not job_ids:
        return "none"
    return str(job_ids[0]) if len(job_ids) == 1 else f"{len(job_ids):,} from {min(job_ids)} to {max(job_ids)}"
