"""`holdfast gc`: deletes and archives data that is past its retention age, and sets the retention policy.

Invariants: without a policy nothing is deleted; all of --set is checked before any of it is stored; `--dry-run` writes
nothing, neither to the ledger nor to the archive directory.
"""

import os
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.options import OperatorWord, ReasonWord, actor
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.explain.times import age
from holdfast.explain.values import row_value
from holdfast.store import Store

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.upkeep.retention import GcReport, Retention

AGES = {"finished": "finished_s", "quarantined": "quarantined_s", "history": "history_s"}
DIRECTORY = "archive_dir"
OFF = "off"


@command(Location.unopened)
def gc(
    location: Location,
    *,
    dry_run: Annotated[bool, option("--dry-run", help="Report what would be done; change nothing.")] = False,
    settings: Annotated[
        list[str] | None,
        option(
            "--set",
            metavar="NAME=VALUE",
            help="Set the policy: finished, quarantined, history (30d, 12h, off) or archive_dir; repeatable.",
        ),
    ] = None,
    show: Annotated[bool, option("--show", help="Print the policy.")] = False,
    operator: OperatorWord = None,
    reason: ReasonWord = "retention",
    as_json: bool = False,
) -> Answer:
    """Delete and archive data that is past its retention age.

    Payload and result of finished jobs are deleted; their rows and keys stay. Their history moves to archive files.
    Without a policy (--set) nothing is deleted. Workers do the same once an hour.
    """
    from holdfast.engine.upkeep import retention  # noqa: PLC0415 - see above

    if dry_run and (settings or show):
        raise InputError("--dry-run cannot be combined with --set or --show.", next_step="Remove one of the options.")
    who, why = operator or actor(), reason
    with location.open() as store:
        policy = _changed(store, settings) if settings else retention.policy_of(store)
        if settings:
            retention.set_policy(store, policy, who=who, why=why)
        if settings or show:
            return Answer(row_value(policy), lambda: _print_policy(policy))
        steps = retention.gc_steps(store, policy, who=who, why=why, dry_run=dry_run)
        report = output.shown_steps("gc", steps, as_json=as_json)
    return Answer(msgspec.to_builtins(report), lambda: _print_report(report, policy))


# ---------------------------------------------------------------------------------------------------------------------
# The policy


def _changed(store: Store[Any], settings: list[str]) -> "Retention":
    from holdfast.engine.upkeep.retention import policy_to_change  # noqa: PLC0415 - see above

    policy = policy_to_change(store)
    given: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        key = name.strip().replace("-", "_")
        if not equals or key not in (*AGES, DIRECTORY):
            raise InputError(
                f"--set {setting} is not a known setting.",
                next_step="Give NAME=VALUE; NAME is finished, quarantined, history or archive_dir.",
                context={"setting": setting},
            )
        if key in AGES:
            given[AGES[key]] = None if value.strip().lower() == OFF else age(value, f"--set {key}").total_seconds()
        else:
            given[key] = None if value.strip() == OFF else str(Path(value).absolute()) if value else value
    changed = type(policy)(**{**msgspec.structs.asdict(policy), **given})
    directory = str(given.get(DIRECTORY) or "")
    if store.dialect == "sqlite" and os.path.lexists(directory):  # its workers are on this machine
        from holdfast.audit.files.archive import require_directory  # noqa: PLC0415 - most policies keep their directory

        require_directory(Path(directory))
    return changed


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _print_policy(policy: "Retention") -> None:
    missing = " (not on this machine)" if policy.archive_dir and not os.path.lexists(policy.archive_dir) else ""
    output.fields(
        [
            ("finished jobs", _kept(policy.finished_s)),
            ("quarantined jobs", _kept(policy.quarantined_s)),
            ("history", _kept(policy.history_s)),
            ("archives", f"{policy.archive_dir or 'none'}{missing}"),
        ]
    )


def _kept(age_s: float | None) -> str:
    return "kept forever" if age_s is None else output.span(age_s)


def _print_report(report: "GcReport", policy: "Retention") -> None:
    if policy.is_off:
        output.line("No retention policy is set; nothing is deleted.")
        output.line("next: holdfast gc --set finished=30d --set history=90d --set archive_dir=/var/lib/holdfast")
        return
    would = "would be " if report.dry_run else ""
    output.line(
        f"Payload and result {would}deleted: {report.finished} finished and {report.quarantined} quarantined jobs."
    )
    rows = sum(archive.rows for archive in report.archives)
    executions = sum(archive.executions for archive in report.archives)
    output.line(f"History {would}archived: {report.blocks} blocks with {rows} rows and {executions} executions.")
    if report.archives:
        output.table(
            [Column("FILE"), Column("ROWS", right=True), Column("EXECUTIONS", right=True), Column("SHA-256")],
            [(a.file, a.rows, a.executions, a.sha256 or "") for a in report.archives],
        )
    for name in report.partitions:
        output.line(f"Partition {name} dropped.")
    if report.held is not None:
        held = report.held
        output.line(f"Block {held.seal_id} was not archived: {held.machine} {held.subject} is {held.state}.")
