"""The triggers and views of the PostgreSQL dialect; `postgres.functions` has the functions that the triggers call.

Invariants: statement triggers over transition tables see every row of every INSERT, UPDATE, MERGE and COPY; column-list
row triggers cost nothing unless their columns are named; the texts are in the form that `pg_get_triggerdef` prints, so
that opening a ledger can compare them.
"""

from collections.abc import Sequence

from holdfast.core.machines import JOB
from holdfast.store import joint
from holdfast.store.postgres.functions import (
    ABORTED,
    APPROVERS,
    CALLS,
    ERASED,
    EVIDENCE,
    FOLDED,
    IN_FORCE,
    JOBS,
    LEASES,
    META,
    TRACEBACKS,
)
from holdfast.store.postgres.partitions import after_written, before_truncate
from holdfast.store.tables import GUARDED, table_named

SEALS = "holdfast_seals"


def triggers() -> dict[tuple[str, str], str]:
    """Return the text of every trigger by (table, name), as `pg_get_triggerdef` prints it."""
    texts = {
        # AFTER … WHEN costs a row nothing; a BEFORE trigger costs it something even if no column of it is named.
        (table, f"{table}_once"): f"AFTER UPDATE OF {', '.join(once)} ON {table} FOR EACH ROW WHEN ({_differs(once)})"
        for table, once in ((JOBS, joint.JOBS.write_once), (CALLS, table_named("calls").names))
    }
    texts[JOBS, f"{JOBS}_requested"] = (
        f"AFTER UPDATE OF cancel_requested_at ON {JOBS} FOR EACH ROW WHEN ({joint.made_request('old', 'new')})"
    )
    many = f"(new.delta_id % {joint.FOLD_EVERY}::bigint) = 0"
    texts[joint.DELTAS, FOLDED] = f"AFTER INSERT ON {joint.DELTAS} FOR EACH ROW WHEN ({many})"
    for guarded in GUARDED:
        table, once = guarded.table, ", ".join((guarded.id, *guarded.write_once))
        if guarded.machine is not JOB:
            texts[table, f"{table}_once"] = f"BEFORE UPDATE OF {once} ON {table} FOR EACH ROW"
        texts[table, f"{table}_born"] = f"AFTER INSERT ON {table} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT"
        texts[table, f"{table}_moved"] = (
            f"AFTER UPDATE ON {table} REFERENCING OLD TABLE AS old_rows NEW TABLE AS new_rows FOR EACH STATEMENT"
        )
    texts = {(table, name): f"{text} EXECUTE FUNCTION {name}()" for (table, name), text in texts.items()}
    journal, door, refuse = "holdfast_journal", "holdfast_maintenance", "holdfast_journal_refuse"
    texts[ABORTED, f"{ABORTED}_written"] = after_written(ABORTED)
    texts[ABORTED, f"{ABORTED}_update"] = _each_row("BEFORE UPDATE", ABORTED, refuse)
    texts |= _record_triggers()
    # The function that a row of each table calls before it is written; None: the one with the name of the trigger.
    before: dict[str, dict[str, str | None]] = {
        journal: {"update": refuse, "delete": None},
        SEALS: {"insert": "holdfast_seals_follow", "update": refuse, "delete": refuse},
        "holdfast_archives": {"update": refuse, "delete": refuse},
        EVIDENCE: {"update": None, "delete": refuse},
        LEASES: {"update": None, "delete": None},
        TRACEBACKS: {"insert": None, "update": refuse, "delete": "holdfast_delete"},
        ERASED: {"insert": None, "update": refuse, "delete": refuse},
        META: {"update": None, "delete": None},
    }
    for table, functions in before.items():
        for act, function in functions.items():
            name = f"{table}_{act}"
            texts[table, name] = _each_row(f"BEFORE {act.upper()}", table, function or name)
        if table == journal:
            texts[table, f"{table}_written"] = after_written(table)
        texts[table, f"{table}_truncate"] = before_truncate(table)
    for name, head in (
        ("opened", "AFTER INSERT"),
        ("shut", "BEFORE DELETE"),
        ("write_once", "BEFORE UPDATE"),
    ):
        texts[door, f"{door}_{name}"] = _each_row(head, door, f"{door}_{name}")
    texts[door, f"{door}_still_open"] = (
        f"AFTER INSERT ON {door} DEFERRABLE INITIALLY DEFERRED FOR EACH ROW EXECUTE FUNCTION {door}_still_open()"
    )
    texts[door, f"{door}_truncate"] = before_truncate(door)
    return {
        (table, name): f"CREATE {'CONSTRAINT ' if ' DEFERRABLE ' in text else ''}TRIGGER {name} {text}"
        for (table, name), text in texts.items()
    }


def governed_triggers() -> dict[tuple[str, str], str]:
    """Return the triggers that only a governed ledger has."""
    made = f"AFTER INSERT ON {JOBS} REFERENCING NEW TABLE AS new_rows FOR EACH STATEMENT EXECUTE FUNCTION {IN_FORCE}()"
    return {(JOBS, IN_FORCE): f"CREATE TRIGGER {IN_FORCE} {made}"}


def _record_triggers() -> dict[tuple[str, str], str]:
    """Return what keeps records, calls and attempts from being deleted, and what guards the approvers."""
    texts = {}
    records = {guarded.table: (guarded.machine.name, guarded.id) for guarded in GUARDED}
    records[APPROVERS] = ("APPROVER", "name")
    for table in (CALLS, ABORTED, *records):
        texts[table, f"{table}_delete"] = _each_row("BEFORE DELETE", table, "holdfast_delete")
        texts[table, f"{table}_truncate"] = before_truncate(table)
    for table, (name, key) in records.items():
        texts[table, f"{table}_deleted"] = (
            f"AFTER DELETE ON {table} FOR EACH ROW EXECUTE FUNCTION holdfast_deleted('{name}', '{key}')"
        )
    for name, head in (("insert", "BEFORE INSERT"), ("update", "BEFORE UPDATE"), ("rewritten", "AFTER UPDATE")):
        function = f"{APPROVERS}_{name}"
        texts[APPROVERS, function] = _each_row(head, APPROVERS, function)
    return texts


def views(schema: str) -> dict[str, str]:
    texts = joint.views().items()
    return {name: f"CREATE OR REPLACE VIEW {name} AS\n{text.replace('{schema}', schema)}" for name, text in texts}


def _each_row(head: str, table: str, function: str) -> str:
    return f"{head} ON {table} FOR EACH ROW EXECUTE FUNCTION {function}()"


def _differs(columns: Sequence[str]) -> str:
    return " OR ".join(f"new.{column} IS DISTINCT FROM old.{column}" for column in columns)
