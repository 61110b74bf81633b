"""What the children of the race tests do: use one grant, or take one lease, at the same moment as another process.

Invariants: a child says that it is ready, waits for a file, and notes one line a round; what it writes in an act has
its own name in it, so that a loser's write would be seen.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from datetime import timedelta
from pathlib import Path

from holdfast.core.authority import Act, Wanted
from holdfast.core.errors import AuthorityError
from holdfast.governance.grants import authorise
from holdfast.governance.leases import acquire
from holdfast.store import Submission, open_store
from tests.support.roles import note
from tests.support.trap import die

ROUND_S = 30.0


def wait_for(directory: str, what: str) -> None:
    """Wait for the file that starts the race."""
    deadline = time.monotonic() + ROUND_S
    while not Path(directory, what).exists():
        if time.monotonic() > deadline:
            raise TimeoutError(what)
        time.sleep(0.0005)


def use_grants(url: str, *, name: str, targets: Sequence[str], directory: str) -> None:
    """Use the grant for each target, in the same round as the others, and write a job with it."""
    with open_store(url) as store:
        for number, target in enumerate(targets):
            wanted = Wanted(act=Act.RELEASE, target=target, environment="stage", executor="ann")
            Path(directory, f"{name}-ready-{number}").touch()
            wait_for(directory, f"go-{number}")
            try:
                with store.transaction() as transaction:
                    [grant] = transaction.grants.page(target=target)
                    authorise(transaction, wanted, grant_id=grant.grant_id, reason=name)
                    transaction.leases.acquire(target, name, 60)
                    transaction.jobs.submit([Submission(operation="noop", payload="{}", key=f"{target} by {name}")])
                    time.sleep(0.02)  # so that the other one is under way too
                answer = "won"
            except AuthorityError as error:
                answer = error.code
            note(Path(directory, "answers"), f"{number} {name} {answer}")


def use_a_grant_and_die(url: str, *, target: str) -> None:
    """Use a grant, and be killed before the transaction that used it is committed."""
    with open_store(url) as store, store.transaction() as transaction:
        wanted = Wanted(act=Act.RELEASE, target=target, environment="stage", executor="ann")
        authorise(transaction, wanted, grant_id=None, reason="the last thing it did")
        transaction.jobs.submit([Submission(operation="noop", payload="{}", key=f"{target} by the dead")])
        die()


def take_leases(url: str, *, name: str, rounds: int, directory: str) -> None:
    """Take a lease of its own name in every round, at the same moment as the others."""
    with open_store(url) as store:
        for number in range(rounds):
            Path(directory, f"{name}-ready-{number}").touch()
            wait_for(directory, f"go-{number}")
            token = acquire(store, f"lease-{number}", name, timedelta(minutes=5))
            note(Path(directory, "answers"), f"{number} {name} {'won' if token else 'lost'}")
