"""The application of the golden files' scenario: an operation, and a procedure of two steps."""

from __future__ import annotations

from collections.abc import Iterator

from holdfast import Execution, Ledger, Step, StepContext, procedure

ledger = Ledger("nowhere.db")


@ledger.operation("greet")
def greet(run: Execution, name: str) -> str:
    """Return a greeting."""
    return f"hello {name}"


def _act(at: StepContext) -> dict[str, object]:
    return {"guest": at.params.get("guest", "ann")}


def _compensate(_at: StepContext) -> None:
    """Do nothing: the steps change nothing."""


@procedure("welcome", target=lambda params: f"guest:{params.get('guest', 'ann')}")
def welcome() -> Iterator[Step]:
    for name in ("S2_GREET", "S3_SEAT"):
        yield Step(name, _act, stop=f"STOP_{name}", compensate=_compensate)
