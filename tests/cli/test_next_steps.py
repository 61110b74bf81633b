"""Every next step that is a command succeeds when it is pasted: those of the error classes, and those of `explain`."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import pytest

from holdfast import Execution, Ledger, Quarantine, RetryPolicy
from holdfast.core import errors
from holdfast.core.commands import Cancel
from holdfast.core.errors import HoldfastError, InvalidStateTransitionError
from holdfast.core.vocabulary import NEXT_STEPS
from holdfast.engine.worker.retry import Strategy
from holdfast.store import Lease, Submission, open_store
from tests.cli.commands import Outcome, holdfast
from tests.core.test_errors import TREE


def commands(step: str) -> list[str]:
    """Return the commands in a next step."""
    return re.findall(r"`(holdfast [^`]*)`", step)


def pasted(command: str) -> Outcome:
    """Run a command as it was printed, for the ledger of HOLDFAST_URL."""
    return holdfast(*shlex.split(command)[1:])


@pytest.fixture
def worked(ledger: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A ledger with a job in each state; job 1 is pending."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("HOLDFAST_URL", ledger)
    with Ledger(ledger) as opened:

        @opened.operation("fails", retry=RetryPolicy(strategy=Strategy.NO_RETRY))
        def fails(run: Execution, how: str) -> None:
            if how == "quarantine":
                raise Quarantine("poison")
            if how == "fail":
                raise ValueError("no")

        opened.submit(fails.call(how="later"), queue="later")
        for how in ("fail", "quarantine", "succeed"):
            opened.submit(fails.call(how=how))
        with opened.store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="fails", payload='{"wrong":1}')])
        opened.run_until_idle(queues=["default"])
        with opened.store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="fails", payload="{}", queue="held") for _ in range(2)])
            transaction.executions.claim(Lease(owner="worker-x", seconds=3600, queues=("held",)))
            transaction.rulings.rule([(transaction.jobs.get(7), Cancel())], actor="ops")
    return ledger


@pytest.mark.parametrize("kind", [kind for kind in TREE if commands(kind.next_step)])
@pytest.mark.usefixtures("worked")
def test_the_next_step_of_every_error_can_be_pasted(kind: type[HoldfastError]) -> None:
    contexts: list[dict[str, object]] = [{"job_id": 1}, {}]
    hints = [kind("x", context=context).hint for context in contexts]
    for command in {command for hint in hints for command in commands(hint)}:
        done = pasted(command)
        assert done.code == 0, (kind.code, command, done)
    assert not [hint for hint in hints if re.search(r"`holdfast [^`]*(?:MODULE|LEDGER|\bID\b)", hint)]


@pytest.mark.usefixtures("worked")
def test_the_next_steps_of_the_registry_can_be_pasted() -> None:
    found = [command for step in NEXT_STEPS.values() for command in commands(step)]
    assert found
    for command in found:
        done = pasted(command)
        assert done.code == 0, (command, done)


@pytest.mark.parametrize("job_id", range(1, 8))
def test_the_next_command_of_explain_can_be_pasted(job_id: int, worked: str) -> None:
    explained = holdfast("explain", str(job_id), "--db", worked, "--json").json
    for finding in explained["findings"]:
        done = holdfast(*shlex.split(finding["next"])[1:])
        assert done.code == 0, (finding, done)


def test_a_job_with_wrong_arguments_is_not_advised_to_be_released(worked: str) -> None:
    explained = holdfast("explain", "5", "--db", worked, "--json").json
    assert explained["findings"][0]["evidence"]["code"] == "arguments_invalid"
    assert not [finding for finding in explained["findings"] if "release" in finding["next"]]
    shown = holdfast("quarantine", "show", "5", "--db", worked, "--json").json
    assert not [step for step in shown["next"] if "release" in step]
    with Ledger(worked) as opened, pytest.raises(InvalidStateTransitionError) as caught:
        opened.retry(5)
    assert commands(caught.value.hint) == ["holdfast explain 5"]


def test_many_failures_are_advised_to_be_replayed_together(worked: str) -> None:
    with Ledger(worked) as opened:
        opened.operation("many", retry=RetryPolicy(strategy=Strategy.NO_RETRY))(lambda _run: 1 / 0)
        receipts = opened.submit_many([{"operation": "many"}] * 12)
        opened.run_until_idle(queues=["default"])
    job_id = str(receipts[0].job_id)
    [finding] = holdfast("explain", job_id, "--db", worked, "--json").json["findings"]
    assert shlex.split(finding["next"])[1:3] == ["replay", "dry-run"]
    words = shlex.split(finding["next"])[1:]
    done = holdfast(*words, "--json")
    assert (done.code, done.json["total"]) == (0, 12)


def test_each_error_class_has_a_next_step() -> None:
    assert all(getattr(errors, kind.__name__) is kind for kind in TREE)
    assert all(kind("x").hint for kind in TREE)


def test_a_pasted_command_does_not_need_another_ledger(worked: str) -> None:
    with open_store(worked) as store, store.reading() as reading:
        assert [reading.jobs.get(job_id).state for job_id in range(1, 8)] == [
            "pending", "failed", "quarantined", "succeeded", "quarantined", "running", "quarantined",
        ]  # fmt: skip
