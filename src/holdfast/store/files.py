"""Files that appear under their names whole or not at all, and stay there when the power fails.

Invariants: a name that is taken is never taken away from who has it; a name that was given is durable.
"""

import os
from pathlib import Path


def give_name(draft: Path, path: Path) -> bool:
    """Give a finished file its name; return False if that is taken."""
    try:
        os.link(draft, path)  # unlike a rename, it never replaces what is there
    except FileExistsError:
        return False
    except OSError:
        if path.exists():
            return False
        draft.rename(path)  # a file system without hard links
    sync_directory(path.parent)
    return True


def sync_directory(directory: Path) -> None:
    """Make the names in a directory durable."""
    descriptor = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
