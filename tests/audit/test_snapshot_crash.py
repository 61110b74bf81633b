"""A restore that is killed leaves the place empty or the ledger whole; a snapshot that is killed leaves no file."""

from __future__ import annotations

import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from holdfast.audit.files.snapshot_diff import diff
from holdfast.audit.files.snapshot_verify import verify
from holdfast.core.errors import LedgerNotEmptyError, NotALedgerError
from holdfast.store import connect, create_store, open_store
from holdfast.store.migrations import is_empty
from holdfast.testing import VirtualClock
from tests.audit.snapshots import NewUrl, full_at_rest, put, taken
from tests.support.forkserver import ForkServer, shared_server

pytestmark = pytest.mark.attack("faults")

pytest_plugins = ["tests.audit.places"]
ROLES = "tests.audit.snapshot_roles"
EACH = pytest.mark.parametrize("kind", ["sqlite", pytest.param("postgres", marks=pytest.mark.pg)])


@pytest.fixture(scope="module")
def forks() -> Iterator[ForkServer]:
    with shared_server(ROLES, "holdfast.store.postgres.store") as server:
        yield server


@pytest.fixture(scope="module")
def snapshot(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("snapshot", numbered=True)
    url = f"sqlite:///{directory / 'ledger.db'}"
    full_at_rest(url, VirtualClock())
    return taken(url, directory / "full.snapshot", VirtualClock())


def batches(snapshot: Path) -> int:
    """How often rows are brought: once for each table that has any."""
    return sum(rows > 0 for rows in verify(snapshot).trailer.rows.values())


# Where a restore can be struck before its commit: a function, and which of its calls; 0 is the last one.
BEFORE = {
    "verified": ("holdfast.audit.files.restore:verify", 1),
    "prepared": ("holdfast.audit.files.restore:reinstall.prepare", 1),
    "advanced": ("holdfast.store.verbs.portable:PortableWrites.advance", 1),
    "settings brought": ("holdfast.store.verbs.portable:PortableWrites.bring", 1),
    "jobs brought": ("holdfast.store.verbs.portable:PortableWrites.bring", 7),
    "all brought": ("holdfast.store.verbs.portable:PortableWrites.bring", 0),
    "leases ended": ("holdfast.store.verbs.portable:PortableWrites.end_leases", 1),
    "counted": ("holdfast.store.verbs.counts:CountWrites.fold", 1),
}
AFTER = "holdfast.audit.files.restore:schema_steps.verify"


@pytest.mark.req("K-63")
@EACH
def test_a_restore_that_is_killed_before_its_commit_leaves_an_empty_place(
    kind: str, snapshot: Path, new_url: NewUrl, forks: ForkServer
) -> None:
    url = new_url(kind)
    for where, (point, given) in BEFORE.items():
        nth = given or batches(snapshot)
        child = forks.spawn(f"{ROLES}:restore_and_die", file=str(snapshot), url=url, point=point, nth=nth)
        assert child.wait(60) == -signal.SIGKILL, where
        if kind == "sqlite":
            assert not Path(url.removeprefix("sqlite:///")).exists(), where
        else:
            with connect(url) as store:
                assert is_empty(store), where
    put(snapshot, url)
    assert diff(str(snapshot), url).tables == {}
    open_store(url).close()


@EACH
def test_a_restore_that_is_killed_leaves_an_empty_ledger_as_it_was(
    kind: str, snapshot: Path, new_url: NewUrl, forks: ForkServer
) -> None:
    url = new_url(kind)
    create_store(url).close()
    for where in ("prepared", "jobs brought", "counted"):
        point, nth = BEFORE[where]
        child = forks.spawn(f"{ROLES}:restore_and_die", file=str(snapshot), url=url, point=point, nth=nth)
        assert child.wait(60) == -signal.SIGKILL, where
        with open_store(url) as store, store.reading() as reading:
            assert reading.settings.read()["epoch"] == "1"
            assert reading.execute("SELECT count(*) FROM holdfast_journal") == [(0,)]
    put(snapshot, url)
    assert diff(str(snapshot), url).tables == {}


@EACH
@pytest.mark.parametrize("place", ["new", "an empty ledger"])
def test_a_restore_that_is_killed_after_its_commit_leaves_all_or_nothing(
    kind: str, place: str, snapshot: Path, new_url: NewUrl, forks: ForkServer
) -> None:
    url = new_url(kind)
    if place == "an empty ledger":
        create_store(url).close()
    nth = 2 if place == "an empty ledger" else 1  # a ledger that is there is verified before, too
    child = forks.spawn(f"{ROLES}:restore_and_die", file=str(snapshot), url=url, point=AFTER, nth=nth)
    assert child.wait(60) == -signal.SIGKILL
    if kind == "sqlite" and place == "new":
        # It was whole, and had no name yet.
        with pytest.raises(NotALedgerError):
            open_store(url)
        put(snapshot, url)
    else:
        with pytest.raises(LedgerNotEmptyError):
            put(snapshot, url)
    assert diff(str(snapshot), url).tables == {}
    open_store(url).close()


@EACH
def test_a_snapshot_that_is_killed_leaves_no_file_under_its_name(
    kind: str, snapshot: Path, new_url: NewUrl, forks: ForkServer, tmp_path: Path
) -> None:
    url = new_url(kind)
    put(snapshot, url)
    path = tmp_path / "again.snapshot"
    for point, nth in (
        ("holdfast.audit.files.snapshot:LiveLedger", 1),
        ("holdfast.audit.files.snapshot:line_of", 1),
        ("holdfast.audit.files.snapshot:line_of", 100),
        ("holdfast.audit.files.snapshot:_write", 1),
        ("holdfast.audit.files.snapshot:os.fsync", 1),
    ):
        child = forks.spawn(f"{ROLES}:create_and_die", url=url, file=str(path), point=point, nth=nth)
        assert child.wait(60) == -signal.SIGKILL, point
        assert not path.exists()
    left = [entry.name for entry in tmp_path.iterdir()]
    assert len(left) == 5
    assert all(name.startswith(".holdfast-") and name.endswith(".part") for name in left)
    assert diff(str(taken(url, path)), url).tables == {}


@EACH
def test_a_snapshot_that_is_killed_after_its_rename_is_complete(
    kind: str, snapshot: Path, new_url: NewUrl, forks: ForkServer, tmp_path: Path
) -> None:
    url = new_url(kind)
    put(snapshot, url)
    path = tmp_path / "again.snapshot"
    child = forks.spawn(
        f"{ROLES}:create_and_die", url=url, file=str(path), point="holdfast.audit.files.snapshot:os.link", nth=1
    )
    assert child.wait(60) == -signal.SIGKILL
    assert verify(path).trailer.rows["jobs"] == verify(snapshot).trailer.rows["jobs"]
