"""The power goes out at any moment of one reference run: what had been answered is there, and the rest is done once.

Nothing of the program is changed: what it wrote and synced is recorded, and disks are rebuilt from that as a power cut
could leave them. With synchronous=NORMAL for more than lone claims the same test finds answers that were lost.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from copy import deepcopy
from pathlib import Path
from random import Random

import pytest

from tests.crash.aftermath import make_template, require_sound
from tests.support.power import STRACE, Disk, Image, Sync, Write, recorded

pytestmark = pytest.mark.attack("faults")

SEED = 20261115
IMAGES, IMAGES_SLOW = 50, 10_000
PROGRAM = """
import sys
from holdfast.store.sqlite.store import SqliteStore
from tests.crash.reference_run import run
url, notes, synchronous = sys.argv[1:]
begin = SqliteStore._begin
if synchronous != "FULL":
    SqliteStore._begin = lambda store, connection, *_: begin(store, connection, synchronous)
run(url, notes=notes, counted=notes + ".count")
"""

needs_strace = pytest.mark.skipif(STRACE is None, reason="strace is not installed: no power cut can be rebuilt")


class Recording:
    """What a whole reference run did to its files, and what it had answered by when."""

    def __init__(self, folder: Path, synchronous: str) -> None:
        make_template(folder)
        self.path = folder / "template.db"
        self._disk = Disk(folder)
        notes = folder / "notes"
        ops = recorded([sys.executable, "-c", PROGRAM, str(self.path), str(notes), synchronous], folder)
        self._notes = str(notes)
        self.ops = [op for op in ops if not op.path.endswith(".count")]

    def moments(self) -> Iterator[tuple[Disk, list[str]]]:
        """Go through the run once, and stop at every moment at which something is in doubt."""
        answered: list[str] = []
        disk = deepcopy(self._disk)
        for op in self.ops:
            if op.path == self._notes:
                if isinstance(op, Write):
                    answered += op.data.decode().splitlines()
                continue
            disk.take(op)
            if disk.uncertain:
                yield disk, answered


def require_survived(image: Image, answered: list[str], name: str, place: Path) -> None:
    """Fail unless the ledger of an image holds what had been answered."""
    for old in place.iterdir():
        old.unlink()
    for path, content in image.items():
        (place / Path(path).name).write_bytes(content)
    require_sound(place / name, answered)


def cut(recording: Recording, images: int, place: Path, seed: int = SEED) -> int:
    """Cut the power so many times, spread over the whole run; return how often something was lost or broken."""
    chance = Random(seed)
    moments = sum(op.path != recording._notes for op in recording.ops)
    bad = 0
    for disk, answered in recording.moments():
        for _ in range(images // moments + (chance.random() < images % moments / moments)):
            image = disk.image(chance)
            try:
                require_survived(image, answered, recording.path.name, place)
            except AssertionError:
                bad += 1
    return bad


@pytest.fixture
def folder(sqlite_url: str) -> Path:
    return Path(sqlite_url.removeprefix("sqlite:///")).parent


@needs_strace
@pytest.mark.req("W-03", "M-11", "M-20")
@pytest.mark.parametrize(
    "images", [IMAGES, pytest.param(IMAGES_SLOW, marks=[pytest.mark.slow, pytest.mark.timeout(3600)])]
)
def test_no_power_cut_loses_an_acknowledged_answer(images: int, folder: Path, tmp_path: Path) -> None:
    recording = Recording(folder, "FULL")
    assert sum(isinstance(op, Sync) for op in recording.ops) >= 10
    assert cut(recording, images, tmp_path) == 0


@needs_strace
def test_with_less_than_full_synchronisation_answers_are_lost(folder: Path, tmp_path: Path) -> None:
    """The control: what only a claim may do loses them if every transaction does it."""
    assert cut(Recording(folder, "NORMAL"), IMAGES, tmp_path) > 0
