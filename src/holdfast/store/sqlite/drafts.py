"""Creates a SQLite ledger under a temporary name, and renames it when it is complete.

Invariants: of several processes that create the same ledger, exactly one succeeds; a draft that fails leaves no file,
and its errors name the path of the ledger, not of the draft.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from holdfast.core.errors import FileThereError, StoreError, StoreReadOnlyError, StoreUnavailableError
from holdfast.store.files import give_name
from holdfast.store.sqlite.errors import free_space

# The suffixes of a database file, and of the files that SQLite and the turnstile create in its directory.
_BESIDE = ("", "-wal", "-shm", "-journal", "-gate", "-turn")


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield a path for the new ledger; raise FileThereError at the end if another process has created `path`."""
    if not os.access(path.parent, os.W_OK):
        raise StoreReadOnlyError(f"the directory {path.parent} is not writable")
    draft = path.with_name(f".holdfast-{uuid4().hex}")
    try:
        yield draft
        if not give_name(draft, path):
            raise FileThereError(f"another process has created {path}")
    except StoreError as error:
        # The draft is deleted, so even after a commit of unknown result no ledger exists.
        reason = error.message.replace(str(draft), str(path))
        space = free_space(path) if error.context.get("full") else None
        raise StoreUnavailableError(
            f"could not create the ledger: {reason}", context=error.context, next_step=space
        ) from error
    finally:
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                Path(f"{draft}{suffix}").unlink()
