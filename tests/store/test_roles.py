"""The roles page: its SQL runs on a real server, and each role can do its part and nothing else."""

from __future__ import annotations

import re
import secrets
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit, urlunsplit

import psycopg
import pytest

from holdfast.audit.check.runner import check
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify
from holdfast.core.authority import Act, Wanted
from holdfast.core.errors import HoldfastError
from holdfast.core.machines import JobState
from holdfast.engine.ledger import Ledger
from holdfast.governance import switches
from holdfast.governance.grants import request
from holdfast.governance.quarantine import QuarantineFilters, add
from holdfast.governance.release_runs import request_release, run_release
from holdfast.store import Submission, connect, open_store
from holdfast.store.migrations import migrate
from holdfast.store.postgres.partitions import add_partition
from tests.enforcement.raw import DOOR
from tests.governance.granting import approve_in_prod
from tests.support.ledgers import new_store

pytestmark = pytest.mark.attack("sql")

PAGE = Path(__file__).resolve().parents[2] / "docs" / "roles.md"
ROLES = ("owner", "application", "operator", "auditor")
DENIED = "42501"  # insufficient_privilege


class Roles:
    """A prod ledger with the roles of the page, and a login for each."""

    def __init__(self, url: str) -> None:
        self.url, self._token = url, secrets.token_hex(4)
        [block] = re.findall(r"```sql\n(.*?)```", PAGE.read_text(encoding="utf-8"), re.DOTALL)
        # Roles are those of the whole server: other tests use it too.
        self._sql = re.sub(rf"\bledger_({'|'.join(ROLES)})\b", rf"\1_{self._token}", block)
        with psycopg.connect(url, autocommit=True) as admin:
            for _ in range(2):  # it can be repeated
                admin.execute(self._sql)
            for role in ROLES:
                admin.execute(f"CREATE ROLE {self.login(role)} LOGIN IN ROLE {role}_{self._token}")
            admin.execute(f"ALTER ROLE {self.login('owner')} SET role TO owner_{self._token}")

    def login(self, role: str) -> str:
        return f"login_{role}_{self._token}"

    def of(self, role: str) -> str:
        """Return the URL of the ledger for a role."""
        parts = urlsplit(self.url)
        return urlunsplit(parts._replace(netloc=f"{self.login(role)}@{parts.netloc.rpartition('@')[2]}"))

    def drop(self) -> None:
        with psycopg.connect(self.url, autocommit=True) as admin:
            for role in ROLES:
                for name in (self.login(role), f"{role}_{self._token}"):
                    admin.execute(f"DROP OWNED BY {name}")
                    admin.execute(f"DROP ROLE {name}")


@pytest.fixture
def server(pg_url: str) -> Iterator[Roles]:
    with new_store(pg_url, environment="prod"):
        made = Roles(pg_url)
    yield made
    made.drop()


def refusals(url: str, *statements: str) -> list[str | None]:
    """Try statements one by one; return the SQLSTATE of each refusal."""
    found: list[str | None] = []
    with psycopg.connect(url, autocommit=True) as connection:
        for statement in statements:
            try:
                connection.execute(statement)
                found.append(None)
            except psycopg.Error as error:
                found.append(error.sqlstate)
    return found


NEVER = (
    DOOR,
    "INSERT INTO holdfast_seals (seal_id) VALUES (1)",
    "UPDATE holdfast_journal SET actor = 'x'",
    "DELETE FROM holdfast_journal",
    "DELETE FROM holdfast_jobs",
    "TRUNCATE holdfast_jobs",
    "UPDATE holdfast_calls SET payload = 'x'",
    "ALTER TABLE holdfast_jobs DISABLE TRIGGER ALL",
    "DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs",
    "CREATE TABLE public.mine (n int)",
    "SET session_replication_role = replica",
    "INSERT INTO holdfast_archives (archive_id) VALUES (1)",
    "DELETE FROM holdfast_grants",
    "DELETE FROM holdfast_meta",
)
GOVERNANCE = (
    "INSERT INTO holdfast_grants (state) VALUES ('draft')",
    "UPDATE holdfast_grants SET state = 'active'",
    "INSERT INTO holdfast_approvers (name) VALUES ('me')",
    "UPDATE holdfast_approvers SET public_key = 'x'",
    "INSERT INTO holdfast_switches (name) VALUES ('replay')",
    "UPDATE holdfast_queues SET paused_at = NULL",
    "INSERT INTO holdfast_procedures (procedure) VALUES ('x')",
    "INSERT INTO holdfast_evidence (kind) VALUES ('x')",
)
WORK = (
    "INSERT INTO holdfast_calls (client) VALUES ('x')",
    "INSERT INTO holdfast_jobs (operation) VALUES ('x')",
    "INSERT INTO holdfast_operations (operation) VALUES ('x')",
    "INSERT INTO holdfast_workers (worker_id) VALUES ('x')",
    "UPDATE holdfast_meta SET value = 'x'",
)


def test_an_application_submits_and_works_and_nothing_else(server: Roles, caplog: pytest.LogCaptureFixture) -> None:
    with Ledger(server.of("application")) as ledger:

        @ledger.operation("double", version="1.0.0")
        def double(_run: Any, n: int) -> int:
            if n < 0:
                raise ValueError("negative")
            return 2 * n

        done = ledger.submit(double.call(n=2), client="web", key="two")
        assert not ledger.submit(double.call(n=2), client="web", key="two").is_new
        bad = ledger.submit(double.call(n=-1))
        ledger.run_until_idle()
        assert ledger.job(done.job_id).state is JobState.SUCCEEDED
        assert (ledger.job(bad.job_id).attempts, ledger.job(bad.job_id).last_error_code) == (1, "value_error")
    assert "permission denied" not in caplog.text
    assert refusals(server.of("application"), *NEVER, *GOVERNANCE) == [DENIED] * len(NEVER + GOVERNANCE)


def test_an_operator_governs_and_does_not_submit(server: Roles) -> None:
    work = [Submission(operation="noop", payload="{}") for _ in range(3)]
    with open_store(server.of("application")) as store, store.transaction() as transaction:
        ids = [made.job_id for made in transaction.jobs.submit(work, actor="web")]
    with Ledger(server.of("operator")) as ledger:
        ledger.cancel(ids[0], actor="ann")
        assert ledger.job(ids[0]).state is JobState.QUARANTINED
    with open_store(server.of("operator")) as store:
        with pytest.raises(HoldfastError), store.transaction() as transaction:
            transaction.jobs.submit(work, actor="ann")
        for job_id in ids[1:3]:
            add(store, job_id, "http_401", operator="ann", reason="the key expired")
        switches.throw(store, "operation:noop", actor="ann", reason="harm was seen")
        requested = request_release(
            store, QuarantineFilters(code="http_401"), requester="ann", executor="ann", reason="renewed",
            rollback_plan="quarantine them",
        )  # fmt: skip
        approve_in_prod(store, requested.grant.grant_id)
        with pytest.raises(HoldfastError) as refused:
            run_release(store, requested.grant.grant_id, operator="ann", reason="renewed")
        assert refused.value.code == "kill_switch_active"
        what = Wanted(act=Act.LIFT, target="switch:operation:noop", environment="prod", executor="ann")
        lift = request(store, what, requester="ann", reason="mended", rollback_plan="throw it")
        approve_in_prod(store, lift.grant_id)
        switches.lift(store, "operation:noop", actor="ann", reason="mended", grant_id=lift.grant_id)
        assert run_release(store, requested.grant.grant_id, operator="ann", reason="renewed").released == 2
    assert refusals(server.of("operator"), *NEVER, *WORK) == [DENIED] * len(NEVER + WORK)


def test_an_auditor_reads_checks_and_verifies_and_writes_nothing(server: Roles) -> None:
    with open_store(server.url) as store:
        with store.transaction() as transaction:
            transaction.jobs.submit([Submission(operation="noop", payload="{}")], actor="web")
        seal(store)
    with open_store(server.of("auditor")) as store:
        assert check(store).ok
        assert verify(store).ok
        with store.reading() as reading:
            assert reading.jobs.get(1).job_id == 1
    moves = ("UPDATE holdfast_jobs SET priority = 1", "SELECT nextval('holdfast_journal_seq')")
    every = (*NEVER, *GOVERNANCE, *WORK, *moves)
    assert refusals(server.of("auditor"), *every) == [DENIED] * len(every)


def test_an_owner_migrates_seals_checks_and_adds_partitions_of_a_ledger_that_another_role_made(server: Roles) -> None:
    url = server.of("owner")
    with psycopg.connect(url, autocommit=True) as owner:
        owner.execute("DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs")
        owner.execute("SELECT setval('holdfast_journal_seq', 15000000)")
    with connect(url) as store:
        assert migrate(store) == ()
    with Ledger(server.of("application")) as ledger:
        ledger.submit("noop", {})
        assert ledger.run_until_idle() == 1
    with open_store(url) as store:
        seal(store)
        with store.transaction() as transaction:
            assert add_partition(transaction.connection, "public") is not None
        assert check(store).ok
        assert verify(store).ok
    owners = "SELECT DISTINCT tableowner FROM pg_tables WHERE tablename LIKE 'holdfast%'"
    with psycopg.connect(url) as owner:
        assert owner.execute(owners).fetchall() == owner.execute("SELECT current_user").fetchall()
