"""A SQLite ledger in the making: it gets its name when it is whole.

Invariants: whoever makes a ledger at the same time wins or loses as a whole; a draft that fails leaves no file behind,
and its errors name the file that was asked for.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from uuid import uuid4

from holdfast.core.errors import FileThereError, StoreError, StoreReadOnlyError, StoreUnavailableError
from holdfast.store.files import give_name

# What SQLite and the turnstile put beside a database file.
_BESIDE = ("", "-wal", "-shm", "-journal", "-gate", "-turn")


@contextmanager
def drafted(path: Path) -> Iterator[Path]:
    """Yield a path to make a ledger at; raise FileThereError at the end if another process has taken the name."""
    if not os.access(path.parent, os.W_OK):
        raise StoreReadOnlyError(f"the directory {path.parent} cannot be written")
    draft = path.with_name(f".holdfast-{uuid4().hex}")
    try:
        yield draft
        if not give_name(draft, path):
            raise FileThereError(f"{path} was made by somebody else meanwhile")
    except StoreError as error:
        # The draft is gone, so that even a commit of unknown fate has none.
        reason = error.message.replace(str(draft), str(path))
        raise StoreUnavailableError(f"no ledger could be made: {reason}", context=error.context) from error
    finally:
        for suffix in _BESIDE:
            with suppress(FileNotFoundError):
                Path(f"{draft}{suffix}").unlink()
