"""The answers of `replay`: values for programs, lines and tables for people.

Invariants: a value is plain data, the same in JSON and YAML; of a payload only the fields that were named are shown,
one line each, and secrets are redacted.
"""

import json
import shlex
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import msgspec

from holdfast.cli import output
from holdfast.cli.documents import Tree
from holdfast.cli.replay.program import Program
from holdfast.cli.replay.spec_files import tree_of
from holdfast.cli.text import Column
from holdfast.core.records import Job
from holdfast.core.selection import Selection
from holdfast.core.spans import counted
from holdfast.explain.values import JOB_FIELDS, job_value
from holdfast.governance.replay.candidates import Candidates
from holdfast.governance.replay.record import ReplayReport
from holdfast.governance.replay.replay import DryRun
from holdfast.governance.replay.run import wanted

GO = "GO"


def plain(value: object) -> Any:
    return msgspec.json.decode(msgspec.json.encode(value))


def _with_selection(value: Tree, program: Program) -> Tree:
    """Return a value whose selection has the names of the program."""
    selection = value["selection"]
    return {**value, "selection": {**selection, "filters": program.spec.filters_value(selection["filters"])}}


# ---------------------------------------------------------------------------------------------------------------------
# select


def candidates_value(selection: Selection, found: Candidates, shown: int, program: Program) -> Tree:
    """Return the candidates of a selection: its spec, hashes, counts, and the requested number of examples."""
    return {
        "spec": tree_of(selection, program.spec),
        "selection_hash": selection.hash,
        "candidates_hash": found.hash,
        "total": found.total,
        "more": found.more,
        "skipped": found.skipped,
        f"by_{program.queue}": found.by_queue,
        "by_operation": found.by_operation,
        "by_error": found.by_error,
        "examples": [job_value(job) for job in found.examples[:shown]],
    }


def print_candidates(selection: Selection, found: Candidates, shown: int, program: Program) -> None:
    more = "; more jobs match beyond the limits of the selection" if found.more else ""
    output.line(f"{counted(found.total, 'job')} to replay ({selection.mode}, {selection.env}){more}")
    output.fields([("selection", selection.hash), ("candidates", found.hash)])
    _print_counts(program.queue.upper(), found.by_queue)
    _print_counts("ERROR", found.by_error)
    _print_counts("SKIPPED", found.skipped)
    if shown and found.examples:
        output.line("")
        print_records(found.examples[:shown], program.columns, program)


# ---------------------------------------------------------------------------------------------------------------------
# dry-run


def dry_run_value(made: DryRun, notes: Sequence[str], program: Program) -> Tree:
    """Return a dry run, whether every guard passed, and the notes."""
    value = _with_selection(plain(made), program)
    value = {(f"by_{program.queue}" if name == "by_queue" else name): item for name, item in value.items()}
    for guard in value["guards"]:
        guard["next_step"] = guard["next_step"] and program.text(guard["next_step"])
    return {**value, "ok": made.ok, "notes": list(notes)}


def print_dry_run(made: DryRun, next_step: str, program: Program, notes: Sequence[str] = ()) -> None:
    """Print what a run would do, the verdict of every guard, and the next command."""
    what = f"{counted(made.total, 'job')} in {counted(made.batches, 'batch', 'batches')}"
    output.line(f"Dry run: {what} would be replayed; nothing was changed.")
    output.fields(
        [
            ("selection", made.selection_hash),
            ("candidates", made.candidates_hash),
            ("batch size", str(made.batch_size)),
            ("takes at least", output.span(made.seconds_at_least)),
            ("grant", _authority(made)),
        ]
    )
    _print_counts(program.queue.upper(), made.by_queue)
    _print_counts("ERROR", made.by_error)
    _print_counts("SKIPPED", made.skipped)
    output.line("")
    output.table(
        [Column("GUARD"), Column("VERDICT"), Column("REASON", folds=True)],
        [(guard.guard_type, "passed" if guard.passed else "REFUSED", guard.message) for guard in made.guards],
    )
    for note in notes:
        output.line(f"note:  {output.clean(note)}")
    steps = [program.text(guard.next_step) for guard in made.guards if not guard.passed and guard.next_step]
    if made.grant_needed and made.authority != GO:
        steps.append(_grant_request(made))
    for step in [*steps, next_step if made.total else ""][:1]:
        if step:
            output.line(f"next:  {step}")


def _grant_request(made: DryRun) -> str:
    needed = wanted(made.selection, made.candidates_hash, environment=made.environment, executor=made.made_by)
    return (
        f"holdfast grant request {needed.act} {needed.target} --plan {needed.plan}"
        f" --executor {shlex.quote(needed.executor)} --reason TEXT --rollback-plan TEXT"
    )


def _authority(made: DryRun) -> str:
    if not made.grant_needed:
        return "not needed"
    return "approved" if made.authority == GO else f"needed ({made.authority})"


# ---------------------------------------------------------------------------------------------------------------------
# run, inspect


def report_value(report: ReplayReport, program: Program) -> Tree:
    return _with_selection(plain(report), program)


def print_report(report: ReplayReport, program: Program) -> None:
    """Print the state of a run, and the jobs of its batches if they were read too."""
    stopped = f": {report.stop_reason}" if report.stop_reason else ""
    output.line(f"{report.run_id}  {report.state}{stopped}")
    if report.failure:
        output.line(output.clean(report.failure))
    planned = counted(report.batches_planned, "batch", "batches")
    done = f"{report.replayed:,} of {counted(report.total, 'job')} in {report.batches} of {planned}"
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
    _print_counts("SKIPPED", Counter(report.passed_over) + Counter(report.skipped))
    _print_counts("WAITED FOR", report.throttled, times="TIMES")
    if report.touched:
        output.line("")
        output.table(
            [Column("BATCH", right=True), Column("AT"), Column("BY"), Column("JOBS", folds=True)],
            [(t.number, output.instant(t.at), t.actor, _ids([*t.replayed, *t.replaced])) for t in report.touched],
        )
    for old, new in report.mismatched:
        output.line(f"Job {new} replaced job {old} and has a different result.")
    if not report.done:
        output.line(f"next:  {program.name} run --continue {report.run_id} --reason TEXT --confirm")


def record_value(job: Job, more: Sequence[str], program: Program) -> Tree:
    """Return a job with further fields, of the job or of its payload."""
    return {**job_value(job), **{name: program.field(job, name) for name in more if name not in JOB_FIELDS}}


def print_records(found: Iterable[Job], names: Sequence[str], program: Program) -> None:
    titles = [Column(name.upper().replace("_", " "), folds=name not in program.columns) for name in names]
    output.table(titles, [[_cell(job, name, program) for name in names] for job in found])


def print_record(job: Job, more: Sequence[str], program: Program) -> None:
    output.fields((name, _text(value)) for name, value in record_value(job, more, program).items())


def _cell(job: Job, name: str, program: Program) -> object:
    if name == "created_at":
        return output.instant(job.created_at)
    value = _text(program.field(job, name))
    return output.state(value) if name == "status" else value


def _text(value: object) -> str:
    return "" if value is None else value if isinstance(value, str) else json.dumps(value)


def _print_counts(title: str, counts: Mapping[str, int], *, times: str = "JOBS") -> None:
    if counts:
        output.line("")
        rows = sorted(counts.items(), key=lambda item: (-item[1], item[0]))
        output.table([Column(title), Column(times, right=True)], [(name, f"{n:,}") for name, n in rows])


def _ids(job_ids: Sequence[int]) -> str:
    """Return job ids in short: how many, the lowest and the highest."""
    if not job_ids:
        return "none"
    return str(job_ids[0]) if len(job_ids) == 1 else f"{len(job_ids):,} from {min(job_ids)} to {max(job_ids)}"
