"""Writes files atomically and durably: under a temporary name, synced to disk, then renamed.

Invariants: a file gets its name only when it is complete and on disk; an existing file is replaced only if the caller
requests it; the name itself is synced too; a discarded draft leaves no file.
"""

import os
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO
from uuid import uuid4

from holdfast.core.errors import FileThereError, InputError


class Draft:
    """A file that is written under a temporary name in the directory of its path; `publish` renames it."""

    def __init__(self, path: Path, *, mode: int | None = None, name: str | None = None) -> None:
        """Create the draft; `mode` is applied regardless of the umask. Raise OSError if that fails."""
        self._path = path
        self._draft = path.with_name(name or f".holdfast-{uuid4().hex}.part")
        descriptor = os.open(self._draft, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o666 if mode is None else mode)
        self.file: BinaryIO = os.fdopen(descriptor, "wb")
        if mode is not None:
            os.fchmod(descriptor, mode)  # regardless of the umask

    def publish(self, *, replace: bool = False) -> None:
        """Make the file durable under its path; raise FileThereError if the path exists, unless `replace` is given."""
        self.file.flush()
        os.fsync(self.file.fileno())
        self.file.close()
        if replace:
            self._draft.replace(self._path)
            sync_directory(self._path.parent)
        elif not give_name(self._draft, self._path):
            raise _exists(self._path)

    def discard(self) -> None:
        """Remove the draft; a published file stays."""
        with suppress(OSError):
            self.file.close()
        with suppress(OSError):
            self._draft.unlink(missing_ok=True)


@contextmanager
def new_file(path: Path, *, mode: int | None = None) -> Iterator[BinaryIO]:
    """Yield a file to write; it is published at `path` when the block ends without an error.

    Raise FileThereError if the path exists, and InputError if the file cannot be written.
    """
    try:
        if path.exists() or path.is_symlink():
            raise _exists(path)
        draft = Draft(path, mode=mode)
        try:
            yield draft.file
            draft.publish()
        finally:
            draft.discard()
    except OSError as error:
        raise InputError(
            f"{path} cannot be written: {error.strerror or error}",
            next_step="Free space on the disk, or give a path in a writable directory.",
            context={"path": str(path)},
        ) from error


def replace_file(path: Path, data: bytes) -> None:
    """Create a file, or replace its contents, atomically; raise OSError if that fails."""
    draft = Draft(path)
    try:
        draft.file.write(data)
        draft.publish(replace=True)
    finally:
        draft.discard()


def give_name(draft: Path, path: Path) -> bool:
    """Give a finished file its name; return False if the path exists."""
    try:
        os.link(draft, path)  # unlike a rename, this never replaces a file
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


def _exists(path: Path) -> FileThereError:
    return FileThereError(f"{path} already exists", context={"path": str(path)})
