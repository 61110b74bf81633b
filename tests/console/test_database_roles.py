"""The console with the database role of an operator, which is not the owner's; and of an auditor, who only reads."""

from __future__ import annotations

from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.console.security.callers import Role
from holdfast.scheduling.schedules import Schedule, Schedules
from tests.console.sites import Site
from tests.store.test_roles import Roles, server

__all__ = ["server"]  # a fixture


def test_an_operators_role_is_enough_for_every_act(server: Roles, tmp_path: Path) -> None:
    with Ledger(server.of("application")) as application:
        ids = [application.submit("noop").job_id for _ in range(2)]
        Schedules(application).add("nightly", Schedule(when="@daily", operation="noop"), actor="t", reason="t")
    site = Site(server.of("operator"), tmp_path)
    with site.person("ann") as ann:
        for path in (
            f"/jobs/{ids[0]}/cancel",
            f"/jobs/{ids[1]}/quarantine",
            "/queues/default/pause",
            "/switches/operation:noop/throw",
            "/schedules/nightly/pause",
            "/schedules/nightly/resume",
            "/recover",
        ):
            answer = ann.post(path, reason="a test", code="parse_error")
            assert answer.status_code == 303, answer.text
        made = ann.post("/grants/new", action="job.release", target="job:2", reason="x", rollback_plan="x")
        assert made.status_code == 303
        submitted = ann.post("/schedules/nightly/trigger", reason="now")
        assert "<code>store_read_only</code>" in submitted.text
    site.close()


@pytest.mark.attack("input")
def test_an_auditors_role_reads_and_cannot_write(server: Roles, tmp_path: Path) -> None:
    with Ledger(server.of("application")) as application:
        job_id = application.submit("noop").job_id
    site = Site(server.of("auditor"), tmp_path)
    header = {"Authorization": f"Bearer {site.token('robot', Role.OPERATOR)}"}
    with site.client() as client:
        for path in ("/jobs", f"/jobs/{job_id}", f"/jobs/{job_id}/explain", "/stats", "/queues", "/workers", "/grants"):
            assert client.get(f"/api/v1{path}", headers=header).status_code == 200, path
        refused = client.post(f"/api/v1/jobs/{job_id}/cancel", json={"reason": "x"}, headers=header)
        assert (refused.status_code, refused.json()["code"]) == (503, "store_read_only")
    site.close()
