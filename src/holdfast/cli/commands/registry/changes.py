"""`holdfast registry supersede | retire | rollback-check`: what follows what, and what a rollback plan is worth.

Invariants: with `--dry-run`, and by `rollback-check`, nothing is written; a refusal exits with 3 and has written
nothing; a verdict is printed with its number and its name, and authorises nothing.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.commands.registry.options import REFUSED, GrantId, Operator, Reason
from holdfast.cli.documents import converted, invalid, load_tree
from holdfast.cli.options import actor, word
from holdfast.core.digest import loads
from holdfast.core.errors import InputError
from holdfast.core.rollback import Contract, RollbackVerdict

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.supersede import ValueChange

Code = Annotated[str, typer.Argument(metavar="CODE", help="The operation.")]
DryRun = Annotated[bool, typer.Option("--dry-run", help="Say what would be done, and what its grant must name.")]


@command(Location.unopened)
def supersede(
    location: Location,
    *,
    code: Code,
    version: Annotated[str, typer.Argument(metavar="FROM", help="The version that is in force.")],
    to: Annotated[str, typer.Argument(metavar="TO", help="The version that follows it.")],
    reason: Reason,
    by: Annotated[str | None, word("--by", "TO is a version of this operation, in force.", metavar="CODE")] = None,
    semantics: Annotated[
        str | None, word("--semantics", "What TO means, as JSON, or @FILE; if not what FROM meant.", metavar="JSON")
    ] = None,
    semantics_of: Annotated[
        str | None, word("--semantics-of", "TO means what this version meant.", metavar="VERSION")
    ] = None,
    grant: GrantId = None,
    dry_run: DryRun = False,
    operator: Operator = None,
) -> Answer:
    """Let a new version follow the one in force, or let another operation replace it.

    New work is taken at TO from then on, and refused at FROM; jobs that were taken before still run. To go back, go
    forward: to a new version with --semantics-of the old one.
    """
    from holdfast.governance.registry import supersede as supersession  # noqa: PLC0415 - see above

    if semantics is not None and semantics_of is not None:
        raise InputError("a value has one meaning", next_step="Give --semantics or --semantics-of, not both.")
    if by is not None and (semantics is not None or semantics_of is not None):
        raise InputError("what is in force already has its meaning", next_step="Leave it out, or leave --by out.")
    means: Any = msgspec.UNSET if semantics is None else _meaning(semantics)
    with location.open() as store:
        changed = supersession.supersede(
            store,
            code,
            version,
            to,
            by=by,
            semantics=means,
            semantics_of=semantics_of,
            actor=operator or actor(),
            reason=reason,
            grant_id=grant,
            dry_run=dry_run,
        )
    return _answer(changed, operator or actor(), dry_run=dry_run)


@command(Location.unopened)
def retire(
    location: Location,
    *,
    code: Code,
    version: Annotated[str, typer.Argument(metavar="VERSION", help="The version that is in force.")],
    reason: Reason,
    grant: GrantId = None,
    dry_run: DryRun = False,
    operator: Operator = None,
) -> Answer:
    """Let an operation be used for nothing new, and be followed by nothing; jobs that were taken before still run."""
    from holdfast.governance.registry import supersede as supersession  # noqa: PLC0415 - see above

    with location.open() as store:
        changed = supersession.retire(
            store, code, version, actor=operator or actor(), reason=reason, grant_id=grant, dry_run=dry_run
        )
    return _answer(changed, operator or actor(), dry_run=dry_run)


@command(Location.unopened)
def rollback_check(
    location: Location,
    *,
    contract: Annotated[Path, typer.Argument(metavar="CONTRACT", help="What is planned: a .json or .yaml file.")],
) -> Answer:
    """Hold a rollback contract against the registry: RBP-0 to RBP-10, or PASS. It changes and authorises nothing.

    Exit code 3 unless it passes.
    """
    from holdfast.governance.registry.supersede import review  # noqa: PLC0415 - see above

    wish = converted(load_tree(contract), Contract)
    with location.open() as store, store.reading() as reading:
        verdict, facts = review(reading, wish)
    value = {
        "verdict": str(verdict),
        "code": verdict.number,
        "valid_for_review": verdict is RollbackVerdict.PASS,
        "target": _name(facts.target),
        "successor": _name(facts.successor),
        "open_jobs": facts.open_jobs,
        "authorises": None,
    }
    return Answer(value, f"{verdict.number} {verdict}", 0 if verdict is RollbackVerdict.PASS else REFUSED)


def _meaning(text: str) -> Any:
    if not text.startswith("@"):
        return loads(text)
    path = Path(text[1:])
    try:
        return loads(path.read_bytes())
    except OSError as error:
        raise InputError(f"{path} cannot be read: {error.strerror}", context={"file": str(path)}) from None
    except InputError as error:
        raise invalid("semantics", error.message, file=str(path)) from None


def _name(value: Any) -> str | None:
    return None if value is None else f"{value.operation_code}@{value.protocol_version}"


def _answer(changed: "ValueChange", who: str, *, dry_run: bool) -> Answer:
    value = {**msgspec.to_builtins(changed), "code": changed.verdict.number}
    passed = changed.verdict is RollbackVerdict.PASS
    return Answer(value, lambda: _print(changed, who, dry_run=dry_run), 0 if passed else REFUSED)


def _print(changed: "ValueChange", who: str, *, dry_run: bool) -> None:
    moved = "retired" if changed.successor is None else f"followed by {changed.successor}"
    if changed.changed:
        output.line(f"{changed.value} is {moved}, under grant {changed.grant_id} ({changed.rollback_ref})")
    elif changed.rollback_ref is not None:
        output.line(f"{changed.value} was {moved} already ({changed.rollback_ref})")
    else:
        output.line(f"{changed.value} would be {moved}")
    if not dry_run or changed.rollback_ref is not None:
        return
    told = {
        "admits": changed.successor if changed.admits else None,
        "plan": changed.plan,
        "verdict": f"{changed.verdict.number} {changed.verdict}",
        "authority": changed.authority,
        "grant": None if changed.grant_id is None else str(changed.grant_id),
    }
    output.fields((name, found) for name, found in told.items() if found is not None)
    if changed.authority != "GO":
        target = shlex.quote(f"value:{changed.value}")
        asked = f"registry.{changed.disposition} {target} --executor {shlex.quote(who)} --plan {changed.plan}"
        output.line(f"ask for it: holdfast grant request {asked} --rollback-plan TEXT --reason TEXT")
