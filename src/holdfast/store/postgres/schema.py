"""The schema of a ledger on PostgreSQL: what of it is there, what it enforces, and the partitions of its journal.

Invariants: what is compared with the generated texts is what the database itself has stored; every partition that
exists is guarded like the first.
"""

from functools import cache
from typing import Any, cast

import psycopg

from holdfast.core.errors import EpochError
from holdfast.store.migrations import unique_indexes
from holdfast.store.postgres.partitions import (
    FIRST,
    partition_triggers,
    partitions,
)
from holdfast.store.statements import trigger_texts
from holdfast.store.store import Clock, Store

# A plan that a trigger made for one row, and keeps, must not compare each of a thousand old rows with each new one.
_SETTING = "enable_nestloop=off"
RULE = "rule "


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class PostgresSchema(Store[psycopg.Connection[tuple[Any, ...]]]):
    """The part of the PostgreSQL store that looks after its schema."""

    def __init__(self, url: str, clock: Clock | None, schema: str) -> None:
        super().__init__(url, clock)
        self.schema = schema
        self._channel = f"holdfast_{schema}"

    def lock_schema(self, connection: Any) -> None:
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._channel,))

    def tables(self, connection: Any) -> set[str]:
        rows = connection.execute(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident(%s))"
            " AND c.relkind IN ('r', 'p') AND c.relname LIKE 'holdfast\\_%%'",
            (self.schema,),
        )
        return {name for (name,) in rows}

    def enforcement(self, connection: Any, epoch: int) -> list[str]:
        return [
            *(
                f"CREATE OR REPLACE FUNCTION {name}() RETURNS trigger LANGUAGE plpgsql SET {_SETTING}"
                f" AS $holdfast${body}$holdfast$"
                for name, body in functions(self._prefix(), epoch).items()
            ),
            *(
                text
                for (table, name), definition in self._triggers(connection).items()
                # ALWAYS: a session that calls itself a replica is guarded too.
                for text in (
                    f"DROP TRIGGER IF EXISTS {name} ON {table}",
                    definition,
                    f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
                )
            ),
        ]

    def foreign_enforcement(self, connection: Any, epoch: int) -> list[str]:
        expected, bodies = self._triggers(connection), functions(self._prefix(), epoch)
        found = ((table, name) for table, name, _, _, copied in self._found_triggers(connection) if not copied)
        return [
            *(f"DROP TRIGGER {_quoted(name)} ON {table}" for table, name in found if (table, name) not in expected),
            *(f"DROP RULE {_quoted(name)} ON {table}" for table, name in self._found_rules(connection)),
            *(f"DROP FUNCTION {name}()" for name in self._found_functions(connection) if name not in bodies),
        ]

    def enforcement_drift(self, connection: Any, epoch: int) -> list[str]:
        rows = self._found_triggers(connection)
        # A partition's copy of a trigger can be switched off alone.
        off = {name for _, name, _, enabled, _ in rows if enabled != "A"}
        found = {(table, name): text for table, name, text, _, copied in rows if not copied}
        bodies, expected_bodies = self._found_functions(connection), functions(self._prefix(), epoch)
        expected = self._triggers(connection)
        differing = {key[1] for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
        functions_seen = bodies.keys() | expected_bodies.keys()
        differing |= {name for name in functions_seen if bodies.get(name) != expected_bodies.get(name)}
        rules = {f"{RULE}{name}" for _, name in self._found_rules(connection)}
        return sorted(off | differing | rules | self.missing_indexes(connection))

    def _found_functions(self, connection: Any) -> dict[str, str]:
        rows = connection.execute(
            "SELECT proname::text, CASE WHEN proconfig = %s THEN prosrc ELSE '' END FROM pg_proc"
            " WHERE pronamespace = to_regnamespace(quote_ident(%s)) AND proname LIKE 'holdfast\\_%%'",
            ([_SETTING], self.schema),
        )
        return dict(rows.fetchall())

    def _found_triggers(self, connection: Any) -> list[tuple[str, str, str, str, bool]]:
        rows = connection.execute(
            "SELECT c.relname::text, t.tgname::text, pg_get_triggerdef(t.oid, true), t.tgenabled::text,"
            " t.tgparentid <> 0 FROM pg_trigger t JOIN pg_class c ON c.oid = t.tgrelid"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND NOT t.tgisinternal"
            " AND (t.tgname LIKE 'holdfast\\_%%' OR c.relname LIKE 'holdfast\\_%%')",
            (self.schema,),
        )
        # A trigger without a text is one of a partition that was dropped since this view began.
        return [cast("tuple[str, str, str, str, bool]", row) for row in rows.fetchall() if row[2] is not None]

    def _found_rules(self, connection: Any) -> list[tuple[str, str]]:
        """Return the rules on our tables, none of which is ours: the table and the name."""
        rows = connection.execute(
            "SELECT c.relname::text, r.rulename::text FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relkind IN ('r', 'p')"
            " AND c.relname LIKE 'holdfast\\_%%' ORDER BY 1, 2",
            (self.schema,),
        )
        return cast("list[tuple[str, str]]", rows.fetchall())

    def missing_indexes(self, connection: Any) -> set[str]:
        rows = connection.execute(
            "SELECT c.relname::text FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND i.indisunique AND i.indisvalid",
            (self.schema,),
        )
        present = {name for (name,) in rows.fetchall()}
        expected = {
            name.replace(f"{FIRST}_", f"{partition}_")
            for partition in self._partitions(connection)
            for name in unique_indexes(self.dialect)
        }
        return expected - present

    def _triggers(self, connection: Any) -> dict[tuple[str, str], str]:
        own = (partition_triggers(partition) for partition in self._partitions(connection))
        return triggers() | {key: text for texts in own for key, text in texts.items()}

    def _partitions(self, connection: Any) -> list[str]:
        """Return the names of the journal's partitions; the first one comes with the schema."""
        return [partition.name for partition in partitions(connection, self.schema)] or [FIRST]

    def require_present(self, connection: Any, epoch: int) -> None:
        # What is written before the new epoch begins would sort among sealed rows, and never be sealed.
        sealed = "SELECT max(last_xid) FROM holdfast_seals WHERE epoch = %s"
        [[last, next_xid]] = connection.execute(
            f"SELECT ({sealed}), pg_snapshot_xmax(pg_current_snapshot())::text::bigint", (epoch,)
        ).fetchall()
        if last is not None and last >= next_xid:
            raise EpochError(
                f"the journal is sealed up to transaction {last}, but the database has only reached {next_xid}",
                context={"epoch": epoch, "transaction": last, "next": next_xid},
            )

    def _prefix(self) -> str:
        return '"' + self.schema.replace('"', '""') + '".'


@cache
def functions(schema: str, epoch: int) -> dict[str, str]:
    """Return the body of every trigger function by its name. `schema` is quoted and ends with a dot."""
    bodies = {name: text.split("$holdfast$")[1] for name, text in trigger_texts("postgres").items() if " " not in name}
    return {
        name: body.strip("\n").replace("{schema}", schema).replace("{epoch}", str(epoch))
        for name, body in bodies.items()
    }


def triggers() -> dict[tuple[str, str], str]:
    """Return the text of every trigger by (table, name), as `pg_get_triggerdef` prints it."""
    names = {name: tuple(name.split()) for name in trigger_texts("postgres") if " " in name}
    return {(table, trigger): trigger_texts("postgres")[name] for name, (table, trigger) in names.items()}
