"""`holdfast erase` and `holdfast limit`."""

from __future__ import annotations

from holdfast import Ledger
from tests.cli.commands import holdfast


def test_erase_removes_the_data_of_a_job_and_says_under_which_grant(ledger: str) -> None:
    with Ledger(ledger) as opened:
        job_id = opened.submit("noop", {"who": "ann"}, client="web", key="ann").job_id
        waiting = str(opened.submit("noop").job_id)
    refused = holdfast("erase", waiting, "--reason", "a request", "--db", ledger, "--json")
    assert (refused.code, refused.error_code) == (3, "invalid_state_transition")
    assert refused.json["context"]["state"] == "pending"
    with Ledger(ledger) as opened:
        opened.run_until_idle()
    done = holdfast("erase", str(job_id), "--reason", "a request", "--as", "bob", "--db", ledger, "--json").json
    assert {name: done[name] for name in ("job_id", "by", "reason", "changed")} == {
        "job_id": job_id, "by": "bob", "reason": "a request", "changed": True,
    }  # fmt: skip
    shown = holdfast("show", str(job_id), "--db", ledger, "--json").json
    assert (shown["job"]["key"], shown["payload"], shown["job"]["result"]) == (None, None, None)
    again = holdfast("erase", str(job_id), "--reason", "a request", "--db", ledger, "--json").json
    assert (again["changed"], again["grant_id"]) == (False, done["grant_id"])
    assert holdfast("check", "--db", ledger, "--json").json["ok"]


def test_in_stage_an_erasure_needs_a_grant_that_is_requested_as_the_refusal_says(sqlite_url: str) -> None:
    assert holdfast("init", "--env", "stage", "--db", sqlite_url).code == 0
    with Ledger(sqlite_url) as opened:
        job_id = opened.submit("noop").job_id
        opened.run_until_idle()
    refused = holdfast("erase", str(job_id), "--reason", "a request", "--db", sqlite_url, "--json")
    assert (refused.code, refused.error_code) == (3, "REJECT_AUTH_MISSING")
    assert f" erase job:{job_id} " in refused.json["context"]["next_step"]


def test_a_limit_is_set_obeyed_and_removed(ledger: str) -> None:
    limited = holdfast("limit", "--queue", "q", "--depth", "1", "--db", ledger, "--json")
    assert limited.json == {"queue": "q", "depth_max": 1, "parks": False}
    assert holdfast("submit", "noop", "--queue", "q", "--db", ledger).code == 0
    full = holdfast("submit", "noop", "--queue", "q", "--db", ledger, "--json")
    assert (full.code, full.error_code) == (3, "queue_full")
    context = full.json["context"]
    assert (context["queue"], context["depth"], context["limit"]) == ("q", 1, 1)
    assert holdfast("limit", "--queue", "q", "--db", ledger).code == 2
    assert holdfast("limit", "--queue", "q", "--off", "--db", ledger).code == 0
    assert holdfast("submit", "noop", "--queue", "q", "--db", ledger).code == 0
