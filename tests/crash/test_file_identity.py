"""The identity of a SQLite ledger's file, with real processes and SIGKILL: what was acknowledged is in the file."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from holdfast import Ledger
from holdfast.core.errors import LedgerFileError
from tests.support.children import READY, Child

JOBS = 21
pytestmark = pytest.mark.attack("files")


@pytest.fixture
def path(new_sqlite_ledger: str) -> Path:
    return Path(new_sqlite_ledger.removeprefix("sqlite:///"))


def user(path: Path, act: str = "", *, first: int = 0, count: int = JOBS) -> Child:
    return Child("tests.crash.file_run", str(path), str(first), str(count), act)


def answers(child: Child) -> list[str]:
    """Return what a child prints about one series of submits."""
    lines = []
    while (line := child.says()) not in ("end", ""):
        lines.append(line)
    return lines


def proceed(child: Child) -> None:
    """Let a child take its next step."""
    assert child.says() == READY
    child.go()


def another_command(path: Path) -> None:
    """Open and close the ledger in another process, as any command does."""
    done = subprocess.run(
        [sys.executable, "-m", "holdfast.cli", "stats", "--db", str(path)], capture_output=True, check=False
    )
    assert done.returncode == 0, done.stderr


def stored(path: Path) -> set[str]:
    with Ledger(path, create=False) as ledger, ledger.store.reading() as reading:
        return {f"acknowledged {key}" for (key,) in reading.execute("SELECT key FROM holdfast_calls")}


def test_a_process_that_copies_its_own_ledger_loses_no_acknowledged_job(path: Path) -> None:
    with user(path, "copy") as child:
        acknowledged = answers(child)
        proceed(child)
        assert child.says() == READY  # it has opened and closed its ledger: the kernel has dropped its POSIX locks
        another_command(path)
        assert Path(f"{path}-wal").exists()
        child.go()
        acknowledged += answers(child)
        child.kill()
    assert acknowledged == [f"acknowledged {number}" for number in range(JOBS)]
    assert stored(path) == set(acknowledged)


def test_without_locks_of_descriptors_a_deleted_log_is_noticed_before_the_acknowledgement(path: Path) -> None:
    with user(path, "copy unguarded") as child:
        said = answers(child)
        proceed(child)
        assert child.says() == READY
        another_command(path)
        assert not Path(f"{path}-wal").exists()  # the other process believed that it was alone
        child.go()
        said += answers(child)
        child.kill()
    assert said == ["acknowledged 0", *["refused ledger_file_changed log_deleted"] * (JOBS - 1)]
    assert stored(path) == {"acknowledged 0"}


def test_a_second_hard_link_is_refused_while_the_first_name_is_in_use(path: Path) -> None:
    other = path.with_name("other.db")
    with user(path) as child:
        acknowledged = answers(child)
        proceed(child)
        assert child.says() == READY
        os.link(path, other)
        with pytest.raises(LedgerFileError) as refused, Ledger(other) as ledger:
            ledger.submit("noop", {}, client="test", key="another name")
        assert refused.value.context["change"] == "hard_linked"
        assert not Path(f"{other}-wal").exists()
        child.go()
        assert set(answers(child)) == {"refused ledger_file_changed hard_linked"}
        child.kill()
    other.unlink()
    # The submits were refused after their commit: they may be there, but none that was acknowledged is missing.
    assert set(acknowledged) <= stored(path)


def test_a_symbolic_link_is_the_same_ledger_with_the_same_log(path: Path) -> None:
    link = path.parent / "directory" / "link.db"
    link.parent.mkdir()
    link.symlink_to(path)
    with user(path) as one, user(link, first=100) as two:
        acknowledged = answers(one) + answers(two)
        for _ in range(2):
            proceed(one)
            proceed(two)
        acknowledged += answers(one) + answers(two)
        assert sorted(entry.name for entry in link.parent.iterdir()) == ["link.db"]  # no log, no lock files
        one.kill()
        two.kill()
    assert len(acknowledged) == 2 * JOBS
    assert stored(path) == set(acknowledged)
