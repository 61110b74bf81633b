"""A process of its own that moves a ledger there and back, and says how much memory that took.

Usage: python -m tests.audit.snapshot_mover DIRECTORY URL..., where the first URL names a ledger and the others empty
places. It restores each into the next, compares the first with the last, and prints one JSON line.
"""

from __future__ import annotations

import json
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any

from holdfast.audit.files.restore import RestoreRequest, restore
from holdfast.audit.files.snapshot import create
from holdfast.audit.files.snapshot_diff import diff
from holdfast.store import open_store
from tests.support.children import Child


def moved(directory: Path, *urls: str, timeout_s: float = 300) -> Any:
    """Run the process, and return the line that it prints."""
    with Child("tests.audit.snapshot_mover", str(directory), *urls) as child:
        return json.loads(child.output(timeout_s))


def memory_mb() -> float:
    """The peak memory of this program. Not `ru_maxrss`, which begins with the peak of its parent."""
    [line] = [line for line in Path("/proc/self/status").read_text().splitlines() if line.startswith("VmHWM:")]
    return int(line.split()[1]) / 1024


def main(directory: Path, urls: list[str]) -> None:
    bytes_written, epoch = [], 0
    for n, (source, target) in enumerate(pairwise(urls)):
        path = directory / f"{n}.snapshot"
        with open_store(source) as store:
            bytes_written.append(create(store, path).bytes)
        epoch = restore(path, target, RestoreRequest(who="mover", why="moved")).epoch
    compared = diff(urls[0], urls[-1])
    answer = {
        "differing": sorted(compared.tables),
        "rows": compared.rows,
        "epoch": epoch,
        "bytes": bytes_written,
        "memory_mb": memory_mb(),
    }
    print(json.dumps(answer))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
