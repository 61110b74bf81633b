"""The checker of promises sees what it looks for: each kind of broken promise, made by hand, is found and named."""

from __future__ import annotations

import pytest

from holdfast import Ledger
from tests.support.promises import Facts, require_all_done, require_promises
from tests.support.roles import COUNT, counting_ledger, create_effects

BROKEN = {
    "an effect twice": ("INSERT INTO effects SELECT * FROM effects", "effects of"),
    "an effect lost": ("DELETE FROM effects", "effects of"),
    "an effect of an attempt that did not commit": ("UPDATE effects SET exec_id = exec_id + 1", "effects of"),
    "an effect of no job": ("INSERT INTO effects (job_id, exec_id, attempt) VALUES (999, 999, 1)", "effects of no job"),
    "a count that is wrong": ("UPDATE holdfast_counts SET n = n + 1", "counts"),
}


def done_once(url: str) -> Ledger:
    ledger = counting_ledger(url)
    create_effects(ledger)
    ledger.submit(COUNT, {"key": "one"}, client="c", key="one")
    assert ledger.run_until_idle() == 1
    ledger.perform(lambda transaction: transaction.counts.fold())
    return ledger


@pytest.mark.parametrize("broken", BROKEN)
def test_a_broken_promise_is_found(ledger_url: str, broken: str) -> None:
    statement, finding = BROKEN[broken]
    with done_once(ledger_url) as ledger:
        require_promises(Facts(ledger), acknowledged=[("c", "one")])
        require_all_done(Facts(ledger), jobs=1)
        with ledger.store.transaction() as transaction:
            ledger.store.execute(transaction.connection, statement)
        with pytest.raises(AssertionError, match=finding):
            require_promises(Facts(ledger))


def test_a_lost_job_and_a_job_left_behind_are_found(ledger_url: str) -> None:
    with done_once(ledger_url) as ledger:
        with pytest.raises(AssertionError, match="acknowledged but lost: \\('c', 'two'\\)"):
            require_promises(Facts(ledger), acknowledged=[("c", "one"), ("c", "two")])
        ledger.submit(COUNT, {"key": "two"}, client="c", key="two")
        require_promises(Facts(ledger), acknowledged=[("c", "one"), ("c", "two")])
        with pytest.raises(AssertionError, match="'pending': 1"):
            require_all_done(Facts(ledger), jobs=2)
