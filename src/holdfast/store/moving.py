"""How a record that is one row moves: a grant, a run, a step, a switch, a value.

Invariants: it moves as `core.decide` says, matching id, state and version; zero rows is a refusal.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import TYPE_CHECKING, Any

from holdfast.core.decide import Move, Refused, decide, step_of
from holdfast.core.machine import Machine

if TYPE_CHECKING:
    from holdfast.store.store import Store


class Moving(ABC):
    """The part of a transaction that writes one decided move."""

    _store: Store[Any]

    def _moved(
        self, statement: str, machine: Machine, record: object, command: object, named: str, /, **params: object
    ) -> Move | Refused:
        """Decide a command and write its move; `named` is the record to people, `params` what the statement adds."""
        answer = decide(record, command, self._store.now())
        if isinstance(answer, Refused):
            return answer
        step = step_of(answer, machine.name)
        won = self._run(
            statement,
            source=step.source,
            version=step.version,
            state=step.target,
            edges=step.edges,
            event=step.event,
            **params,
        )
        return answer if won else Refused("race", f"{named} changed meanwhile")

    @abstractmethod
    def _run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]: ...

    @abstractmethod
    def _signature(self, actor: str | None, reason: str | None, move_id: str | None = None) -> dict[str, object]: ...
