"""The possible contents of files after a power cut, computed from the writes and syncs of an unmodified process.

The process runs under `strace`; its writes are then applied to a model of a disk that guarantees only what real disks
guarantee.

Invariants: a write is uncertain until its file is synced after it; any part of the uncertain writes may be on the disk,
in any order, and one write may be torn at a multiple of 512 bytes; the creation or removal of a file is uncertain until
its folder is synced. Shared memory (`-shm`) is lost in a power cut.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path
from random import Random
from typing import NamedTuple

STRACE = shutil.which("strace")
SECTOR = 512
_CALLS = "openat,pwrite64,write,fsync,fdatasync,ftruncate,unlink,unlinkat,rename"
_LINE = re.compile(r"^\d+ +(\w+)\((.*)\) += (-?\d+)")
_HEX = r'"((?:\\x[0-9a-f]{2})*)"'
_AT = r"^\d+<((?:\\x[0-9a-f]{2})+)>"


class Write(NamedTuple):
    path: str
    offset: int
    data: bytes


class Truncate(NamedTuple):
    path: str
    size: int


class Sync(NamedTuple):
    path: str


class Named(NamedTuple):
    path: str


class Removed(NamedTuple):
    path: str


Change = Write | Truncate
Op = Change | Sync | Named | Removed
Image = dict[str, bytes]


def recorded(command: Sequence[str], folder: Path) -> list[Op]:
    """Run a command to its end, and return its operations on the files of one folder, in order."""
    assert STRACE is not None
    trace = folder.with_suffix(".trace")
    done = subprocess.run(
        [STRACE, "-f", "-y", "-xx", "-s", "16777216", "-e", f"trace={_CALLS}", "-o", str(trace), *command],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return list(_parsed(trace.read_text(encoding="ascii"), os.path.realpath(folder)))


def _parsed(trace: str, folder: str) -> Iterator[Op]:
    assert "unfinished" not in trace, "more than one thread wrote"
    for line in trace.splitlines():
        found = _LINE.match(line)
        if found is None or int(found[3]) < 0:
            continue
        call, arguments = found[1], found[2]
        quoted = [_decoded(text) for text in re.findall(_HEX, arguments)]
        if call == "openat":
            path, flags = quoted[0].decode(), arguments
            if "O_CREAT" in flags and _is_ours(path, folder):
                yield Named(path)
            continue
        if call in ("unlink", "unlinkat"):
            if _is_ours(path := quoted[0].decode(), folder):
                yield Removed(path)
            continue
        assert call != "rename", "a rename is not modelled"
        at = re.match(_AT, arguments)
        path = _decoded(at[1]).decode() if at else ""
        if call in ("fsync", "fdatasync") and (path == folder or _is_ours(path, folder)):
            yield Sync(path)
        elif not _is_ours(path, folder):
            continue
        elif call == "ftruncate":
            yield Truncate(path, int(arguments.rpartition(", ")[2]))
        else:
            data = quoted[0][: int(found[3])]
            yield Write(path, int(arguments.rpartition(", ")[2]) if call == "pwrite64" else -1, data)


def _decoded(text: str) -> bytes:
    return bytes.fromhex(text.replace("\\x", ""))


def _is_ours(path: str, folder: str) -> bool:
    return str(Path(path).parent) == folder and not path.endswith("-shm")


class Disk:
    """The files that are certainly on the disk, and the uncertain changes."""

    def __init__(self, folder: Path) -> None:
        self._folder = os.path.realpath(folder)
        self._sure = {str(path): path.read_bytes() for path in Path(self._folder).iterdir() if path.is_file()}
        self._uncertain: dict[str, list[Change]] = {}
        self._created: set[str] = set()  # created, and the folder not synced since
        self._removed: set[str] = set()  # removed, and the folder not synced since

    def take(self, op: Op) -> None:
        """Apply one operation."""
        match op:
            case Named(path):
                if path not in self._sure:
                    self._sure[path] = b""
                    self._created.add(path)
                self._removed.discard(path)
            case Removed(path):
                self._removed.add(path)
            case Sync(path) if path == self._folder:
                self._created.clear()
                for gone in self._removed:
                    self._sure.pop(gone, None)
                    self._uncertain.pop(gone, None)
                self._removed.clear()
            case Sync(path):
                self._sure[path] = _after(self._sure[path], self._uncertain.pop(path, []))
            case Write(path) | Truncate(path):
                self._uncertain.setdefault(path, []).append(op)

    @property
    def uncertain(self) -> int:
        """Return how many changes a power cut could lose now."""
        return sum(map(len, self._uncertain.values())) + len(self._created) + len(self._removed)

    def image(self, chance: Random) -> Image:
        """Return one random image that a power cut could leave now."""
        keep = chance.choice(("nothing", "everything", "a prefix", "anything", "torn"))
        image: Image = {}
        for path, sure in self._sure.items():
            if path in self._created and keep != "everything" and chance.random() < 0.5:
                continue
            if path in self._removed and chance.random() < 0.5:
                continue
            image[path] = _after(sure, _arrived(self._uncertain.get(path, []), keep, chance))
        return image


def _arrived(changes: list[Change], keep: str, chance: Random) -> list[Change]:
    if keep == "nothing" or not changes:
        return []
    if keep == "everything":
        return changes
    if keep == "a prefix":
        return changes[: chance.randrange(len(changes) + 1)]
    some = [change for change in changes if chance.random() < 0.5]
    if keep == "torn" and some and isinstance(last := some[-1], Write):
        whole = len(last.data) // SECTOR
        some[-1] = last._replace(data=last.data[: SECTOR * chance.randrange(whole + 1)])
    return some


def _after(content: bytes, changes: list[Change]) -> bytes:
    out = bytearray(content)
    for change in changes:
        if isinstance(change, Truncate):
            del out[change.size :]
            out.extend(bytes(change.size - len(out)))
            continue
        offset = len(out) if change.offset < 0 else change.offset  # -1: it was appended
        out.extend(bytes(max(0, offset - len(out))))
        out[offset : offset + len(change.data)] = change.data
    return bytes(out)
