"""Accounts and tokens: the file, the commands, and when a console starts."""

from __future__ import annotations

import sqlite3
import stat
from pathlib import Path
from typing import Any

import pytest

from holdfast import Ledger
from holdfast.audit.seals.keys import public_key_text
from holdfast.console.app import create_app
from holdfast.console.security import passwords
from holdfast.console.security.accounts import Accounts
from holdfast.console.security.callers import Role
from holdfast.console.security.database import ConsoleDatabase
from holdfast.console.security.limiter import LoginLimiter
from holdfast.console.security.tokens import Tokens
from holdfast.console.settings import ConsoleSettings, is_loopback, local_origins
from holdfast.core.errors import GovernanceError, InputError, RefusedError
from tests.cli.commands import holdfast
from tests.console.sites import ORIGIN, PASSWORD, Person, Site
from tests.support.ledgers import new_store

STDIN = f"{PASSWORD}\n".encode()


@pytest.fixture
def file(tmp_path: Path) -> Path:
    return tmp_path / "accounts.db"


def test_the_commands_manage_accounts_and_tokens(file: Path, tmp_path: Path) -> None:
    where = ("--accounts", str(file), "--json")
    added = holdfast("console", "users", "add", "ann", "--role", "approver", "--password-stdin", *where, stdin=STDIN)
    assert (added.code, added.json["roles"]) == (0, ["approver"])
    again = holdfast("console", "users", "add", "ann", "--role", "viewer", "--password-stdin", *where, stdin=STDIN)
    assert (again.code, again.json["error_code"]) == (2, "bad_input")
    key = holdfast("console", "users", "key", "ann", str(tmp_path / "ann.pub"), *where)
    assert (key.code, public_key_text(tmp_path / "ann.pub")) == (0, added.json["public_key"])
    assert (
        holdfast("console", "users", "key", "ann", str(tmp_path / "ann.pub"), *where).json["error_code"]
        == "file_exists"
    )
    token = holdfast("console", "tokens", "add", "ci", "--owner", "ann", "--role", "submitter", "--ttl", "1d", *where)
    assert token.json["secret"].startswith("hf_")
    assert holdfast("console", "tokens", "add", "x", "--owner", "bob", "--role", "viewer", *where).code == 1
    assert holdfast("console", "tokens", "add", "x", "--owner", "ann", "--role", "approver", *where).code == 2
    [listed] = holdfast("console", "tokens", "list", *where).json
    assert (listed["name"], listed["role"], "secret" in listed) == ("ci", "submitter", False)
    assert holdfast("console", "tokens", "revoke", "ci", *where).json["revoked_at"]
    changed = holdfast("console", "users", "passwd", "ann", "--password-stdin", *where, stdin=STDIN)
    assert changed.json["public_key"] != added.json["public_key"]
    assert holdfast("console", "users", "disable", "ann", *where).json["disabled_at"]
    assert holdfast("console", "users", "disable", "eve", *where).json["error_code"] == "record_not_found"


def test_a_password_is_never_an_argument_and_never_short(file: Path) -> None:
    where = ("--accounts", str(file), "--json")
    bare = holdfast("console", "users", "add", "ann", "--role", "viewer", *where, stdin=STDIN)
    assert (bare.code, bare.json["error_code"]) == (2, "bad_input")
    short = holdfast("console", "users", "add", "ann", "--role", "viewer", "--password-stdin", *where, stdin=b"short\n")
    assert (short.code, short.json["context"]["field"]) == (2, "password")


@pytest.mark.attack("files")
def test_the_file_is_for_its_owner_alone_and_holds_no_secret(file: Path) -> None:
    database = ConsoleDatabase(file, create=True)
    Accounts(database).add("ann", PASSWORD, [Role.OPERATOR, Role.APPROVER])
    secret = Tokens(database).add("ci", owner="ann", role=Role.VIEWER)
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    database.close()
    content = file.read_bytes()
    assert PASSWORD.encode() not in content
    assert secret.encode() not in content
    assert b"BEGIN ENCRYPTED PRIVATE KEY" in content
    assert b"BEGIN PRIVATE KEY" not in content


@pytest.mark.attack("files")
def test_a_file_that_others_could_read_is_closed_to_them(file: Path) -> None:
    file.touch(0o644)
    ConsoleDatabase(file, create=True).close()
    assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_no_account_data_is_in_the_ledger(local_site: Site) -> None:
    with local_site.person("ann") as ann:
        ann.get("/")
    url = local_site.ledger.store.url.removeprefix("sqlite:///")
    names = {row[0] for row in sqlite3.connect(url).execute("SELECT name FROM sqlite_master")}
    assert not {"accounts", "tokens", "sessions"} & names
    account = local_site.accounts.get("ann")
    assert account is not None


@pytest.mark.attack("input")
@pytest.mark.parametrize("environment", ["stage", "prod"])
def test_no_console_without_accounts_outside_dev(sqlite_url: str, environment: str) -> None:
    new_store(sqlite_url, environment=environment).close()
    with Ledger(sqlite_url, create=False) as ledger, pytest.raises(RefusedError):
        create_app(ledger, ConsoleSettings(origins=(ORIGIN,), open_to_all=True))


@pytest.mark.attack("input")
def test_no_console_without_accounts_outside_loopback(new_sqlite_ledger: str, file: Path) -> None:
    with Ledger(new_sqlite_ledger, create=False) as ledger:
        with pytest.raises(RefusedError):
            create_app(ledger, ConsoleSettings(origins=(ORIGIN,), open_to_all=True, loopback=False))
        with pytest.raises(InputError):
            create_app(ledger, ConsoleSettings(origins=(ORIGIN,), accounts=file))
        ConsoleDatabase(file, create=True).close()
        with pytest.raises(RefusedError):
            create_app(ledger, ConsoleSettings(origins=(ORIGIN,), accounts=file))
    away = holdfast("console", "--db", new_sqlite_ledger, "--host", "0.0.0.0", "--accounts", str(file), "--json")  # noqa: S104
    assert (away.code, away.json["context"]["flag"]) == (2, "--origin")
    named = holdfast(
        "console",
        "--db",
        new_sqlite_ledger,
        "--origin",
        "https://ops.example.org",
        "--accounts",
        str(file) + "x",
        "--json",
    )
    assert (named.code, named.json["error_code"]) == (2, "bad_input")


def test_a_dev_ledger_on_loopback_needs_no_login_but_its_forms_are_protected(
    new_sqlite_ledger: str, tmp_path: Path
) -> None:
    site = Site(new_sqlite_ledger, tmp_path, open_to_all=True)
    with site.client() as client:
        assert client.get("/", follow_redirects=False).status_code == 200
        assert client.get("/login", follow_redirects=False).headers["location"] == "/"
        form: dict[str, Any] = {"reason": "x"}
        assert client.post("/queues/default/pause", data=form).status_code == 403
        assert client.post("/queues/default/pause", data=form, headers={"Origin": ORIGIN}).status_code == 403
        assert client.get("/", headers={"Host": "evil.example"}).status_code == 403
        unknown = client.get("/api/v1/jobs", headers={"Authorization": "Bearer hf_x"})
        assert unknown.status_code == 401
        assert "console users add" in unknown.json()["next_step"]  # it knows no tokens: a new one would not help
    site.close()


@pytest.mark.attack("input")
def test_a_console_without_accounts_changes_nothing_once_its_ledger_is_no_dev_ledger(
    new_sqlite_ledger: str, tmp_path: Path
) -> None:
    site = Site(new_sqlite_ledger, tmp_path, open_to_all=True)
    with site.client() as client:
        person = Person(client)
        assert person.post("/queues/default/pause", reason="x").status_code == 303
        raised = holdfast("environment", "stage", "--reason", "going live", "--db", new_sqlite_ledger)
        assert raised.code == 0
        refused = person.post("/switches/operation:noop/throw", reason="x")
        assert (refused.status_code, "<code>refused</code>" in refused.text) == (409, True)
    site.close()


def test_without_the_extra_the_command_says_what_to_install(
    new_sqlite_ledger: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    import sys

    for name in [name for name in sys.modules if name.startswith(("litestar", "holdfast.console.app"))]:
        monkeypatch.delitem(sys.modules, name)
    monkeypatch.setitem(sys.modules, "litestar", None)
    missing = holdfast("console", "--db", new_sqlite_ledger, "--json")
    assert (missing.code, missing.json["error_code"]) == (2, "extra_missing")
    assert "holdfast[console]" in missing.json["context"]["next_step"]


@pytest.mark.parametrize(
    "origin", ["ops.example.org", "https://ops.example.org/", "ftp://x", "https://", "https://a/b"]
)
def test_an_origin_is_a_scheme_and_a_host(origin: str) -> None:
    with pytest.raises(InputError):
        ConsoleSettings(origins=(origin,))


@pytest.mark.parametrize("path", ["ops", "/ops/", "//", "/a b", "/../x?", "/ops#"])
def test_a_base_path_is_plain(path: str) -> None:
    with pytest.raises(InputError):
        ConsoleSettings(base_path=path)


def test_addresses_of_loopback() -> None:
    assert all(is_loopback(host) for host in ("127.0.0.1", "::1", "localhost", "127.9.9.9"))
    assert not any(is_loopback(host) for host in ("0.0.0.0", "10.0.0.1", "example.org", "::"))  # noqa: S104
    assert "http://localhost:8420" in local_origins("127.0.0.1", 8420)
    assert "http://[::1]:8420" in local_origins("::1", 8420)


def test_a_hash_says_its_cost_and_only_the_password_matches() -> None:
    stored = passwords.hashed(PASSWORD)
    assert stored.startswith("scrypt$")
    assert passwords.matches(PASSWORD, stored)
    assert not passwords.matches(PASSWORD + "x", stored)
    assert not passwords.matches("", passwords.NO_ACCOUNT)
    assert not passwords.matches("x" * 5000, stored)


def test_failed_logins_are_forgotten_after_a_while() -> None:
    at = [0.0]
    limiter = LoginLimiter(clock=lambda: at[0])
    for _ in range(5):
        limiter.begin("ann", "a")
    with pytest.raises(GovernanceError) as refused:
        limiter.begin("ann", "b")
    assert refused.value.code == "too_many_logins"
    assert refused.value.context["by"] == "account"
    at[0] = 1000.0
    limiter.begin("ann", "b")
    limiter.succeeded("ann", "b")
    for _ in range(5):
        limiter.begin("ann", "b")
