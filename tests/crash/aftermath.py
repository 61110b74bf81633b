"""What must hold of the ledger of a reference run, wherever that was cut off: as it is found, and once worked off.

Invariants: only what was answered is required; other work may be there or not, and is done once in the end.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from holdfast import Worker
from holdfast.core.machines import ExecutionStatus, JobState
from holdfast.testing import VirtualClock
from tests.crash.reference_run import KEYS, LEASE_S, reference_ledger, submit_all
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import CLIENT, create_effects


def make_template(directory: Path) -> None:
    with reference_ledger(str(directory / "template.db"), VirtualClock()) as ledger:
        create_effects(ledger)


def require_sound(path: Path, notes: Sequence[str]) -> None:
    """Fail unless every answer is true of the ledger that was left, and everything in it can be worked off."""
    clock = VirtualClock()
    clock.advance(10 * LEASE_S)
    with reference_ledger(str(path), clock) as ledger:
        found = Facts(ledger)
        require_promises(found, acknowledged=[(CLIENT, key) for key in _answers(notes, "submitted")])
        for key in _answers(notes, "completed"):
            assert found.by_key[CLIENT, key].state is JobState.SUCCEEDED, f"completed, but lost: {key}"
        for key in _answers(notes, "committed"):
            [execution] = found.executions[found.by_key[CLIENT, key].job_id]
            assert execution.status in (ExecutionStatus.COMMITTED, ExecutionStatus.DONE), f"committed, but lost: {key}"
        # A client that got no answer asks again under the same key; a worker takes up what lies there.
        submit_all(ledger)
        Worker(ledger, executor="inline").run(until_idle=True)
        facts = Facts(ledger)
        require_promises(facts)
        require_all_done(facts, jobs=len(KEYS))


def _answers(notes: Sequence[str], word: str) -> set[str]:
    """Return the keys that were answered with this word."""
    return {key for first, *keys in map(str.split, notes) if first == word for key in keys}
