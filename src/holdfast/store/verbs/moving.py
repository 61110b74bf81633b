"""The base class of verbs that move one record of governance or configuration.

Invariants: a record moves as `core.decide` says, matching its id, state and version.
"""

from __future__ import annotations

from holdfast.core.decide import Move, Refused, decide, step_of
from holdfast.core.machine import Machine
from holdfast.store.verbs.base import WritingVerbs


class MovingVerbs(WritingVerbs):
    """A group of verbs that move one record at a time."""

    @staticmethod
    def _birth(machine: Machine, event: str) -> dict[str, object]:
        """Return the parameters of a statement that inserts a record: the state, version and event of its birth."""
        path = machine.path(event, None)
        return {"state": path.target, "version": len(path.edges), "event": path.event}

    def _move_one(
        self, statement: str, machine: Machine, record: object, command: object, label: str, /, **params: object
    ) -> Move | Refused:
        """Decide a command and write its move; `label` names the record in messages, `params` go to the statement."""
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
        return answer if won else Refused("race", f"another process changed {label}; read it again")
