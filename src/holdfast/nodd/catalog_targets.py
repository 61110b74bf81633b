"""Where the files of a static catalogue are: a directory, or a prefix of a bucket in S3.

`CatalogTarget` is the whole interface to a place: a database of items would be another implementation of it.

Invariants: a file is complete or does not exist; a change is made from the file as it is at that moment, so two
writers cannot lose each other's changes; a file that would not change is not written.
"""

from __future__ import annotations

import fcntl
import os
import random
import threading
import time
import zlib
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Protocol

from holdfast.core.errors import InputError, StoreUnavailableError
from holdfast.nodd.objects import s3_store
from holdfast.nodd.stac_catalog import GEOJSON, JSON
from holdfast.store.files import replace_file

if TYPE_CHECKING:
    from obstore.store import S3Store

Edit = Callable[[bytes | None], bytes]  # the new content of a file from its present one; None if there is none

LOCKS = 16
TRIES = 50
PAUSE_S = 0.05
S3_SCHEME = "s3://"


class CatalogTarget(Protocol):
    """A place for the files of a catalogue."""

    def change(self, path: str, edit: Edit) -> bool:
        """Replace a file by what `edit` returns for its present content; return whether it changed.

        `edit` may be called several times: it must not depend on being called once.
        """


def target_of(text: str, *, endpoint: str | None = None, region: str = "us-east-1") -> CatalogTarget:
    """Return the target that a text names: `s3://bucket/prefix`, or a directory."""
    if not text.startswith(S3_SCHEME):
        return DirectoryTarget(Path(text))
    bucket, _, prefix = text.removeprefix(S3_SCHEME).partition("/")
    if not bucket:
        raise InputError(f"{text!r} names no bucket.", next_step="Write it as s3://BUCKET/PREFIX.")
    return S3Target(bucket, prefix.strip("/"), endpoint=endpoint, region=region)


class DirectoryTarget:
    """A directory of this machine; several processes can write to it."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory

    def change(self, path: str, edit: Edit) -> bool:
        """Replace a file by what `edit` returns for its present content; return whether it changed."""
        file = self._directory / path
        try:
            with self._locked(path):
                try:
                    before = file.read_bytes()
                except FileNotFoundError:
                    before = None
                after = edit(before)
                if after == before:
                    return False
                file.parent.mkdir(parents=True, exist_ok=True)
                replace_file(file, after)
        except OSError as error:
            raise InputError(
                f"{self._directory} cannot be written: {error.strerror}",
                next_step="Name a directory that exists or can be created, is writable, and has free space.",
                context={"directory": str(self._directory)},
            ) from None
        return True

    @contextmanager
    def _locked(self, path: str) -> Iterator[None]:
        """Hold the lock of a file. Few files share each lock, so that writers of others rarely wait."""
        name = self._directory / f".lock-{zlib.crc32(path.encode()) % LOCKS:x}"
        try:
            descriptor = _opened(name)
        except FileNotFoundError:
            self._directory.mkdir(parents=True, exist_ok=True)
            descriptor = _opened(name)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX)
            yield
        finally:
            os.close(descriptor)


def _opened(lock: Path) -> int:
    return os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o666)


class S3Target:
    """A prefix of a bucket; a write names the ETag that it replaces, so that no other writer's change is lost."""

    def __init__(self, bucket: str, prefix: str, *, endpoint: str | None = None, region: str = "us-east-1") -> None:
        self._bucket, self._prefix, self._endpoint, self._region = bucket, prefix, endpoint, region
        self._made: S3Store | None = None
        self._lock = threading.Lock()

    def change(self, path: str, edit: Edit) -> bool:
        """Replace a file by what `edit` returns for its present content; return whether it changed."""
        import obstore  # noqa: PLC0415 - an extra
        from obstore.exceptions import AlreadyExistsError, BaseError, PreconditionError  # noqa: PLC0415 - an extra

        key = f"{self._prefix}/{path}" if self._prefix else path
        kind = JSON if path.endswith(("catalog.json", "collection.json")) else GEOJSON
        for number in range(TRIES):
            try:
                before, etag = self._read(key)
                after = edit(before)
                if after == before:
                    return False
                obstore.put(
                    self._store(),
                    key,
                    after,
                    mode="create" if before is None else {"e_tag": etag},
                    attributes={"Content-Type": kind},
                    use_multipart=False,
                )
            except (AlreadyExistsError, PreconditionError):
                # Another writer was first.
                time.sleep(PAUSE_S * random.random() * min(number + 1, 20))  # noqa: S311 - to spread writers
                continue
            except (BaseError, OSError) as error:
                raise self._unavailable(str(error).partition("\n")[0]) from None
            return True
        raise self._unavailable(f"{key} was changed by others {TRIES} times in a row")

    def _read(self, key: str) -> tuple[bytes | None, str | None]:
        import obstore  # noqa: PLC0415 - an extra

        try:
            found = obstore.get(self._store(), key)
        except FileNotFoundError:
            return None, None
        return bytes(found.bytes()), found.meta["e_tag"]

    def _store(self) -> S3Store:
        with self._lock:
            if self._made is None:
                self._made = s3_store(self._bucket, endpoint=self._endpoint, region=self._region, signed=True)
            return self._made

    def _unavailable(self, why: str) -> StoreUnavailableError:
        return StoreUnavailableError(
            f"s3://{self._bucket}/{self._prefix} cannot be written: {why[:300]}",
            next_step="Check the bucket, --endpoint, --region and the credentials, which need GetObject and PutObject.",
            context={"bucket": self._bucket},
        )
