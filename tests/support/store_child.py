"""A separate process that uses a ledger, for tests of many writers and of kills.

Invariants: it prints `ready` when the ledger is open, begins after it has read a line (`go`), and prints one JSON line
at the end; an error of Holdfast is printed as its code, so that a test sees it.

Usage: python -m tests.support.store_child MODE URL JSON, with MODE one of
  submit: {"batches": [[key, …], …]}           → {key: [job_id, is_new]}
  claim:  {"owner": name, "n": batch}: claims and completes until no job is left → {"claimed": number}
  hold:   {"n": n}: claims in a transaction, prints `holding`, and never ends it
  open:   {}: creates the ledger after `go`    → {"opened": true}
"""

from __future__ import annotations

import json
import sys
import time
from typing import Any

from holdfast.core.commands import Complete
from holdfast.core.errors import HoldfastError
from holdfast.store import Lease, Store, Submission, create_store, open_store
from tests.support import children


class Child(children.Child):
    """The test's handle of such a process."""

    def __init__(self, mode: str, url: str, **options: object) -> None:
        super().__init__("tests.support.store_child", mode, url, json.dumps(options))

    def answer(self) -> dict[str, Any]:
        """Return the result, after the process has ended."""
        answer: dict[str, Any] = json.loads(self.output())
        return answer


def _submit(store: Store[Any], options: dict[str, Any]) -> dict[str, Any]:
    answers: dict[str, Any] = {}
    for keys in options["batches"]:
        with store.transaction() as transaction:
            batch = [Submission(operation="noop", payload=json.dumps(key), client="c", key=key) for key in keys]
            admitted = transaction.jobs.submit(batch, actor="child")
        answers |= {key: [admission.job_id, admission.is_new] for key, admission in zip(keys, admitted, strict=True)}
    return answers


def _claim(store: Store[Any], options: dict[str, Any]) -> dict[str, Any]:
    lease = Lease(owner=options["owner"], seconds=600, n=options["n"])
    claimed, spare = 0, 0
    while spare < 3:
        with store.transaction() as transaction:
            attempts = transaction.executions.claim(lease)
        with store.transaction() as transaction:
            transaction.executions.move([(a, Complete(a.execution.lease_token)) for a in attempts], actor=lease.owner)
        claimed += len(attempts)
        # Jobs that another process has locked are skipped, so one empty answer does not mean that no job is left.
        spare = 0 if attempts else spare + 1
    return {"claimed": claimed}


def _hold(store: Store[Any], options: dict[str, Any]) -> dict[str, Any]:
    with store.transaction() as transaction:
        attempts = transaction.executions.claim(Lease(owner="killed", seconds=600, n=options["n"]))
        print(f"holding {len(attempts)}", flush=True)
        time.sleep(600)
    return {}


def main(mode: str, url: str, options: dict[str, Any]) -> None:
    verb = {"submit": _submit, "claim": _claim, "hold": _hold}.get(mode)
    store = open_store(url) if verb else None
    children.wait_for_start()
    try:
        if store is None or verb is None:
            create_store(url).close()
            answer: dict[str, Any] = {"opened": True}
        else:
            answer = verb(store, options)
    except HoldfastError as error:
        answer = {"error": error.code, "message": error.message}
    print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2], json.loads(sys.argv[3]))
