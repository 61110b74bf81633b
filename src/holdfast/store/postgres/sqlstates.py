"""The meaning of every SQLSTATE of PostgreSQL.

Invariants: each class of the server's documentation has an entry; a code of a class that differs from it has its own.
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
OTHER = Meaning("", "raised by a function of the user", EFFECT, CALLER, RefusedByDatabaseError)


def _statement(code: str, name: str) -> Meaning:
    """Return an entry for a statement that is wrong, or that a value of it makes wrong."""
    return Meaning(code, name, EFFECT, CALLER, RefusedByDatabaseError)


TABLE = (
    _statement("00", "successful completion"),
    _statement("01", "warning"),
    _statement("02", "no data"),
    _statement("03", "SQL statement not yet complete"),
    Meaning("08", "connection exception", DATABASE, DATABASE, StoreUnavailableError),
    _statement("09", "triggered action exception"),
    _statement("0A", "feature not supported"),
    _statement("0B", "invalid transaction initiation"),
    _statement("0F", "locator exception"),
    _statement("0L", "invalid grantor"),
    _statement("0P", "invalid role specification"),
    _statement("0Z", "diagnostics exception"),
    _statement("10", "XQuery error"),
    _statement("20", "case not found"),
    _statement("21", "cardinality violation"),
    _statement("22", "data exception"),
    _statement("23", "integrity constraint violation"),
    _statement("24", "invalid cursor state"),
    Meaning("25", "invalid transaction state", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("25006", "read-only transaction", EFFECT, DATABASE, StoreReadOnlyError),
    _statement("25P02", "a statement after one that failed, whose error was suppressed"),
    Meaning("25P03", "idle in transaction for too long", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("25P04", "transaction timeout", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("26", "prepared statement does not exist", DATABASE, DATABASE, StoreUnavailableError),
    _statement("27", "triggered data change violation"),
    Meaning("28", "invalid authorization", EFFECT, CALLER, StoreUnavailableError),
    _statement("2B", "dependent privilege descriptors still exist"),
    _statement("2D", "invalid transaction termination"),
    _statement("2F", "SQL routine exception"),
    _statement("34", "invalid cursor name"),
    _statement("38", "external routine exception"),
    _statement("39", "external routine invocation exception"),
    _statement("3B", "savepoint exception"),
    Meaning("3D", "no such database", EFFECT, CALLER, StoreUnavailableError),
    Meaning("3F", "no such schema", EFFECT, CALLER, StoreUnavailableError),
    Meaning("40", "transaction rolled back: deadlock or conflict", EFFECT, DATABASE, StoreBusyError),
    Meaning("40002", "transaction rolled back by a constraint", EFFECT, CALLER, RefusedByDatabaseError),
    _statement("42", "syntax error or access rule violation"),
    Meaning("42501", "insufficient privilege", EFFECT, CALLER, StoreReadOnlyError),
    Meaning("42P05", "prepared statement exists already", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("42P01", "table of the ledger missing", EFFECT, DATABASE, StoreDamagedError),
    Meaning("42703", "column of the ledger missing", EFFECT, DATABASE, StoreDamagedError),
    _statement("44", "WITH CHECK OPTION violation"),
    Meaning("53", "insufficient resources: disk full, too many connections", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("53200", "out of memory", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("53400", "configuration limit exceeded", EFFECT, DATABASE, StoreUnavailableError),
    _statement("54", "program limit exceeded"),
    Meaning("55", "object not in prerequisite state", EFFECT, DATABASE, StoreBusyError),
    Meaning("55P03", "lock not available", EFFECT, DATABASE, StoreBusyError),
    Meaning("57", "operator intervention", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("57014", "statement cancelled, such as by statement_timeout", EFFECT, DATABASE, StoreBusyError),
    Meaning("58", "system error", DATABASE, DATABASE, StoreUnavailableError),
    Meaning("58P01", "file does not exist", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("58P02", "file exists already", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("72", "snapshot too old", EFFECT, DATABASE, StoreBusyError),
    Meaning("F0", "configuration file error", DATABASE, DATABASE, StoreUnavailableError),
    _statement("HF", "a trigger of the ledger refused"),
    _statement("HV", "foreign data wrapper error"),
    _statement("P0", "PL/pgSQL error"),
    Meaning("XX", "internal error", EFFECT, DATABASE, StoreUnavailableError),
    Meaning("XX001", "data corrupted", DATABASE, DATABASE, StoreDamagedError),
    Meaning("XX002", "index corrupted", DATABASE, DATABASE, StoreDamagedError),
)
