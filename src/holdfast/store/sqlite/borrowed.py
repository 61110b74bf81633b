"""Whether a connection of the caller can be used for a transaction of a ledger in a SQLite file.

Invariants: the connection is to the ledger's file itself, is durable, and has an open transaction.
"""

import sqlite3
from pathlib import Path
from typing import Any

from holdfast.core.errors import ConnectionUnfitError
from holdfast.store.borrowed import not_taken
from holdfast.store.sqlite.changed import require_file
from holdfast.store.sqlite.identity import LedgerFiles
from holdfast.store.sqlite.store import FULL, plain_cursor


def require_fit(files: LedgerFiles, connection: Any) -> None:
    """Raise ConnectionUnfitError unless a connection of the caller has the settings that Holdfast needs.

    Raise LedgerFileError if the path names another file than the one that the store has opened.
    """
    if not isinstance(connection, sqlite3.Connection):
        raise not_taken(connection, "sqlite3")
    # The ledger must be the main file, not an attached one: in WAL mode a commit of two files is not atomic.
    main = [file for _, name, file in plain_cursor(connection).execute("PRAGMA database_list") if name == "main"]
    if [Path(files.path)] != [Path(file).resolve() for file in main]:
        raise ConnectionUnfitError(f"the connection is to another file than {files.path}", context={"needs": "file"})
    [synchronous] = plain_cursor(connection).execute("PRAGMA main.synchronous").fetchone()
    if synchronous < FULL:
        raise ConnectionUnfitError("the connection does not have synchronous=FULL", context={"needs": "synchronous"})
    if not connection.in_transaction:
        raise ConnectionUnfitError(
            "the connection has no open transaction; begin one with BEGIN IMMEDIATE", context={"needs": "transaction"}
        )
    require_file(files)
