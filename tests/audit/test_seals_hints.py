"""Forged hints that would stop a sealer or a verifier: they are reported, and no row is left out.

Invariants: every case is committed by a raw client, most of them without dropping a trigger.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.files.snapshot import create
from holdfast.audit.seals.export import export_file
from holdfast.audit.seals.sealer import head, seal
from holdfast.audit.seals.verify import verify
from holdfast.core.errors import StoreDamagedError
from holdfast.store import Store, create_store, open_store
from tests.audit.sealing import SEAL_COLUMNS, guards_off, loose_rows, seals, submit, write_epoch
from tests.enforcement.raw import DOOR, SHUT, Client


def edit(url: str, *statements: str) -> None:
    """Run statements as any client of the database can, under all triggers."""
    client = Client(url)
    for statement in statements:
        client.run(statement)
    client.commit()
    client.close()


@pytest.mark.req("G-23")
def test_a_forged_seal_floor_does_not_stop_sealing(ledger_url: str) -> None:
    """By plain SQL, with every trigger in place."""
    with create_store(ledger_url) as store:
        submit(store)
        seal(store)
        for n in range(2, 5):
            edit(
                ledger_url,
                "DELETE FROM holdfast_meta WHERE name = 'seal_floor'",
                "INSERT INTO holdfast_meta (name, value) VALUES ('seal_floor', '1 1000000000')",
            )
            submit(store)
            assert [p.kind for p in verify(store).problems] == ["floor_differs"]
            assert head(store).rows == 8 * n
            assert loose_rows(store) == []


@pytest.mark.req("G-23")
def test_forged_horizons_do_not_stop_sealing(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        for _ in range(3):
            submit(store)
            seal(store)
    with guards_off(ledger_url) as client:
        client.run("UPDATE holdfast_seals SET horizon_xid = 0, horizon_seq = 1000000000")
    with open_store(ledger_url) as store:
        for n in range(4, 8):
            submit(store)
            assert head(store).rows == 8 * n
        assert loose_rows(store) == []
        assert [(p.kind, p.seal) for p in verify(store).problems] == [("seal_changed", n) for n in (1, 2, 3)]
        assert [v.subject for v in check(store, only=["seals_chained"]).violations] == ["SEAL 1", "SEAL 2", "SEAL 3"]


def test_a_horizon_of_an_earlier_epoch_hides_nothing(ledger_url: str) -> None:
    with create_store(ledger_url) as store:
        submit(store)
        seal(store)
        write_epoch(store, "2")
        submit(store)
        assert verify(store).ok
    with guards_off(ledger_url) as client:
        client.run("UPDATE holdfast_seals SET horizon_xid = 0, horizon_seq = 1000000000")
    with open_store(ledger_url) as store:
        assert [(p.kind, p.seal) for p in verify(store).problems] == [("seal_changed", 1)]
        for n in range(2, 5):
            assert head(store).rows == 8 * n
            submit(store)


@pytest.mark.req("G-23")
@pytest.mark.parametrize("number", [0, -5])
def test_a_seal_before_the_first(ledger_url: str, number: int) -> None:
    with create_store(ledger_url) as store:
        for _ in range(2):
            submit(store)
            seal(store)
        before = head(store)
        forged = msgspec.structs.replace(seals(store)[0], seal_id=number)
    with guards_off(ledger_url) as client:
        if client.dialect == "sqlite":
            client.run("PRAGMA ignore_check_constraints = ON")
        else:
            client.run("ALTER TABLE holdfast_seals DROP CONSTRAINT holdfast_seals_seal_id_check")
        marks = ", ".join("?" for _ in SEAL_COLUMNS)
        client.run(f"INSERT INTO holdfast_seals VALUES ({marks})", *msgspec.structs.astuple(forged))
    with open_store(ledger_url) as store:
        assert [(p.kind, p.seal) for p in verify(store, head=before).problems] == [("seal_order", number)]
        found = check(store, only=["seals_chained"]).violations
        assert [violation.subject for violation in found] == [f"SEAL {number}"]
        assert head(store) == before


def snapshot(store: Store[Any], directory: Path) -> None:
    create(store, directory / "kept.snapshot")


def export(store: Store[Any], directory: Path) -> None:
    export_file(store, directory / "history.jsonl")


@pytest.mark.parametrize("sealed", [True, False], ids=["sealed", "not sealed"])
@pytest.mark.parametrize(
    "act",
    [lambda store, _: verify(store), lambda store, _: head(store), lambda store, _: seal(store), snapshot, export],
    ids=["verify", "head", "seal", "snapshot", "export"],
)
def test_a_ledger_without_its_id_is_damaged(
    ledger_url: str, tmp_path: Path, act: Callable[[Store[Any], Path], object], sealed: bool
) -> None:
    with create_store(ledger_url) as store:
        submit(store)
        if sealed:
            seal(store)
        edit(ledger_url, DOOR, "DELETE FROM holdfast_meta WHERE name = 'ledger_id'", SHUT)
        with pytest.raises(StoreDamagedError) as refused:
            act(store, tmp_path)
    assert (refused.value.message, refused.value.exit_code) == ("the ledger has no ledger_id", 4)
    assert refused.value.hint.startswith("Restore the row 'ledger_id' of the table holdfast_meta")
    assert list(tmp_path.glob("*.snapshot")) == list(tmp_path.glob("*.jsonl")) == []


@pytest.mark.parametrize("name", ["environment", "governed"])
def test_a_snapshot_of_a_ledger_without_a_setting_is_refused(ledger_url: str, tmp_path: Path, name: str) -> None:
    with create_store(ledger_url) as store:
        submit(store)
        with guards_off(ledger_url) as client:  # triggers refuse this even under maintenance
            client.run(f"DELETE FROM holdfast_meta WHERE name = '{name}'")
        with pytest.raises(StoreDamagedError) as refused:
            snapshot(store, tmp_path)
    assert refused.value.message == f"the ledger has no {name}"
