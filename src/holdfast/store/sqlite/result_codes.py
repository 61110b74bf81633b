"""The meaning of every result code of SQLite.

Invariants: each primary result code has an entry; an extended code that differs from it has its own.
"""

from holdfast.core.errors import (
    RefusedByDatabaseError,
    StoreBusyError,
    StoreDamagedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.store.meanings import Fault, Meaning

EFFECT, CALLER, DATABASE = Fault.EFFECT, Fault.CALLER, Fault.DATABASE
OTHER = Meaning("", "of the driver, such as a wrong number of parameters", EFFECT, CALLER, RefusedByDatabaseError)

TABLE = (
    Meaning("SQLITE_ERROR", "SQL error, or the schema is damaged", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_INTERNAL", "internal error", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_PERM", "access mode refused", DATABASE, CALLER, StoreReadOnlyError),
    Meaning("SQLITE_ABORT", "statement aborted", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_BUSY", "another connection holds the lock", EFFECT, DATABASE, StoreBusyError),
    Meaning("SQLITE_LOCKED", "a statement of this connection holds the lock", EFFECT, DATABASE, StoreBusyError),
    Meaning("SQLITE_NOMEM", "out of memory", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_READONLY", "file not writable", DATABASE, CALLER, StoreReadOnlyError),
    Meaning("SQLITE_INTERRUPT", "statement interrupted", EFFECT, DATABASE, StoreBusyError),
    Meaning("SQLITE_IOERR", "disk I/O error", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_IOERR_SHORT_READ", "file too short", DATABASE, DATABASE, StoreDamagedError),
    Meaning("SQLITE_IOERR_CORRUPTFS", "file system damaged", DATABASE, DATABASE, StoreDamagedError),
    Meaning("SQLITE_CORRUPT", "file damaged", DATABASE, DATABASE, StoreDamagedError),
    Meaning("SQLITE_CORRUPT_VTAB", "content of a virtual table damaged", EFFECT, DATABASE, StoreDamagedError),
    Meaning("SQLITE_NOTFOUND", "unknown file control", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_FULL", "disk full", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_CANTOPEN", "file cannot be opened", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_PROTOCOL", "race of file locks", DATABASE, DATABASE, StoreBusyError),
    Meaning("SQLITE_EMPTY", "not used", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_SCHEMA", "schema changed meanwhile", DATABASE, DATABASE, StoreBusyError),
    Meaning("SQLITE_TOOBIG", "value too large", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_CONSTRAINT", "a constraint or trigger refused", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_MISMATCH", "type mismatch", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_MISUSE", "driver used wrongly", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_NOLFS", "file system without large files", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("SQLITE_AUTH", "authorizer refused", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_FORMAT", "file format damaged", DATABASE, DATABASE, StoreDamagedError),
    Meaning("SQLITE_RANGE", "parameter out of range", EFFECT, CALLER, RefusedByDatabaseError),
    Meaning("SQLITE_NOTADB", "not a database file", DATABASE, DATABASE, StoreDamagedError),
)
