"""`holdfast registry draft | request | build`: put new values in force.

Invariants: a build is a dry run unless --mode is REAL_RUN; a refused or stopped build exits with 3; no file is
overwritten.
"""

import json
import shlex
import tomllib
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import DOCUMENT, invalid, load_tree, read_file, write_new
from holdfast.cli.options import REFUSED, GrantId, OperatorWord, ReasonWord, actor, word
from holdfast.cli.text import Column
from holdfast.core.authority import Reject
from holdfast.core.digest import PAYLOAD_BYTES_MAX
from holdfast.core.errors import AuthorityError, InputError
from holdfast.core.governed import Grant
from holdfast.core.json_input import loads
from holdfast.core.manifest import Manifest, read_manifest
from holdfast.core.spans import counted
from holdfast.explain.times import duration
from holdfast.explain.values import row_value

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.registry import BuildResult

ManifestFile = Annotated[
    Path, argument(metavar="MANIFEST", help="Manifest with the values: a .json, .yaml or .toml file.")
]


@command()
def draft(
    *,
    app: Annotated[
        str,
        option("--app", metavar="MODULE:LEDGER", help="Python module and name of the Ledger or Operations object."),
    ],
    authority: Annotated[str, word("--authority", "Authority of the values: governing_authority_ref.", metavar="REF")],
    environment: Annotated[
        str | None,
        word("--env", "Environment of the manifest; a prod ledger requires it.", metavar="dev|stage|prod"),
    ] = None,
    out: Annotated[Path | None, option("--out", metavar="FILE", help="New file (default: standard output).")] = None,
) -> Answer:
    """Write a draft manifest of the operations that an application declares."""
    from holdfast.cli.commands.worker import load  # noqa: PLC0415 - see above
    from holdfast.governance.registry.registry import draft as drafted  # noqa: PLC0415

    declared = load(app, Location("no ledger is opened", None)).operations
    manifest = drafted(declared, authority_ref=authority, environment=environment)
    text = json.dumps(manifest.text, indent=2, ensure_ascii=False) + "\n"
    if out is not None:
        write_new(out, text)
        value = {"file": str(out), "manifest_hash": manifest.digest, "op_count": len(manifest.values)}
        message = f"Wrote {out}: {counted(len(manifest.values), 'value')}, manifest {manifest.digest}."
        return Answer(value, message)
    return Answer(manifest.text, text.rstrip("\n"))


@command(Location.unopened)
def request(
    location: Location,
    *,
    manifest: ManifestFile,
    rollback_plan: Annotated[str, word("--rollback-plan", "How to undo the build.", metavar="TEXT")],
    reason: ReasonWord,
    executor: Annotated[
        str | None, word("--executor", "Name of the person who will build (default: the requester).")
    ] = None,
    operator: OperatorWord = None,
    ttl: Annotated[str, word("--ttl", "Time until the grant expires: 30m, 2h, 1d.", metavar="TIME")] = "2h",
) -> Answer:
    """Request the grant that permits exactly this build."""
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
    return Answer(row_value(made), lambda: _print_requested(made))


def _print_requested(made: Grant) -> None:
    output.line(f"Grant {made.grant_id} is a {made.state}: {made.action} of {output.clean(made.target)}.")
    output.line(f"Another person must approve it: holdfast grant approve {made.grant_id} --as NAME")


@command(Location.unopened)
def build(
    location: Location,
    *,
    manifest: ManifestFile,
    reason: ReasonWord,
    mode: Annotated[
        str, word("--mode", "Mode of the build: PLAN_ONLY, VERIFY_ONLY, DRY_RUN or REAL_RUN.", metavar="MODE")
    ] = "DRY_RUN",
    root: Annotated[
        str | None, word("--root", "Root of the run; the same root continues a run (default: from the manifest).")
    ] = None,
    expect: Annotated[str | None, word("--expect", "Expected digest of the manifest.", metavar="DIGEST")] = None,
    grant: GrantId = None,
    operator: OperatorWord = None,
) -> Answer:
    """Put the values of a manifest in force: all of them, or none.

    By default this is a dry run: one transaction does everything and is rolled back. --mode REAL_RUN commits. To
    continue an interrupted build, run the same command again.
    """
    from holdfast.governance.registry import registry as engine  # noqa: PLC0415 - see above

    wanted, who = load_manifest(manifest), operator or actor()
    ask = f"holdfast registry request {shlex.quote(str(manifest))} --executor {shlex.quote(who)}"
    with location.open() as store:
        try:
            built = engine.build(
                store, wanted, actor=who, reason=reason, root=root, mode=mode, grant_id=grant, expected=expect
            )
        except AuthorityError as error:
            if error.code != Reject.MISSING:
                raise
            step = f"Request a grant: `{ask} --rollback-plan TEXT --reason TEXT`."
            raise AuthorityError(error.message, code=error.code, next_step=step, context=error.context) from None
    return Answer(_built_value(built), lambda: _print_built(built, ask), 0 if built.ok else REFUSED)


def _built_value(built: "BuildResult") -> dict[str, Any]:
    value: dict[str, Any] = msgspec.to_builtins(built)
    report = value.pop("report")
    return {"ok": built.ok, **value, **{name: found for name, found in report.items() if name != "manifest"}}


def _print_built(built: "BuildResult", ask: str) -> None:
    report = built.report
    fields = {
        "build": f"{built.collection}: {counted(built.op_count, 'value')}",
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
    output.fields((name, str(found)) for name, found in fields.items() if found is not None)
    closed = [gate for gate in built.gates if gate.verdict != "GO"]
    if closed:
        output.line("")
        output.table(
            [Column("GATE"), Column("NAME"), Column("VERDICT"), Column("CODE"), Column("DETAIL", folds=True)],
            [(gate.gate, gate.name, gate.verdict, gate.code or "", gate.detail) for gate in closed],
        )
    if report.steps:
        output.line("")
        output.table([Column("STEP"), Column("RESULT")], [(step.name, step.fate) for step in report.steps])
    if report.authority == Reject.MISSING:
        output.line(f"next: {ask} --rollback-plan TEXT --reason TEXT")


def load_manifest(path: Path) -> Manifest:
    """Read a manifest: YAML or TOML by the suffix of the file, otherwise JSON."""
    return read_manifest(load_document(path))


def load_document(path: Path) -> Any:
    """Read a file as `load_manifest` does; what it says is not looked at."""
    if path.suffix.lower() in (".yaml", ".yml"):
        return load_tree(path)
    data = read_file(path, PAYLOAD_BYTES_MAX)
    try:
        return tomllib.loads(data.decode()) if path.suffix.lower() == ".toml" else loads(data)
    except (InputError, ValueError) as error:
        raise invalid(DOCUMENT, f"cannot be parsed: {error}", file=str(path)) from None
