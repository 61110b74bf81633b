"""`holdfast registry dispatch | dismantle`: validate a request for a contract, and take a dev collection out of force.

Invariants: `dispatch` writes only the observation that `--observe` stores; `dismantle` is a dry run unless
--mode is REAL_RUN; a refusal exits with 3.
"""

from pathlib import Path
from typing import Annotated

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.registry.build import load_document
from holdfast.cli.declare import argument, option
from holdfast.cli.options import REFUSED, GrantId, OperatorWord, ReasonWord, actor, word


@command(Location.unopened)
def dispatch(
    location: Location,
    *,
    contract: Annotated[str, argument(metavar="CONTRACT", help="Name of the contract: DOT_C1_….")],
    correlation: Annotated[str, word("--correlation", "Id of the request, for its reviewers.", metavar="ID")],
    mode: Annotated[str, word("--mode", "PLAN_ONLY, VERIFY_ONLY or DRY_RUN.", metavar="MODE")] = "PLAN_ONLY",
    root: Annotated[
        str | None, word("--root", "Idempotency root; for a DRY_RUN it must begin with DRYRUN-NS:.")
    ] = None,
    manifest: Annotated[
        Path | None, option("--manifest", metavar="FILE", help="Manifest to use as the fixture.")
    ] = None,
    observe: Annotated[bool, option("--observe", help="Store the answer as evidence, once per root.")] = False,
    operator: OperatorWord = None,
) -> Answer:
    """Validate a request for a contract of the registry. It executes nothing and refuses REAL_RUN.

    The exit code is 3 unless the request is valid.
    """
    from holdfast.governance.registry.dispatch import dispatch as dispatched  # noqa: PLC0415 - the engine, on demand

    fixture = None if manifest is None else load_document(manifest)
    with location.open() as store:
        summary = dispatched(
            store,
            contract,
            correlation_id=correlation,
            actor=operator or actor(),
            mode=mode,
            idempotency_root=root or "",
            fixture=fixture,
            write_observation=observe,
        )
    value = msgspec.to_builtins(summary)

    def show() -> None:
        output.fields((name.replace("_", " "), _shown(found)) for name, found in value.items() if found is not None)

    return Answer(value, show, 0 if summary.validated else REFUSED)


def _shown(found: object) -> str:
    return ", ".join(map(str, found)) if isinstance(found, list | tuple) else str(found)


@command(Location.unopened)
def dismantle(
    location: Location,
    *,
    collection: Annotated[str, argument(metavar="COLLECTION", help="Collection of a dev ledger.")],
    reason: ReasonWord,
    mode: Annotated[str, word("--mode", "PLAN_ONLY, VERIFY_ONLY, DRY_RUN or REAL_RUN.", metavar="MODE")] = "DRY_RUN",
    root: Annotated[str | None, word("--root", "Root of the run, to continue one that was interrupted.")] = None,
    grant: GrantId = None,
    operator: OperatorWord = None,
) -> Answer:
    """Take a disposable collection of a dev ledger out of force. Nothing is deleted, and its audit stays.

    By default this is a dry run. A collection whose operations have open jobs is refused.
    """
    from holdfast.governance.registry.dismantle import dismantle as dismantled  # noqa: PLC0415 - see above

    with location.open() as store:
        report = dismantled(
            store, collection, actor=operator or actor(), reason=reason, mode=mode, root=root, grant_id=grant
        )
    value = msgspec.to_builtins(report)
    fields = {"dismantle": collection, "root": report.root, "mode": report.mode, "verdict": report.verdict}
    fields |= {"authority": report.authority, "failure": report.failure or ""}

    def show() -> None:
        output.fields((name, str(found)) for name, found in fields.items() if found)

    return Answer({"ok": report.ok, **value}, show, 0 if report.ok else REFUSED)
