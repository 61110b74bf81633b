"""`holdfast gc`: drop and archive what is past its age, and say how long things are kept.

Invariants: nothing is dropped until a policy was set; a policy is read whole before any of it is written; `--dry-run`
writes nothing, neither to the ledger nor to the directory of archives.
"""

import re
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import actor
from holdfast.cli.output import Column
from holdfast.cli.times import UNITS
from holdfast.cli.values import row_value
from holdfast.core.digest import is_storable
from holdfast.core.errors import InputError

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.engine.upkeep.retention import GcReport, Retention

AGES = {"finished": "finished_s", "quarantined": "quarantined_s", "history": "history_s"}
DIRECTORY = "archive_dir"
OFF = "off"
_AGE = re.compile(r"(?P<n>[0-9]{1,9}(?:\.[0-9]{1,6})?)\s*(?P<unit>[a-z]*)")


@command(Location.unopened)
def gc(
    location: Location,
    *,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and do nothing.")] = False,
    settings: Annotated[
        list[str] | None,
        typer.Option(
            "--set",
            metavar="NAME=VALUE",
            help="Set the policy: finished, quarantined, history (30d, 12h, off), archive_dir. May be repeated.",
        ),
    ] = None,
    show: Annotated[bool, typer.Option("--show", help="Show the policy.")] = False,
    operator: Annotated[
        str | None, typer.Option("--operator", metavar="NAME", help="Who, for the journal (the user).")
    ] = None,
    reason: Annotated[str, typer.Option("--reason", metavar="TEXT", help="Why, for the journal.")] = "retention",
) -> Answer:
    """Drop and archive what is past its age.

    Finished jobs lose payload and result, and keep their row and their key; their history leaves the ledger as files.
    Nothing is dropped until --set says how long to keep it. Workers do the same by themselves, once an hour.
    """
    from holdfast.engine.upkeep import retention  # noqa: PLC0415 - see above

    if dry_run and (settings or show):
        raise InputError("--dry-run goes with neither --set nor --show", next_step="Give one of them.")
    who, why = _words(operator or actor(), reason)
    with location.open() as store:
        policy = _changed(retention.policy_to_change(store), settings) if settings else retention.policy_of(store)
        if settings:
            retention.set_policy(store, policy, who=who, why=why)
        if settings or show:
            return Answer(row_value(policy), lambda: _show(policy))
        report = retention.gc(store, policy, who=who, why=why, dry_run=dry_run)
    return Answer(msgspec.to_builtins(report), lambda: _tell(report, policy))


# ---------------------------------------------------------------------------------------------------------------------
# The policy


def _changed(policy: "Retention", settings: list[str]) -> "Retention":
    given: dict[str, object] = {}
    for setting in settings:
        name, equals, value = setting.partition("=")
        key = name.strip().replace("-", "_")
        if not equals or key not in (*AGES, DIRECTORY):
            raise InputError(
                f"--set {setting} sets nothing",
                next_step="Give NAME=VALUE with finished, quarantined, history or archive_dir.",
                context={"setting": setting},
            )
        if key in AGES:
            given[AGES[key]] = _age(setting, value.strip().lower())
        else:
            given[key] = None if value.strip() == OFF else str(Path(value).absolute()) if value else value
    return type(policy)(**{**msgspec.structs.asdict(policy), **given})


def _age(setting: str, text: str) -> float | None:
    match = _AGE.fullmatch(text)
    if text == OFF:
        return None
    if match is None or (match["unit"] or "s") not in UNITS:
        raise InputError(
            f"--set {setting} is not an age",
            next_step="Write it as 30d, 12h, 90min, 3600s or off.",
            context={"setting": setting},
        )
    return float(match["n"]) * UNITS[match["unit"] or "s"]


def _words(who: str, why: str) -> tuple[str, str]:
    for flag, text in (("--operator", who), ("--reason", why)):
        if not text.strip() or not is_storable(text):
            raise InputError(f"{flag} is empty, or is not text", next_step="Say in words who does this, and why.")
    return who, why


# ---------------------------------------------------------------------------------------------------------------------
# For people


def _show(policy: "Retention") -> None:
    output.fields(
        [
            ("finished jobs", _kept(policy.finished_s)),
            ("quarantined jobs", _kept(policy.quarantined_s)),
            ("history", _kept(policy.history_s)),
            ("archives", policy.archive_dir or "nowhere"),
        ]
    )


def _kept(age_s: float | None) -> str:
    return "kept for ever" if age_s is None else output.span(age_s)


def _tell(report: "GcReport", policy: "Retention") -> None:
    if policy.is_off:
        output.line("everything is kept: no retention was set")
        output.line("next: holdfast gc --set finished=30d --set history=90d --set archive_dir=/var/lib/holdfast")
        return
    would = "would be " if report.dry_run else ""
    output.line(f"{report.finished} finished and {report.quarantined} quarantined jobs {would}slimmed")
    rows = sum(archive.rows for archive in report.archives)
    executions = sum(archive.executions for archive in report.archives)
    output.line(f"{report.blocks} blocks with {rows} rows and {executions} executions {would}archived")
    if report.archives:
        output.table(
            [Column("FILE"), Column("ROWS", right=True), Column("EXECUTIONS", right=True), Column("SHA-256")],
            [(a.file, a.rows, a.executions, a.sha256 or "") for a in report.archives],
        )
    for name in report.partitions:
        output.line(f"{name} was dropped")
    if report.held is not None:
        held = report.held
        output.line(f"block {held.seal_id} stays: {held.machine} {held.subject} is {held.state}")
