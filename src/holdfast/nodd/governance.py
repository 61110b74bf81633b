"""governance-gate: tests rules on a unit before it is catalogued.

A unit passes four gates in this order: schema (message, structure and metadata), FAIR (findable and usable data), CARE
(rights in the data) and PROV (provenance). The first three are tested here.

Invariants: the gate is the same for a first run and for a replay; an unknown rule refuses the unit; a hard failure is
never retried; a gate is tested only after the gate before it has passed.
"""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Mapping
from fnmatch import fnmatchcase
from pathlib import Path

import msgspec

from holdfast.core.errors import SpecInvalidError
from holdfast.nodd.dataset import Dataset
from holdfast.nodd.units import Operator, OperatorVerdict, Unit

HARD_FAIL, HOLD, PASS = "hard_fail", "hold", "pass"
HARD_FAIL_CODE = "governance_hard_fail"
FAIL, WAIVED = "fail", "waived"
SCHEMA, FAIR, CARE, PROV = ("A-schema", "B-fair", "C-care", "D-prov")
_BY_RULES = {"fair": FAIR, "care": CARE}


class GovernanceRule(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One rule: its condition, the datasets and keys that it applies to, and the result if the condition fails."""

    id: str
    asks: str
    gate: str = "care"  # or "fair", which is tested first
    then: str = HARD_FAIL
    datasets: tuple[str, ...] = ("*",)
    keys: tuple[str, ...] = ("*",)
    why: str = ""


class GovernanceRules(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """All rules in order. The shipped rules require a licence, and forbid restricted keys."""

    rules: tuple[GovernanceRule, ...] = (
        GovernanceRule(id="license", asks="license", gate="fair", why="a collection must name the licence of its data"),
        GovernanceRule(
            id="not-forbidden", asks="allowed", keys=("*/restricted/*",), why="restricted data is not catalogued"
        ),
    )


_Verdicts = Mapping[Operator, OperatorVerdict]


def _license(_unit: Unit, dataset: Dataset, _verdicts: _Verdicts) -> bool:
    return bool(dataset.spec.collection.license.strip())


def _never(_unit: Unit, _dataset: Dataset, _verdicts: _Verdicts) -> bool:
    return False


def _checksum(_unit: Unit, _dataset: Dataset, verdicts: _Verdicts) -> bool:
    return bool({"md5", "etag_match"} & set(verdicts[Operator.INTEGRITY].checks_run))


def _integrity_ok(_unit: Unit, _dataset: Dataset, verdicts: _Verdicts) -> bool:
    return verdicts[Operator.INTEGRITY].status == "ok"


def _metadata_ok(_unit: Unit, _dataset: Dataset, verdicts: _Verdicts) -> bool:
    return verdicts[Operator.METADATA].status == "ok"


QUESTIONS: dict[str, Callable[[Unit, Dataset, _Verdicts], bool]] = {
    "license": _license,
    "allowed": _never,
    "checksum": _checksum,
    "integrity-ok": _integrity_ok,
    "metadata-ok": _metadata_ok,
}


def gate(unit: Unit, dataset: Dataset, verdicts: _Verdicts, rules: GovernanceRules) -> OperatorVerdict:
    """Return the verdict on a unit: pass, hold or hard_fail. The first rule that does not hold decides."""
    tested: list[str] = []
    passed: dict[str, str] = {}

    def verdict(status: str, issues: tuple[str, ...] = (), **data: object) -> OperatorVerdict:
        details = {**data, "gates": passed}
        return OperatorVerdict(
            operator=Operator.GOVERNANCE, status=status, issues=issues, checks_run=tuple(tested), data=details
        )

    # The operators before this one have refused units without a valid schema.
    passed[SCHEMA] = PASS
    for name, gate_ in _BY_RULES.items():
        for rule in rules.rules:
            if rule.gate != name or not _concerns(rule, unit):
                continue
            tested.append(rule.id)
            question = QUESTIONS.get(rule.asks)
            if question is None or not question(unit, dataset, verdicts):
                passed[gate_] = FAIL
                status = HOLD if rule.then == HOLD and question is not None else HARD_FAIL
                return verdict(status, (f"rule:{rule.id}",), rule_id=rule.id, why=rule.why)
        passed[gate_] = PASS
    return verdict(PASS)


def _concerns(rule: GovernanceRule, unit: Unit) -> bool:
    return any(fnmatchcase(unit.dataset, name) for name in rule.datasets) and any(
        fnmatchcase(unit.notice.key, pattern) for pattern in rule.keys
    )


def rules_from(path: Path) -> GovernanceRules:
    """Return the rules of a TOML file; raise SpecInvalidError if the file is not valid."""
    try:
        found = msgspec.convert(tomllib.loads(path.read_text(encoding="utf-8")), GovernanceRules)
    except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError, msgspec.ValidationError) as error:
        problem, _, where = str(error).partition(" - at `$")
        raise SpecInvalidError(f"{path}: {problem}", context={"path": where.strip("`.")}) from None
    for number, rule in enumerate(found.rules):
        if rule.asks not in QUESTIONS or rule.then not in (HARD_FAIL, HOLD) or rule.gate not in _BY_RULES:
            raise SpecInvalidError(
                f"{path}: rule {rule.id!r} has an unknown value of asks, gate or then",
                next_step=f"asks: {', '.join(QUESTIONS)}; gate: fair or care; then: {HARD_FAIL} or {HOLD}.",
                context={"path": f"rules[{number}]"},
            )
    return found
