"""Errors of SQLite and of its driver as errors of Holdfast.

Invariants: every error of the driver has an error of Holdfast, by the table of `result_codes.py`; no error quotes data
of the ledger; a refusal by a trigger or a CHECK names its code.
"""

import os
import shutil
import sqlite3
from pathlib import Path

from holdfast.core.errors import (
    EffectError,
    HoldfastError,
    NotALedgerError,
    RefusedByDatabaseError,
    StoreBusyError,
    StoreDamagedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.store.meanings import Fault, meaning_of
from holdfast.store.sqlite.result_codes import OTHER, TABLE

HEAD_BYTES = 1 << 16
ROOM_BYTES = 1 << 20  # a disk with less is as good as full


def translated(path: Path, error: Exception) -> HoldfastError | None:
    """Return the error of Holdfast for an error of the driver; None if there is none."""
    if isinstance(error, UnicodeDecodeError):  # raised by the driver for a message of SQLite that is not UTF-8
        return _damaged(path, "text in it is not UTF-8", "SQLITE_CORRUPT")
    if not isinstance(error, sqlite3.Error):
        return None
    text = str(error)
    name = _name(error)
    if text.startswith("HF") and name.startswith("SQLITE_CONSTRAINT"):
        return RefusedByDatabaseError(text, context={"refusal": text[:5]})
    if isinstance(error, sqlite3.IntegrityError):  # by class: Python has no name for some codes
        checked = "holdfast_jobs_" in text and text.endswith("_check")  # job and attempt disagree
        return RefusedByDatabaseError(text, context={"refusal": "HF001"} if checked else {})
    if text.startswith("Could not decode to UTF-8"):  # has no error name; the rest of the text quotes the data
        return _damaged(path, "text in it is not UTF-8", "SQLITE_CORRUPT")
    return error_of(path, text, name)


def schema_damage(path: Path, error: sqlite3.OperationalError) -> StoreDamagedError | None:
    """Return the error for a failed statement of Holdfast if the schema differs from that of the migrations."""
    plain = getattr(error, "sqlite_errorname", "") == "SQLITE_ERROR"
    return _damaged(path, str(error), "SQLITE_ERROR") if plain and "malformed JSON" not in str(error) else None


def of_effect(path: Path, error: sqlite3.Error | OverflowError, statement: str) -> HoldfastError:
    """Return the error of Holdfast for an error of the driver in an effect: the effect's fault, or the database's."""
    name = _name(error)
    if meaning_of(name, TABLE, OTHER).in_effect is Fault.DATABASE:
        return translated(path, error) or error_of(path, str(error), name)
    context: dict[str, object] = {"sqlite": name, "statement": statement[:80]}
    if name.startswith("SQLITE_INTERRUPT"):
        context["waited"] = True
        return EffectError("an effect held the write lock for too long, and was interrupted", context=context)
    return EffectError(f"the database refused an effect: {error}", context=context)


def _name(error: Exception) -> str:
    return getattr(error, "sqlite_errorname", "") or ""


def error_of(path: Path, text: str, name: str) -> HoldfastError:
    """Return the error of Holdfast for a result code and its text, by the table of `result_codes`."""
    if name.startswith("SQLITE_NOTADB") and not _was_a_ledger(path):
        next_step = "Give another file name; this file is not a ledger."
        return NotALedgerError(f"{path} is not a SQLite database", next_step=next_step)
    if text == "unsupported file format":  # a damaged header
        return _damaged(path, text, name)
    if not name and "closed database" in text:
        return StoreUnavailableError(f"{path}: {text}")
    kind = meaning_of(name, TABLE, OTHER).error
    if kind is StoreBusyError and name.startswith(("SQLITE_BUSY", "SQLITE_LOCKED")):
        return busy(path)
    if kind is StoreReadOnlyError:
        return StoreReadOnlyError(f"{path} is not writable")
    if kind is StoreDamagedError:
        return _damaged(path, text, name)
    # Where not even the shared memory of the log has room, SQLite says "disk I/O error".
    if name.startswith("SQLITE_FULL") or (name.startswith("SQLITE_IOERR") and _is_full(path)):
        return kind(f"{path}: {text}", next_step=free_space(path), context={"sqlite": name, "full": True})
    return kind(f"{path}: {text}", context={"sqlite": name} if name else {})


def free_space(path: Path) -> str:
    """Return the next step where the disk of a file is full."""
    return f"Free space on the disk of {path.absolute()}, then try again."


def _is_full(path: Path) -> bool:
    try:
        return shutil.disk_usage(path.parent).free < ROOM_BYTES
    except OSError:
        return False


def busy(path: Path, within: str = "") -> StoreBusyError:
    """Return the error for a write lock that was not free; it names the process that holds it, if that is known."""
    from holdfast.store.sqlite.holders import writer  # noqa: PLC0415 - it reads the locks of the whole system

    pid = writer(str(path))
    own = f"process {pid}, another thread of this process," if pid == os.getpid() else f"process {pid}"
    holder = "another process or thread" if pid is None else own
    return StoreBusyError(
        f"could not get the write lock of {path}{within}: {holder} holds it",
        next_step=None
        if pid is None
        else f"Try again. If the error repeats: `ps -fp {pid}` shows what process {pid} is.",
        context={"path": str(path), "pid": pid},
    )


def _damaged(path: Path, text: str, name: str) -> StoreDamagedError:
    return StoreDamagedError(f"{path} is damaged: {text}", context={"sqlite": name})


def _was_a_ledger(path: Path) -> bool:
    """Return whether a file that SQLite cannot read contains names of the ledger's tables."""
    try:
        with path.open("rb") as file:
            head = file.read(HEAD_BYTES)
    except OSError:
        return False
    return b"holdfast_" in head
