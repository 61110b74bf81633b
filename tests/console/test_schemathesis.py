"""The API against its own OpenAPI document: what schemathesis makes up, valid and not, gets documented answers."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings

from holdfast.console.security.callers import Role
from tests.console.serving import free_port, served
from tests.console.sites import Site
from tests.support.ledgers import new_ledger
from tests.support.postgres import Server

PROVING = settings.default is not None and settings.default.max_examples >= 1000  # `make prove`
EXAMPLES = 60 if PROVING else 3  # of each operation


@pytest.fixture(params=["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])
def address(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, dict[str, str]]]:
    """A console on a port, over a ledger of each kind, and the header of a token that may do everything."""
    port = free_port()
    if request.param == "sqlite":
        url = f"sqlite:///{tmp_path / 'ledger.db'}"
        new_ledger().to_file(url)
    else:
        server: Server = request.getfixturevalue("pg_server")
        url, _ = new_ledger().to_database(server)
    site = Site(url, tmp_path, origins=(f"http://127.0.0.1:{port}",))
    site.ledger.submit("noop")
    secret = site.token("robot", Role.OPERATOR)
    with served(site, port):
        yield f"http://127.0.0.1:{port}", {"Authorization": f"Bearer {secret}"}
    site.close()
    if request.param == "postgres":
        request.getfixturevalue("pg_server").drop_database(url)


@pytest.mark.attack("input")
def test_no_request_ends_in_an_error_of_the_server(address: tuple[str, dict[str, str]]) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # of the packages that schemathesis imports
        import schemathesis
        from schemathesis import checks as known
        from schemathesis.core.result import Ok

        base, headers = address
        schema = schemathesis.openapi.from_url(f"{base}/api/v1/openapi.json", headers=headers)
        names = (
            "not_a_server_error",
            "status_code_conformance",
            "content_type_conformance",
            "response_schema_conformance",
        )
        checks: list[Any] = [check for check in known.CHECKS.get_all() if check.__name__ in names]
        assert len(checks) == len(names)
        seen = 0
        for found in schema.get_all_operations():
            operation: Any = found.ok() if isinstance(found, Ok) else None
            assert operation is not None, found
            seen += 1

            @settings(
                max_examples=EXAMPLES,
                deadline=None,
                database=None,
                derandomize=True,
                phases=[Phase.generate],
                suppress_health_check=list(HealthCheck),
            )
            @given(case=operation.as_strategy())
            def call(case: Any) -> None:
                case.call_and_validate(headers=headers, checks=checks)

            call()
        assert seen >= 25
