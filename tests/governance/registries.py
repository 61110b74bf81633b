"""Manifests to build, and what there is to see of a build afterwards: everything that matters, under common names.

Invariants: two builds of alike manifests have the same `image`, whatever their collections are called; `everything`
leaves no table out; edits past the triggers use no verb of Holdfast.
"""

from __future__ import annotations

import itertools
import json
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from holdfast.core.authority import Act, Wanted
from holdfast.core.digest import canonical, cser_digest, sha256
from holdfast.core.errors import HoldfastError
from holdfast.core.manifest import Manifest, read_manifest
from holdfast.engine.world import Crash, World
from holdfast.governance import grants
from holdfast.governance.approval import Identity, environment_of
from holdfast.governance.registry.build import BUILD
from holdfast.governance.registry.registry import build, request_build
from holdfast.store import Store, open_store
from tests.audit.knife import without_triggers
from tests.enforcement.raw import Client
from tests.governance.granting import approve_in_prod
from tests.support.ledgers import new_ledger
from tests.support.postgres import Server, tmpfs_directory
from tests.support.trap import die

WHO: Any = {"actor": "ann", "reason": "a test"}
REAL: Any = {**WHO, "mode": "REAL_RUN"}
STATES = (
    "S0_PREFLIGHT",
    "S1_RESERVED",
    "S2_SCHEMA",
    "S3_VERIFY_SCHEMA",
    "S4_VALUES",
    "S5_VERIFY_VALUES",
    "S6_EVIDENCE",
    "S7_FINALIZE",
)
_names = itertools.count()
VALUE_COLUMNS = (
    "vocab_id", "collection", "operation_code", "protocol_version", "act_type", "semantics", "authority_ref", "digest",
    "status", "state", "version", "run_id", "created_at", "updated_at", "event", "actor", "reason", "move_id",
    "grant_id",
)  # fmt: skip


def value(code: str, version: str = "1.0.0", **fields: Any) -> dict[str, Any]:
    return {
        "operation_code": code,
        "protocol_version": version,
        "act_type": "operation",
        "governing_authority_ref": "board:7",
        "semantics_frozen": {"description": "does it"},
        **fields,
    }


def manifest(collection: str | None = None, codes: str = "abc", **fields: Any) -> Manifest:
    """Return a manifest of a collection of its own, with codes that no other collection has."""
    name = collection or f"c{next(_names)}"
    document = {"collection": name, "values": [value(f"{name}.{code}") for code in codes], **fields}
    return read_manifest(document)


def in_force(store: Store[Any], collection: str | None = None) -> list[str]:
    with store.reading() as reading:
        return [f"{row.operation_code}@{row.protocol_version}" for row in reading.registry.values_in_force(collection)]


def names(wanted: Manifest) -> list[str]:
    return [each.name for each in wanted.values]


def registry_status(store: Store[Any], wanted: Manifest) -> tuple[str | None, set[str]]:
    """Return the registry status of a manifest's collection, and those of its values."""
    with store.reading() as reading:
        known = reading.registry.collection(wanted.collection)
        rows = reading.registry.values(collection=wanted.collection)
    return (known.status if known else None), {row.status for row in rows}


def built(store: Store[Any], **fields: Any) -> Manifest:
    """Build a collection, and return its manifest."""
    wanted = manifest(**fields)
    assert build(store, wanted, root=wanted.collection, **REAL).ok
    return wanted


def like(wanted: Manifest, *values: dict[str, Any], **fields: Any) -> Manifest:
    """Return a manifest for the same collection."""
    return read_manifest({"collection": wanted.collection, "values": list(values), **fields})


def granted(store: Store[Any], wanted: Manifest, **settings: Any) -> int:
    """Request the grant of a build as ann, and let bob approve it as this ledger requires."""
    draft = request_build(
        store, wanted, executor="ann", requester="ann", rollback_plan="supersede them", reason="release 7", **settings
    )
    with store.reading() as reading:
        prod = environment_of(reading) == "prod"
    if prod:
        return approve_in_prod(store, draft.grant_id).grant_id
    return grants.approve(store, draft.grant_id, Identity(name="bob", method="claimed")).grant_id


# ---------------------------------------------------------------------------------------------------------------------
# Ledgers

BOTH = ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)]


def governed(request: pytest.FixtureRequest) -> Iterator[Store[Any]]:
    """Yield a governed ledger, in which every test builds a collection of its own: the body of a fixture."""
    for ledgers in several(request):
        yield ledgers["dev"]


def several(request: pytest.FixtureRequest) -> Iterator[Ledgers]:
    """Yield ledgers of one database: the body of a fixture."""
    with tempfile.TemporaryDirectory(dir=tmpfs_directory()) as directory, ExitStack() as used:

        def make(name: str, environment: str, *, governed: bool) -> str:
            original = new_ledger(environment, governed=governed)
            if request.param == "postgres":
                server: Server = request.getfixturevalue("pg_server")
                return used.enter_context(original.on(server, request.node.nodeid))[0]
            original.to_file(url := f"sqlite:///{directory}/{name}.db")
            return url

        made = Ledgers(make)
        yield made
        made.close()


class Ledgers:
    """Ledgers of one database, made when they are first used."""

    def __init__(self, make: Callable[..., str]) -> None:
        self._make = make
        self._made: dict[str, Store[Any]] = {}

    def __getitem__(self, name: str) -> Store[Any]:
        """Return the governed ledger of an environment; `plain` is one that is not governed, `hurt` one to be hurt."""
        if name not in self._made:
            environment = name if name in ("stage", "prod") else "dev"
            self._made[name] = open_store(self._make(name, environment, governed=name != "plain"))
        return self._made[name]

    def close(self) -> None:
        for store in self._made.values():
            store.close()


# ---------------------------------------------------------------------------------------------------------------------
# Worlds


def at(point: str, what: Callable[[], object]) -> World:
    """Return a world in which something happens when a point is reached for the first time."""
    left = [point]

    def reach(here: str) -> None:
        if here in left:
            left.remove(here)
            what()

    return World(reach=reach)


def crashing(point: str) -> World:
    def die() -> None:
        raise Crash(point)

    return at(point, die)


def both(*worlds: World) -> World:
    """Return a world in which everything happens that happens in any of these."""

    def reach(here: str) -> None:
        for world in worlds:
            world.reach(here)

    return World(reach=reach)


# ---------------------------------------------------------------------------------------------------------------------
# What a build leaves


def everything(store: Store[Any]) -> dict[str, list[str]]:
    """Return every row of every table of the ledger."""
    listing = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'table' ORDER BY name",
        "postgres": "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename",
    }
    with store.reading() as reading:
        tables = [str(name) for (name,) in reading.execute(listing[store.dialect])]
        assert {"holdfast_journal", "holdfast_leases", "holdfast_values", "holdfast_evidence"} <= set(tables)
        return {name: sorted(map(repr, reading.execute(f"SELECT * FROM {name}"))) for name in tables}


def image(store: Store[Any], wanted: Manifest, root: str) -> dict[str, Any]:
    """Return all that a build has left, with the names, digests and numbers of this one under common names."""
    with store.reading() as reading:
        run = reading.runs.get(root)
        if run is None:
            return {}
        now = reading.now()
        known = reading.registry.collection(wanted.collection)
        rows = reading.registry.values(collection=wanted.collection)
        grants = reading.grants.page(target=f"registry:{wanted.collection}")
        subjects = [("PROCEDURE", run.run_id), *(("GRANT", grant.grant_id) for grant in grants)]
        subjects += [("VALUE", row.value_id) for row in rows]
        evidence = reading.runs.evidence(run.run_id)
        facts: dict[str, Any] = {
            "run": [run.procedure, run.state, run.step, run.stop_state, run.failure, run.plan, sha256(run.params)],
            "steps": [(step.number, step.name, step.state) for step in reading.runs.steps(run.run_id)],
            "outcomes": {
                step.name: json.loads(step.outcome) for step in reading.runs.performed_steps(run.run_id).values()
            },
            "collection": known and [known.status, known.schema_digest, known.manifest_digest],
            "values": [
                [row.operation_code, row.protocol_version, row.status, row.state, row.digest, row.semantics]
                for row in rows
            ],
            "own": [(row.run_id == run.run_id, row.grant_id == run.grant_id) for row in rows],
            "evidence": [
                [row.kind, json.loads(row.content), sha256(row.content) == row.digest, row.voided_at is None]
                for row in evidence
            ],
            "grants": [[grant.action, grant.state, grant.consumed_by] for grant in grants],
            "journal": [
                [machine, entry.event, entry.source, entry.target]
                for machine, subject in subjects
                for entry in reading.journal.of(subject, machine)
            ],
            "lease": reading.leases.all()[run.lease].expires_at <= now,
        }
    noted = facts["outcomes"].get("S6_EVIDENCE")
    if noted is not None:  # of texts that hold names of this one
        assert noted["digests"] == {row.kind: row.digest for row in evidence if row.voided_at is None}
        facts["outcomes"]["S6_EVIDENCE"] = sorted(noted["digests"])
    return _common(facts, wanted, root)


def _same_digest_anywhere(facts: dict[str, Any]) -> None:
    """Take out digests over rows with names of this one, once they are known to be right."""
    for kind, content, *_ in facts["evidence"]:
        if kind == "after_snapshot":
            assert content["digest"] == cser_digest({"values": content["rows"]})
            content["digest"] = "ROWS"


def _common(facts: dict[str, Any], wanted: Manifest, root: str) -> dict[str, Any]:
    _same_digest_anywhere(facts)
    text = json.dumps(facts)
    for name, common in (
        (wanted.digest, "MANIFEST"),
        (BUILD.plan_of(wanted.text), "PLAN"),
        (sha256(canonical(wanted.text)), "PARAMS"),
        *((each.digest, f"VALUE-{number}") for number, each in enumerate(wanted.values)),
        (root, "ROOT"),
        (f"{wanted.collection}.", "C."),
        (f"registry:{wanted.collection}", "registry:C"),
        (f'"{wanted.collection}"', '"C"'),
    ):
        text = text.replace(name, common)
    found: dict[str, Any] = json.loads(text)
    return found


# ---------------------------------------------------------------------------------------------------------------------
# Edits past the ledger


def by_hand(url: str, *statements: str) -> None:
    """Carry out statements of one's own, with every guard in place."""
    client = Client(url)
    try:
        for statement in statements:
            client.run(statement)
        client.commit()
    finally:
        client.close()


def retire(store: Store[Any], code: str, version: str = "1.0.0") -> None:
    """Retire a value under a grant of its own, by hand."""
    move_id = uuid4().hex
    with store.transaction() as transaction:
        wanted = Wanted(act=Act.RETIRE, target=f"{code}@{version}", environment="dev", executor="ann")
        grant_id = grants.issue(transaction, wanted, reason="old", move_id=move_id)
        moved = transaction.query(
            "UPDATE holdfast_values SET state = 'retired', version = version + 1, event = 'retire', actor = 'ann',"
            " move_id = :move_id, grant_id = :grant_id WHERE operation_code = :code AND protocol_version = :version"
            " RETURNING value_id",
            {"move_id": move_id, "grant_id": grant_id, "code": code, "version": version},
        )
        assert len(moved[1]) == 1


def unguarded(store: Store[Any], *statements: str) -> None:
    """Carry out statements with the guards off; then they are as they were."""
    client = Client(store.url)
    try:
        with without_triggers(client):
            for statement in statements:
                client.run(statement)
        client.commit()
    finally:
        client.close()


def triggers(client: Client) -> list[str]:
    """Return the names of the triggers that guard values."""
    listing = {
        "sqlite": "SELECT name FROM sqlite_master WHERE type = 'trigger' AND tbl_name = 'holdfast_values' ORDER BY 1",
        "postgres": "SELECT tgname FROM pg_trigger WHERE tgrelid = 'holdfast_values'::regclass AND NOT tgisinternal"
        " ORDER BY tgname",
    }
    return [str(name) for (name,) in client.run(listing[client.dialect])]


def inserting(like_code: str, **columns: object) -> str:
    """Return the INSERT of a value that is like one that is there, but for these columns."""
    values = {"vocab_id": f"'{uuid4()}'", "move_id": f"'{uuid4().hex}'", **columns}
    picked = ", ".join(str(values.get(name, name)) for name in VALUE_COLUMNS)
    return (
        f"INSERT INTO holdfast_values ({', '.join(VALUE_COLUMNS)}) SELECT {picked} FROM holdfast_values"
        f" WHERE operation_code = '{like_code}' LIMIT 1"
    )


def boom(dialect: str, name: str, event: str, table: str, condition: str = "true") -> list[str]:
    """Return what makes a table refuse an event, by a trigger of one's own."""
    if dialect == "sqlite":
        when = condition.replace("true", "1")
        return [f"CREATE TRIGGER {name} BEFORE {event} ON {table} WHEN {when} BEGIN SELECT RAISE(ABORT, 'boom'); END"]
    function = (
        f"CREATE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF {condition} THEN"
        " RAISE EXCEPTION 'boom'; END IF; RETURN NEW; END $$"
    )
    return [function, f"CREATE TRIGGER {name} BEFORE {event} ON {table} FOR EACH ROW EXECUTE FUNCTION {name}()"]


def calm(dialect: str, name: str, table: str) -> list[str]:
    """Return what takes such a trigger away again."""
    if dialect == "sqlite":
        return [f"DROP TRIGGER {name}"]
    return [f"DROP TRIGGER {name} ON {table}", f"DROP FUNCTION {name}"]


# ---------------------------------------------------------------------------------------------------------------------
# Roles of other processes


def die_at(url: str, document: dict[str, Any], root: str, point: str) -> None:
    """Build until a point is reached, and end there by SIGKILL."""
    killed = at(point, die)
    with open_store(url) as store:
        build(store, read_manifest(document), root=root, world=killed, **REAL)


def race(*, url: str, document: dict[str, Any], root: str, grant_id: int, directory: str) -> None:
    """Say that all is ready, build as soon as the gate is there, and write down the result."""
    here = Path(directory)
    with open_store(url) as store:
        (here / f"{root}.ready").touch()
        while not (here / "gate").exists():
            time.sleep(0.0005)
        try:
            said = build(store, read_manifest(document), root=root, grant_id=grant_id, **REAL).report.verdict
        except HoldfastError as error:
            said = error.code
    (here / root).write_text(said, encoding="utf-8")
