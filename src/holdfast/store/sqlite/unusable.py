"""Why a path or its file cannot be that of a ledger.

Invariants: nothing is written.
"""

from pathlib import Path

from holdfast.core.errors import DurabilityError, NotALedgerError, StoreError, StoreUnavailableError


def unusable(path: Path, system: str | None, *, create: bool) -> StoreError:
    """Return the error for a path that the store cannot use; `system` is the type of its file system."""
    if not path.parent.is_dir():
        return StoreUnavailableError(
            f"there is no directory {path.parent}", next_step="Create the directory, or correct the path."
        )
    if path.is_dir():
        return StoreUnavailableError(f"{path} is a directory", next_step="Name a file inside it.")
    if path.exists() and not path.is_file():
        return StoreUnavailableError(f"{path} is not a regular file", next_step="Name a regular file.")
    if not path.exists() and not create:
        return NotALedgerError(f"there is no ledger at {path}", context={"path": str(path)})
    return DurabilityError(
        f"{path} is on a network file system ({system}), where SQLite's locks and syncs cannot be trusted",
        next_step="Put the ledger on a local disk, or use PostgreSQL.",
    )


def not_durable(path: Path, mode: str, synchronous: int) -> DurabilityError:
    """Return the error for a file whose settings SQLite did not take."""
    return DurabilityError(
        f"{path}: journal_mode={mode}, synchronous={synchronous}; WAL and FULL are needed",
        context={"journal_mode": mode, "synchronous": synchronous},
    )
