"""Unused features cost nothing: plain work runs the same statements, writes no row of flow and imports none of it."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Call, Ledger

PROGRAM = """
import json, sys
from holdfast import Ledger

ledger = Ledger(sys.argv[1])
store = type(ledger.store)
ran, run = [], store.run

def noted(self, connection, name, params):
    ran.append(name)
    return run(self, connection, name, params)

store.run = noted
ledger.submit_many([{"operation": "noop"}] * 20)
ledger.submit("noop", client="c", key="k")
ledger.run_until_idle()
with ledger.store.reading() as reading:
    tables = ("unique", "waits", "after")
    rows = {name: reading.execute(f"SELECT count(*) FROM holdfast_{name}")[0][0] for name in tables}
    more = "SELECT count(*) FROM holdfast_jobs WHERE deadline_at IS NOT NULL OR parked IS NOT NULL"
    extra = reading.execute(more)[0][0]
ledger.close()
own = sorted(name for name in sys.modules if name.startswith("holdfast"))
print(json.dumps({"ran": ran, "rows": rows, "extra": extra, "modules": own}))
"""


def test_plain_work_runs_no_statement_of_flow_and_imports_nothing_of_it(ledger_url: str, tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, ledger_url],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=60,
        check=True,
    )
    said = json.loads(done.stdout)
    flow = ("scope", "deadline", "wait", "after", "batch", "overdue", "fair", "follow", "parent")
    assert [name for name in said["ran"] if any(word in name for word in flow)] == []
    assert said["ran"].count("claim_jobs") <= 4
    assert (said["rows"], said["extra"]) == ({"unique": 0, "waits": 0, "after": 0}, 0)
    parts = ("holdfast.scheduling", "holdfast.store.verbs.flow", "holdfast.store.verbs.fair", "holdfast.engine.batch")
    assert [name for name in said["modules"] if name.startswith(parts)] == []


@pytest.mark.parametrize("settings, statements", [({}, 1), ({"deadline_s": 60}, 3), ({"unique": "active"}, 4)])
def test_a_submit_pays_for_what_it_uses(
    ledger_url: str, monkeypatch: pytest.MonkeyPatch, settings: dict[str, object], statements: int
) -> None:
    with Ledger(ledger_url) as ledger:
        ledger.submit("noop", payload={"first": 1}, **settings)  # type: ignore[arg-type]  # settings of a submit
        with ledger.store.transaction() as transaction:
            ran: list[str] = []
            run = transaction.run

            def noted(name: str, /, **params: object) -> list[tuple[object, ...]]:
                ran.append(name)
                return run(name, **params)

            monkeypatch.setattr(transaction, "run", noted)
            call = Call(operation="noop", payload={"second": 2}, **settings)  # type: ignore[arg-type]  # as above
            ledger.submit_in(transaction, [call])
    assert len(ran) <= statements, ran
