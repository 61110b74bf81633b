"""`holdfast registry`: what is in force, and how something new is put in force.

Invariants: a build is a dry run unless it is told otherwise; a command that was refused, or a build that stopped, exits
with 3; `verify` exits with 1 when it found anything; no file is overwritten.
"""

import json
import tomllib
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.commands.registry_changes import retire, rollback_check, supersede
from holdfast.cli.documents import DOCUMENT, invalid, load_tree, write_new
from holdfast.cli.options import ID_MAX, Db, Json, Schema, actor, opened, word
from holdfast.cli.output import Column
from holdfast.cli.times import duration
from holdfast.cli.values import row_value
from holdfast.core.digest import PAYLOAD_BYTES_MAX, loads
from holdfast.core.errors import InputError, RecordNotFoundError
from holdfast.core.machines import VALUE
from holdfast.core.protocol import ranked
from holdfast.core.records import Grant, RegistryValue
from holdfast.core.vocabulary import Manifest, read_manifest

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.registry import BuildResult, RegistryFault

registry = typer.Typer(
    help="Govern which operations may be used.",
    epilog="Every command takes --json. Guide: docs/registry.md.",
    add_completion=False,
)

STYLES = {"in force": "green", "staged": "yellow", "withheld": "red", "active": "green", "superseded": "yellow"}
REFUSED = 3

ManifestFile = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The values: a .json, .yaml or .toml file.")]
Operator = Annotated[str | None, word("--operator", "Who does this; without it, the user who types.")]
Reason = Annotated[str, word("--reason", "Why: it stays in the journal.", metavar="TEXT")]
GrantId = Annotated[
    int | None, typer.Option("--grant", min=1, max=ID_MAX, metavar="ID", help="The grant that permits it.")
]


def load_manifest(path: Path) -> Manifest:
    """Read a manifest: YAML and TOML by the file's ending, else JSON."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return read_manifest(load_tree(path))
    try:
        with path.open("rb") as file:
            data = file.read(PAYLOAD_BYTES_MAX + 1)
    except (OSError, ValueError) as error:
        why = getattr(error, "strerror", None) or "its name is no name"
        raise InputError(f"{path} cannot be read: {why}", context={"file": str(path)}) from None
    try:
        told = tomllib.loads(data.decode()) if path.suffix.lower() == ".toml" else loads(data)
    except (InputError, ValueError) as error:
        raise invalid(DOCUMENT, f"it cannot be read: {error}", file=str(path)) from None
    return read_manifest(told)


# ---------------------------------------------------------------------------------------------------------------------
# list, show, verify


@registry.command(name="list")
def list_(
    *,
    collection: Annotated[str | None, word("--collection", "Only this one.")] = None,
    every: Annotated[bool, typer.Option("--all", help="Also what is staged or withheld.")] = False,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """List the values in force, by code and version."""
    from holdfast.governance.registry.preflight import all_values  # noqa: PLC0415 - see above

    with opened(db, schema) as store, store.reading() as reading:
        rows = all_values(reading, collection=collection) if every else reading.registry.values_in_force(collection)
    rows.sort(key=lambda row: (row.operation_code, ranked(row.protocol_version) or ()))
    output.answer([row_value(row) for row in rows], lambda: _print_values(rows), as_json=as_json)


def _print_values(rows: list[RegistryValue]) -> None:
    if not rows:
        output.line("nothing is in force")
        return
    names = ("CODE", "VERSION", "STATE", "STANDING", "COLLECTION", "ACT TYPE")
    output.table(
        [*(Column(name) for name in names), Column("FOLLOWED BY"), Column("AUTHORITY", folds=True)],
        [
            (
                row.operation_code, row.protocol_version, _styled(row.state), _styled(row.standing), row.collection,
                row.act_type, _successor(row), row.authority_ref,
            )
            for row in rows
        ],
    )  # fmt: skip


def _styled(word: str) -> Any:
    return output.styled(word, STYLES.get(word, ""))


def _successor(row: RegistryValue) -> str:
    return f"{row.successor_code}@{row.successor_version}" if row.successor_code else ""


@registry.command()
def show(
    *,
    value: Annotated[str, typer.Argument(metavar="CODE[@VERSION]", help="A value; without a version, all of them.")],
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Show a value wherever it stands: what it means, who answers for it, and its history."""
    from holdfast.governance.registry.preflight import all_values  # noqa: PLC0415 - see above

    code, _, version = value.partition("@")
    with opened(db, schema) as store, store.reading() as reading:
        rows = all_values(reading, operation_code=code)
        rows = [row for row in rows if version in ("", row.protocol_version)]
        if not rows:
            raise RecordNotFoundError(f"the registry has no {value}", context={"value": value})
        told = [
            {
                **row_value(row),
                "semantics": json.loads(row.semantics),
                "journal": [row_value(entry) for entry in reading.journal.of(row.value_id, VALUE.name)],
            }
            for row in rows
        ]
    output.answer(told, lambda: _print_shown(told), as_json=as_json)


def _print_shown(told: list[dict[str, Any]]) -> None:
    for number, row in enumerate(told):
        if number:
            output.line("")
        output.fields(
            (name, json.dumps(found, ensure_ascii=False) if name == "semantics" else str(found))
            for name, found in row.items()
            if found is not None and name not in ("journal", "version")
        )
        columns = [Column("WHEN"), Column("EVENT"), Column("TO"), Column("WHO"), Column("GRANT", right=True)]
        output.table(
            [*columns, Column("WHY", folds=True)],
            [
                (entry["at"], entry["event"], entry["target"], entry["actor"], entry["grant_id"], entry["reason"] or "")
                for entry in row["journal"]
            ],
        )


@registry.command()
def verify(*, db: Db = None, schema: Schema = None, as_json: Json = False) -> None:
    """Hold everything in the registry against its digests, guards, grants, builds and their evidence.

    Exit code 1 if anything differs.
    """
    from holdfast.governance.registry.registry import faults  # noqa: PLC0415 - see above

    with opened(db, schema) as store, store.reading() as reading:
        found, values = faults(reading), len(reading.registry.values_in_force())
    value = {"ok": not found, "in_force": values, "faults": [msgspec.to_builtins(fault) for fault in found]}
    output.answer(value, lambda: _print_faults(found, values), as_json=as_json)
    if found:
        raise typer.Exit(1)


def _print_faults(found: "list[RegistryFault]", values: int) -> None:
    output.line(f"{'NOT OK' if found else 'ok'}: {values} values in force")
    if found:
        output.table(
            [Column("CODE"), Column("SUBJECT"), Column("DETAIL", folds=True)],
            [(fault.code, fault.subject, fault.detail) for fault in found],
        )


# ---------------------------------------------------------------------------------------------------------------------
# draft, request, build


@registry.command()
def draft(
    *,
    app: Annotated[str, typer.Option("--app", metavar="MODULE:LEDGER", help="Where the operations are declared.")],
    authority: Annotated[str, word("--authority", "Who answers for them: governing_authority_ref.", metavar="REF")],
    environment: Annotated[
        str | None,
        word("--env", "The environment it is for; a prod ledger wants to see it.", metavar="dev|stage|prod"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A new file; without it, print.")] = None,
    as_json: Json = False,
) -> None:
    """Write a manifest of the operations that an application declares: to be read, corrected and built."""
    from holdfast.cli.commands.work import load  # noqa: PLC0415 - see above
    from holdfast.governance.registry.registry import draft as drafted  # noqa: PLC0415

    declared = load(app, "no ledger is opened", None).operations
    manifest = drafted(declared, authority_ref=authority, environment=environment)
    text = json.dumps(manifest.text, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        write_new(out, text)
        value = {"file": str(out), "manifest_hash": manifest.digest, "op_count": len(manifest.values)}
        said = f"{out}: {_count(len(manifest.values))}, manifest {manifest.digest}"
        output.answer(value, lambda: output.line(said), as_json=as_json)
    else:
        output.answer(manifest.text, lambda: output.line(text.rstrip("\n")), as_json=as_json)


@registry.command()
def request(
    *,
    manifest: ManifestFile,
    rollback_plan: Annotated[str, word("--rollback-plan", "How the build would be undone.", metavar="TEXT")],
    reason: Reason,
    executor: Annotated[str | None, word("--executor", "Who is to build; without it, who asks.")] = None,
    operator: Operator = None,
    ttl: Annotated[str, word("--ttl", "How long it is good for: 30m, 2h, 1d.", metavar="TIME")] = "2h",
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Ask for the grant that permits exactly this build, and nothing else."""
    from holdfast.governance.registry.registry import request_build  # noqa: PLC0415 - see above

    who, lasts, wanted = operator or actor(), duration(ttl, "--ttl"), load_manifest(manifest)
    with opened(db, schema) as store:
        made = request_build(
            store,
            wanted,
            executor=executor or who,
            requester=who,
            rollback_plan=rollback_plan,
            reason=reason,
            ttl=lasts,
        )
    output.answer(row_value(made), lambda: _print_asked(made), as_json=as_json)


def _print_asked(made: Grant) -> None:
    output.line(f"grant {made.grant_id} is a {made.state}: {made.action} of {output.clean(made.target)}")
    output.line(f"Somebody approves it: holdfast grant approve {made.grant_id} --as NAME")


@registry.command()
def build(
    *,
    manifest: ManifestFile,
    reason: Reason,
    mode: Annotated[str, word("--mode", "PLAN_ONLY, VERIFY_ONLY, DRY_RUN or REAL_RUN.", metavar="MODE")] = "DRY_RUN",
    root: Annotated[
        str | None, word("--root", "The run's name: the same one goes on. Without it, the manifest's own.")
    ] = None,
    expect: Annotated[
        str | None, word("--expect", "The manifest's digest, as it was agreed on.", metavar="DIGEST")
    ] = None,
    grant: GrantId = None,
    operator: Operator = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Put the values of a manifest in force: all of them, or none.

    A dry run unless --mode says REAL_RUN: everything is tried in one transaction and rolled back. A build that was
    interrupted goes on when the same command is given again.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above

    wanted = load_manifest(manifest)
    with opened(db, schema) as store:
        built = engine.build(
            store,
            wanted,
            actor=operator or actor(),
            reason=reason,
            root=root,
            mode=mode,
            grant_id=grant,
            expected=expect,
        )
    output.answer(_built_value(built), lambda: _print_built(built), as_json=as_json)
    if not built.ok:
        raise typer.Exit(REFUSED)


def _built_value(built: "BuildResult") -> dict[str, Any]:
    told: dict[str, Any] = msgspec.to_builtins(built)
    report = told.pop("report")
    return {"ok": built.ok, **told, **{name: found for name, found in report.items() if name != "manifest"}}


def _print_built(built: "BuildResult") -> None:
    report = built.report
    told = {
        "build": f"{built.collection}: {_count(built.op_count)}",
        "manifest": built.manifest_hash,
        "plan": report.plan,
        "root": report.root,
        "mode": report.mode,
        "preflight": built.preflight,
        "authority": report.authority,
        "verdict": report.verdict,
        "failure": report.failure,
        "persistent state": report.persistent_state,
        "seal": report.seal,
    }
    output.fields((name, str(found)) for name, found in told.items() if found is not None)
    closed = [gate for gate in built.gates if gate.verdict != "GO"]
    if closed:
        output.line("")
        output.table(
            [Column("GATE"), Column("NAME"), Column("VERDICT"), Column("CODE"), Column("DETAIL", folds=True)],
            [(gate.gate, gate.name, gate.verdict, gate.code or "", gate.detail) for gate in closed],
        )
    if report.steps:
        output.line("")
        output.table([Column("STATE"), Column("FATE")], [(step.name, step.fate) for step in report.steps])


def _count(n: int) -> str:
    return "1 value" if n == 1 else f"{n:,} values"


# ---------------------------------------------------------------------------------------------------------------------
# hold


class Hold(StrEnum):
    """What is to become of the hold."""

    ON = "on"
    OFF = "off"


@registry.command()
def hold(
    *,
    state: Annotated[Hold | None, typer.Argument(metavar="[on|off]", help="Without it, say how it stands.")] = None,
    reason: Annotated[str | None, word("--reason", "Why: it stays in the journal.", metavar="TEXT")] = None,
    grant: GrantId = None,
    operator: Operator = None,
    db: Db = None,
    schema: Schema = None,
    as_json: Json = False,
) -> None:
    """Hold real builds for the whole ledger (REGISTRATION_HOLD), or lift the hold under a grant.

    A governed prod ledger is held from the start.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above
    from holdfast.governance.switches import REGISTRATION_HOLD  # noqa: PLC0415

    if state is not None and not reason:
        raise InputError("a hold is thrown and lifted for a reason", next_step="Give --reason.")
    with opened(db, schema) as store:
        changed = state is not None and engine.hold(
            store, on=state is Hold.ON, actor=operator or actor(), reason=reason or "", grant_id=grant
        )
        with store.reading() as reading:
            held = engine.registration_hold(reading)
            thrown = reading.switches.last(REGISTRATION_HOLD)
    value = {"held": held, "changed": changed, "switch": row_value(thrown) if thrown else None}
    by = f", by {thrown.actor}: {thrown.reason}" if thrown else ", as a ledger of its kind is from the start"
    said = f"{REGISTRATION_HOLD} is {'on' if held else 'off'}{by}"
    output.answer(value, lambda: output.line(output.clean(said)), as_json=as_json)


# ---------------------------------------------------------------------------------------------------------------------
# supersede, retire, rollback-check


registry.command()(supersede)
registry.command()(retire)
registry.command(name="rollback-check")(rollback_check)
