"""Many processes that create the same file at once make one ledger, and none gets a lock error."""

import shutil
import tempfile
import threading
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from holdfast.store import create_store
from tests.support.postgres import tmpfs_directory

ROUNDS, MAKERS = 30, 6


def test_switching_to_wal_at_once_only_delays() -> None:
    for _ in range(ROUNDS):
        folder = Path(tempfile.mkdtemp(prefix="holdfast-making-", dir=tmpfs_directory()))
        together = threading.Barrier(MAKERS)

        def make(_: int, folder: Path = folder, together: threading.Barrier = together) -> str:
            together.wait()
            with create_store(str(folder / "ledger.db")) as store, store.reading() as reading:
                return reading.settings.read()["epoch"]

        with ThreadPoolExecutor(MAKERS) as makers:
            assert list(makers.map(make, range(MAKERS))) == ["1"] * MAKERS
        shutil.rmtree(folder)
