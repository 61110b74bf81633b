"""Governed ledgers with a few operations in force, and what processes do to them: supersede, submit, die.

Invariants: a role writes down what it was answered by one write, after the answer.
"""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from holdfast import Execution, Ledger, Operations
from holdfast.core.authority import Act, Wanted
from holdfast.core.errors import HoldfastError
from holdfast.core.manifest import read_manifest
from holdfast.governance import grants
from holdfast.governance.approval import Identity, environment_of
from holdfast.governance.registry.change import ValueChange
from holdfast.governance.registry.registry import build, request_build
from holdfast.governance.registry.supersede import retire, supersede
from holdfast.store import Store, open_store
from tests.governance.registries import REAL, WHO, value
from tests.support.ledgers import new_store
from tests.support.roles import note
from tests.support.trap import die

SHIP_1, SHIP_2 = {"description": "by sea"}, {"description": "by air"}


def made(url: str, **settings: Any) -> Store[Any]:
    """Make a governed ledger, with nothing in force."""
    return new_store(url, **{"governed": True, **settings})


def built(store: Store[Any], *values: dict[str, Any]) -> None:
    """Put values in force, under a grant that another person has approved."""
    manifest = read_manifest({"values": list(values)})
    grant = request_build(
        store, manifest, executor="ann", requester="ann", rollback_plan="withhold them", reason="a test"
    )
    grants.approve(store, grant.grant_id, Identity(name="bob"))
    done = build(store, manifest, grant_id=grant.grant_id, **REAL)
    assert done.report.verdict == "DONE", done


def governed(url: str, **settings: Any) -> Store[Any]:
    """Make a governed ledger with ship 1.0.0, pack 1.0.0 and, of another authority, tax 1.0.0 in force."""
    store = made(url, **settings)
    built(
        store,
        value("ship", semantics_frozen=SHIP_1),
        value("pack"),
        value("tax", governing_authority_ref="office:1"),
    )
    return store


def permitted(store: Store[Any], wanted: ValueChange, *, executor: str = "ann", **more: Any) -> int:
    """Request the grant that a dry run names, have another person approve it, and return its id."""
    with store.reading() as reading:
        environment = environment_of(reading)
    act = Act(f"registry.{wanted.disposition}")
    what = Wanted(
        act=act,
        target=f"value:{wanted.value}",
        environment=environment,
        executor=executor,
        plan=wanted.plan,
        **more,
    )
    grant = grants.request(store, what, requester="ann", rollback_plan="runbook 7", reason="release 8")
    grants.approve(store, grant.grant_id, Identity(name="bob"))
    return grant.grant_id


def states(store: Store[Any]) -> dict[str, str]:
    """Return the state of every value, by its name."""
    with store.reading() as reading:
        rows = reading.registry.values(limit=1000)
    return {f"{row.operation_code}@{row.protocol_version}": str(row.state) for row in rows}


def shipping(*versions: str) -> Operations:
    """Return handlers of `ship`, one for each version, that say which they are."""
    operations = Operations()

    def declare(version: str) -> None:
        @operations.operation("ship", version=version)
        def ship(run: Execution, n: int = 0) -> str:
            return version

    for version in versions:
        declare(version)
    return operations


# ---------------------------------------------------------------------------------------------------------------------
# Roles


WRITES = frozenset({
    "acquire_lease", "insert_grant", "move_grant", "add_evidence", "move_value", "insert_value", "release_lease",
})  # fmt: skip


def die_at(url: str, *, write: int, notes: str) -> None:
    """Supersede, and end by SIGKILL just after a write, counted from 0: just before the first; note them all else."""
    with open_store(url) as store:
        run, seen = store.run, list[str]()

        def counted(connection: Any, name: str, params: Any) -> Any:
            if name in WRITES and len(seen) == write == 0:
                die()
            answer = run(connection, name, params)
            if name in WRITES:
                seen.append(name)
                if len(seen) == write:
                    die()
            return answer

        store.run = counted  # type: ignore[method-assign]
        supersede(store, "ship", "1.0.0", "2.0.0", semantics=SHIP_2, **WHO)
        note(notes, " ".join(seen))


def race(url: str, *, to: str | None, directory: str) -> None:
    """Say that all is ready, supersede or retire as soon as the gate is there, and write down the result."""
    here, name = Path(directory), to or "retire"
    with open_store(url) as store:
        (here / f"{name}.ready").touch()
        while not (here / "gate").exists():
            time.sleep(0.0005)
        try:
            done = supersede(store, "ship", "1.0.0", to, **WHO) if to else retire(store, "ship", "1.0.0", **WHO)
            said = f"changed {done.changed}"
        except HoldfastError as error:
            said = error.code
    (here / name).write_text(said, encoding="utf-8")


def submit(url: str, *, versions: list[str], client: str, notes: str, until: str) -> None:
    """Submit by name until a file appears, and note each answer with the times before and after it."""
    with Ledger(url, shipping(*versions)) as ledger:
        n = 0
        while not Path(until).exists():
            began = time.monotonic_ns()
            try:
                ledger.submit("ship", {"n": n}, client=client, key=str(n))
                said = "taken"
            except HoldfastError as error:
                said = error.code
            note(notes, f"{client} {n} {said} {began} {time.monotonic_ns()}")
            n += 1
