"""A ledger on a network file system is refused where the system shows its type."""

from pathlib import Path

import pytest

from holdfast.core.errors import DurabilityError
from holdfast.store.sqlite import store as sqlite_store
from holdfast.store.sqlite.store import file_system_of

pytestmark = pytest.mark.attack("files")


def mounts(folder: Path, *lines: str) -> Path:
    table = folder / "mounts"
    table.write_text("\n".join(lines), encoding="utf-8")
    return table


def test_the_file_system_is_that_of_the_nearest_mount(tmp_path: Path) -> None:
    table = mounts(tmp_path, "disk / ext4 rw 0 0", "server:/x /data nfs4 rw 0 0", "disk2 /data/my\\040disk xfs rw 0 0")
    assert file_system_of(Path("/srv/ledgers"), table) == "ext4"
    assert file_system_of(Path("/data/ledgers"), table) == "nfs4"
    assert file_system_of(Path("/data/my disk/ledgers"), table) == "xfs"
    assert file_system_of(Path("/data"), tmp_path / "no such file") is None


def test_a_ledger_on_nfs_is_refused_and_not_created(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = mounts(tmp_path, f"server:/x {tmp_path} nfs4 rw 0 0")
    monkeypatch.setattr(sqlite_store, "file_system_of", lambda directory: file_system_of(directory, table))
    with pytest.raises(DurabilityError) as refused:
        sqlite_store.SqliteStore(tmp_path / "ledger.db", "ledger.db", create=True)
    assert (refused.value.code, refused.value.exit_code) == ("not_durable", 4)
    assert not (tmp_path / "ledger.db").exists()
