"""`holdfast registry draft | request | build`: how something new is put in force.

Invariants: a build is a dry run unless it is told otherwise; one that was refused or stopped exits with 3; no file is
overwritten.
"""

import json
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.registry.options import REFUSED, GrantId, Operator, Reason
from holdfast.cli.documents import DOCUMENT, invalid, load_tree, write_new
from holdfast.cli.options import actor, word
from holdfast.cli.output import Column
from holdfast.cli.times import duration
from holdfast.cli.values import row_value
from holdfast.core.digest import PAYLOAD_BYTES_MAX, loads
from holdfast.core.errors import InputError
from holdfast.core.governed import Grant
from holdfast.core.manifest import Manifest, read_manifest

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.registry import BuildResult

ManifestFile = Annotated[Path, typer.Argument(metavar="MANIFEST", help="The values: a .json, .yaml or .toml file.")]


@command()
def draft(
    *,
    app: Annotated[str, typer.Option("--app", metavar="MODULE:LEDGER", help="Where the operations are declared.")],
    authority: Annotated[str, word("--authority", "Who answers for them: governing_authority_ref.", metavar="REF")],
    environment: Annotated[
        str | None,
        word("--env", "The environment it is for; a prod ledger wants to see it.", metavar="dev|stage|prod"),
    ] = None,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A new file; without it, print.")] = None,
) -> Answer:
    """Write a manifest of the operations that an application declares: to be read, corrected and built."""
    from holdfast.cli.commands.worker import load  # noqa: PLC0415 - see above
    from holdfast.governance.registry.registry import draft as drafted  # noqa: PLC0415

    declared = load(app, Location("no ledger is opened", None)).operations
    manifest = drafted(declared, authority_ref=authority, environment=environment)
    text = json.dumps(manifest.text, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        write_new(out, text)
        value = {"file": str(out), "manifest_hash": manifest.digest, "op_count": len(manifest.values)}
        said = f"{out}: {_count(len(manifest.values))}, manifest {manifest.digest}"
        return Answer(value, said)
    return Answer(manifest.text, text.rstrip("\n"))


@command(Location.unopened)
def request(
    location: Location,
    *,
    manifest: ManifestFile,
    rollback_plan: Annotated[str, word("--rollback-plan", "How the build would be undone.", metavar="TEXT")],
    reason: Reason,
    executor: Annotated[str | None, word("--executor", "Who is to build; without it, who asks.")] = None,
    operator: Operator = None,
    ttl: Annotated[str, word("--ttl", "How long it is good for: 30m, 2h, 1d.", metavar="TIME")] = "2h",
) -> Answer:
    """Ask for the grant that permits exactly this build, and nothing else."""
    from holdfast.governance.registry.registry import request_build  # noqa: PLC0415 - see above

    who, lasts, wanted = operator or actor(), duration(ttl, "--ttl"), load_manifest(manifest)
    with location.open() as store:
        made = request_build(
            store,
            wanted,
            executor=executor or who,
            requester=who,
            rollback_plan=rollback_plan,
            reason=reason,
            ttl=lasts,
        )
    return Answer(row_value(made), lambda: _print_asked(made))


def _print_asked(made: Grant) -> None:
    output.line(f"grant {made.grant_id} is a {made.state}: {made.action} of {output.clean(made.target)}")
    output.line(f"Somebody approves it: holdfast grant approve {made.grant_id} --as NAME")


@command(Location.unopened)
def build(
    location: Location,
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
) -> Answer:
    """Put the values of a manifest in force: all of them, or none.

    A dry run unless --mode says REAL_RUN: everything is tried in one transaction and rolled back. A build that was
    interrupted goes on when the same command is given again.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above

    wanted = load_manifest(manifest)
    with location.open() as store:
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
    return Answer(_built_value(built), lambda: _print_built(built), 0 if built.ok else REFUSED)


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
