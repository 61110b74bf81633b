"""`holdfast registry supersede | retire | rollback-check`: change the values in force, and check a rollback contract.

Invariants: `--dry-run` and `rollback-check` write nothing; a refusal exits with 3 and has written nothing; a verdict is
printed with its number and its name, and authorises nothing.
"""

import shlex
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.documents import converted, invalid, load_tree, read_file
from holdfast.cli.options import REFUSED, GrantId, OperatorWord, ReasonWord, actor, word
from holdfast.core.errors import InputError
from holdfast.core.json_input import loads
from holdfast.core.rollback import Contract, RollbackVerdict

if TYPE_CHECKING:  # the engine is imported only by the commands that need it
    from holdfast.governance.registry.change import ValueChange

Code = Annotated[str, argument(metavar="CODE", help="Code of the operation.")]
DryRun = Annotated[
    bool, option("--dry-run", help="Print what would be done, and the grant that it needs; change nothing.")
]


@command(Location.unopened)
def supersede(
    location: Location,
    *,
    code: Code,
    version: Annotated[str, argument(metavar="FROM", help="Version that is in force.")],
    to: Annotated[str, argument(metavar="TO", help="Version that replaces it.")],
    reason: ReasonWord,
    by: Annotated[
        str | None, word("--by", "Code of another operation, of which TO is a version in force.", metavar="CODE")
    ] = None,
    semantics: Annotated[
        str | None,
        word("--semantics", "Meaning of TO as JSON, or @FILE (default: the meaning of FROM).", metavar="JSON"),
    ] = None,
    semantics_of: Annotated[
        str | None, word("--semantics-of", "Copy the meaning of this version.", metavar="VERSION")
    ] = None,
    grant: GrantId = None,
    dry_run: DryRun = False,
    operator: OperatorWord = None,
) -> Answer:
    """Replace the version in force by a new version, or by another operation.

    From then on new jobs are accepted at version TO and refused at FROM; jobs that were accepted before still run. To
    roll back, supersede again: with a new version and --semantics-of the old one.
    """
    from holdfast.governance.registry import supersede as supersession  # noqa: PLC0415 - see above

    if semantics is not None and semantics_of is not None:
        raise InputError(
            "--semantics and --semantics-of exclude each other.", next_step="Remove one of the two options."
        )
    if by is not None and (semantics is not None or semantics_of is not None):
        raise InputError(
            "--by cannot be combined with --semantics or --semantics-of.", next_step="Remove one of the options."
        )
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
    version: Annotated[str, argument(metavar="VERSION", help="Version that is in force.")],
    reason: ReasonWord,
    grant: GrantId = None,
    dry_run: DryRun = False,
    operator: OperatorWord = None,
) -> Answer:
    """Retire an operation without a successor; new jobs are refused, accepted jobs still run."""
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
    contract: Annotated[Path, argument(metavar="CONTRACT", help="Rollback contract: a .json or .yaml file.")],
) -> Answer:
    """Check a rollback contract against the registry: PASS, or RBP-0 to RBP-10. It changes and authorises nothing.

    The exit code is 3 unless the verdict is PASS.
    """
    from holdfast.governance.registry.supersede import review  # noqa: PLC0415 - see above

    planned = converted(load_tree(contract), Contract)
    with location.open() as store, store.reading() as reading:
        verdict, facts = review(reading, planned)
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
    data = read_file(path)
    try:
        return loads(data)
    except InputError as error:
        raise invalid("semantics", error.message, file=str(path)) from None


def _name(value: Any) -> str | None:
    return None if value is None else f"{value.operation_code}@{value.protocol_version}"


def _answer(changed: "ValueChange", who: str, *, dry_run: bool) -> Answer:
    value = {**msgspec.to_builtins(changed), "code": changed.verdict.number}
    passed = changed.verdict is RollbackVerdict.PASS
    return Answer(value, lambda: _print(changed, who, dry_run=dry_run), 0 if passed else REFUSED)


def _print(changed: "ValueChange", who: str, *, dry_run: bool) -> None:
    moved = "retired" if changed.successor is None else f"superseded by {changed.successor}"
    if changed.changed:
        output.line(f"{changed.value} is {moved}, under grant {changed.grant_id} ({changed.rollback_ref}).")
    elif changed.rollback_ref is not None:
        output.line(f"{changed.value} was already {moved} ({changed.rollback_ref}).")
    else:
        output.line(f"{changed.value} would be {moved}.")
    if not dry_run or changed.rollback_ref is not None:
        return
    fields = {
        "admits": changed.successor if changed.admits else None,
        "plan": changed.plan,
        "verdict": f"{changed.verdict.number} {changed.verdict}",
        "authority": changed.authority,
        "grant": None if changed.grant_id is None else str(changed.grant_id),
    }
    output.fields((name, found) for name, found in fields.items() if found is not None)
    if changed.authority != "GO":
        target = shlex.quote(f"value:{changed.value}")
        wanted = f"registry.{changed.disposition} {target} --executor {shlex.quote(who)} --plan {changed.plan}"
        output.line(f"next: holdfast grant request {wanted} --rollback-plan TEXT --reason TEXT")
