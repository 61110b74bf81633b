"""Work in steps: a generator that pauses after every short step, so that its caller decides when to continue.

Invariants: no transaction is open between two steps; a caller may drop the generator after any step.
"""

from __future__ import annotations

from collections.abc import Generator
from typing import TypeAlias, TypeVar

T = TypeVar("T")

Steps: TypeAlias = Generator[int | None, None, T]
"""Yields after each step how many steps are left, about, or None if that is unknown; returns the result."""


def run_steps(steps: Steps[T]) -> T:
    """Run every step without a pause, and return the result."""
    while True:
        try:
            next(steps)
        except StopIteration as end:
            result: T = end.value
            return result
