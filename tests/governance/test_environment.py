"""The environment of a ledger is raised, journalled, never lowered, and not while a grant is active."""

from __future__ import annotations

import pytest

from holdfast.core.errors import InputError, InvalidStateTransitionError
from holdfast.core.machines import GRANT, GrantState
from holdfast.governance.environment import raise_environment
from holdfast.store import open_store
from holdfast.store.enforcement import Refusal
from tests.enforcement.raw import DOOR, Client, Hand


def test_an_environment_is_raised_step_by_step_and_journalled(ledger_url: str) -> None:
    with open_store(ledger_url) as store:
        assert raise_environment(store, "stage", actor="ann", reason="going live") == "dev"
        assert raise_environment(store, "prod", actor="ann", reason="live") == "stage"
        assert raise_environment(store, "prod", actor="ann", reason="live") == "prod"
        with store.reading() as reading:
            assert reading.settings.read()["environment"] == "prod"
            rows = reading.journal.of(1, "MAINTENANCE")
        assert [(row.event, row.actor) for row in rows] == [
            ("open", "ann"), ("raise_environment", "ann"), ("shut", "ann"),
        ]  # fmt: skip
        assert rows[0].reason == "going live"


def test_an_environment_is_never_lowered(ledger_url: str) -> None:
    with open_store(ledger_url) as store:
        raise_environment(store, "stage", actor="ann", reason="going live")
        with pytest.raises(InvalidStateTransitionError) as caught:
            raise_environment(store, "dev", actor="ann", reason="going back")
        assert caught.value.context == {"environment": "stage", "to": "dev"}
        with pytest.raises(InputError):
            raise_environment(store, "moon", actor="ann", reason="why not")


@pytest.mark.attack("sql")
def test_an_environment_is_not_raised_while_a_grant_is_active(ledger_url: str) -> None:
    client = Client(ledger_url)
    grant = Hand(client).put(GRANT, GrantState.ACTIVE)
    client.run(DOOR)
    refusal = client.refusal("UPDATE holdfast_meta SET value = 'prod' WHERE name = 'environment'")
    assert refusal == Refusal.WRITE_ONCE
    client.run("DELETE FROM holdfast_maintenance")
    client.commit()
    client.close()
    with open_store(ledger_url) as store:
        with pytest.raises(InvalidStateTransitionError) as caught:
            raise_environment(store, "stage", actor="ann", reason="going live")
        assert caught.value.context == {"environment": "dev", "to": "stage", "grants": [grant]}
