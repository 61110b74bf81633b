"""The schema of a ledger on PostgreSQL: which parts exist, what they enforce, and the partitions of its journal.

Invariants: the texts that the database has stored are compared with the generated ones; every partition that exists is
guarded like the first.
"""

import re
from functools import cache
from typing import Any, cast

from holdfast.core.digest import sha256
from holdfast.core.errors import EpochError
from holdfast.store.migrations import Rules, unique_indexes
from holdfast.store.postgres.connection import LedgerConnection
from holdfast.store.postgres.partitions import FIRST, partition_triggers, partitions
from holdfast.store.statements import GOVERNED, generated
from holdfast.store.store import Clock, Store

# A plan that a trigger made for one row, and keeps, must not compare each of a thousand old rows with each new one.
_SETTING = "enable_nestloop=off"
RULE, TABLE = "rule ", "table "
# What PostgreSQL adds when it prints an index: not a part of what the index enforces.
_PRINTED = frozenset({"using", "btree", "any", "array", "in", "text"})
REFUSE, REFUSE_SIGNATURE = "holdfast_refuse", "(code text, what text) RETURNS boolean"  # the others are of triggers
SCHEMA_LOCK = "60s"


def _quoted(name: str) -> str:
    return '"' + name.replace('"', '""') + '"'


class PostgresSchema(Store[LedgerConnection]):
    """The part of the PostgreSQL store that looks after its schema."""

    def __init__(self, url: str, clock: Clock | None, schema: str) -> None:
        super().__init__(url, clock)
        self.schema = schema
        self._channel = f"holdfast_{schema}"

    def lock_schema(self, connection: Any) -> None:
        # Longer than for other locks: another process that creates or upgrades the ledger holds this one to its end.
        [before, _] = connection.execute(
            "SELECT current_setting('lock_timeout'), set_config('lock_timeout', %s, true)", (SCHEMA_LOCK,)
        ).fetchone()
        connection.execute("SELECT pg_advisory_xact_lock(hashtext(%s))", (self._channel,))
        connection.execute("SELECT set_config('lock_timeout', %s, true)", (before,))

    def tables(self, connection: Any) -> set[str]:
        rows = connection.execute(
            "SELECT c.relname FROM pg_class c WHERE c.relnamespace = to_regnamespace(quote_ident(%s))"
            " AND c.relkind IN ('r', 'p') AND c.relname LIKE 'holdfast\\_%%'",
            (self.schema,),
        )
        return {name for (name,) in rows}

    def enforcement(self, connection: Any, rules: Rules) -> list[str]:
        return [
            *(
                f"CREATE OR REPLACE FUNCTION {name}{REFUSE_SIGNATURE if name == REFUSE else '() RETURNS trigger'}"
                f" LANGUAGE plpgsql SET {_SETTING} SET search_path TO pg_catalog, {self._prefix()[:-1]}, pg_temp"
                f" AS $holdfast${body}$holdfast$"
                for name, body in functions(self._prefix(), rules.epoch).items()
            ),
            *(statement for name, text in self._views().items() for statement in (text, self._noted(name, text))),
            *(
                text
                for (table, name), definition in self._triggers(connection, rules).items()
                # ALWAYS: a session that calls itself a replica is guarded too.
                for text in (
                    f"DROP TRIGGER IF EXISTS {name} ON {table}",
                    definition,
                    f"ALTER TABLE {table} ENABLE ALWAYS TRIGGER {name}",
                )
            ),
        ]

    def foreign_enforcement(self, connection: Any, rules: Rules) -> list[str]:
        expected, bodies = self._triggers(connection, rules), functions(self._prefix(), rules.epoch)
        views = self._found_views(connection)
        found = ((table, name) for table, name, _, _, copied in self._found_triggers(connection) if not copied)
        return [
            *(f"DROP TRIGGER {_quoted(name)} ON {table}" for table, name in found if (table, name) not in expected),
            *(f"DROP RULE {_quoted(name)} ON {table}" for table, name in self._found_rules(connection)),
            *(f"DROP FUNCTION {signature}" for signature in self._foreign_functions(connection, set(bodies))),
            # CREATE OR REPLACE cannot take a column away.
            *(f"DROP VIEW {_quoted(name)}" for name, same in views.items() if not same),
            *(f"ALTER TABLE {name} {back}" for name, back in self._altered_tables(connection)),
        ]

    def enforcement_drift(self, connection: Any, rules: Rules) -> list[str]:
        rows = self._found_triggers(connection)
        # A partition's copy of a trigger can be switched off alone.
        off = {name for _, name, _, enabled, _ in rows if enabled != "A"}
        found = {(table, name): text for table, name, text, _, copied in rows if not copied}
        bodies, expected_bodies = self._found_functions(connection), functions(self._prefix(), rules.epoch)
        expected = self._triggers(connection, rules)
        differing = {key[1] for key in found.keys() | expected.keys() if found.get(key) != expected.get(key)}
        functions_seen = bodies.keys() | expected_bodies.keys()
        differing |= {name for name in functions_seen if bodies.get(name) != expected_bodies.get(name)}
        views = self._found_views(connection)
        differing |= {name for name in self._views() if not views.get(name)}
        named = {f"{RULE}{name}" for _, name in self._found_rules(connection)}
        named |= {f"{TABLE}{name}" for name, _ in self._altered_tables(connection)}
        return sorted(off | differing | named | self.missing_indexes(connection))

    def _views(self) -> dict[str, str]:
        texts = generated("postgres", "view")
        return {name: text.replace("{schema}", self._prefix()) for name, text in texts.items()}

    @staticmethod
    def _noted(name: str, text: str) -> str:
        """Return the statement that notes, as the comment of a view, what it was made from and what was stored.

        PostgreSQL keeps no text of a view, and prints one in its own words; so opening a ledger compares two digests.
        """
        noted = f"'{sha256(text)} ' || md5(pg_get_viewdef('{name}'::regclass))"
        return f"DO $holdfast$BEGIN EXECUTE format('COMMENT ON VIEW {name} IS %L', {noted}); END$holdfast$"

    def _found_views(self, connection: Any) -> dict[str, bool]:
        """Return those views of Holdfast that exist, each with whether it is the one that was written."""
        rows = connection.execute(
            "SELECT c.relname::text, obj_description(c.oid, 'pg_class'), md5(pg_get_viewdef(c.oid)) FROM pg_class c"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relkind = 'v'"
            " AND c.relname LIKE 'holdfast\\_%%'",
            (self.schema,),
        )
        texts = self._views()
        return {name: noted == f"{sha256(texts[name])} {md5}" for name, noted, md5 in rows if name in texts}

    def _altered_tables(self, connection: Any) -> list[tuple[str, str]]:
        """Return the tables that a crash would empty or whose rows are hidden, each with the change that undoes it."""
        rows = connection.execute(
            "SELECT c.relname::text, c.relpersistence <> 'p', c.relrowsecurity FROM pg_class c"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relkind IN ('r', 'p')"
            " AND c.relname LIKE 'holdfast\\_%%' AND (c.relpersistence <> 'p' OR c.relrowsecurity) ORDER BY 1",
            (self.schema,),
        )
        back = ("SET LOGGED", "DISABLE ROW LEVEL SECURITY")
        return [(name, words) for name, *is_so in rows for words, so in zip(back, is_so, strict=True) if so]

    def _found_functions(self, connection: Any) -> dict[str, str]:
        rows = connection.execute(
            "SELECT proname::text,"
            " CASE WHEN proconfig = ARRAY[%s, format('search_path=pg_catalog, %%I, pg_temp', %s::text)]"
            " AND NOT prosecdef AND NOT proisstrict AND provolatile = 'v'"
            " AND count(*) OVER (PARTITION BY proname) = 1 THEN prosrc ELSE '' END FROM pg_proc"
            " WHERE pronamespace = to_regnamespace(quote_ident(%s)) AND proname LIKE 'holdfast\\_%%'",
            (_SETTING, self.schema, self.schema),
        )
        return dict(rows.fetchall())  # if two have one name, a call may reach either: neither counts

    def _foreign_functions(self, connection: Any, own: set[str]) -> list[str]:
        """Return the signatures of functions with names of Holdfast that Holdfast did not make."""
        rows = connection.execute(
            "SELECT p.proname::text, pg_get_function_identity_arguments(p.oid) FROM pg_proc p"
            " WHERE p.pronamespace = to_regnamespace(quote_ident(%s)) AND p.proname LIKE 'holdfast\\_%%' ORDER BY 1, 2",
            (self.schema,),
        )
        ours = REFUSE_SIGNATURE.partition(") ")[0][1:]
        return [
            f"{_quoted(name)}({arguments})"
            for name, arguments in rows.fetchall()
            if name not in own or arguments != (ours if name == REFUSE else "")
        ]

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
        """Return the rules on tables of Holdfast, which makes none itself: the table and the name."""
        rows = connection.execute(
            "SELECT c.relname::text, r.rulename::text FROM pg_rewrite r JOIN pg_class c ON c.oid = r.ev_class"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relkind IN ('r', 'p', 'v')"
            " AND r.rulename <> '_RETURN' AND c.relname LIKE 'holdfast\\_%%' ORDER BY 1, 2",
            (self.schema,),
        )
        return cast("list[tuple[str, str]]", rows.fetchall())

    def missing_indexes(self, connection: Any) -> set[str]:
        rows = connection.execute(
            "SELECT c.relname::text, pg_get_indexdef(c.oid) FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid"
            " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND i.indisunique AND i.indisvalid",
            (self.schema,),
        )
        # An index without a text is one of a partition that was dropped since this view began.
        found = {name: text.replace(self._prefix(), "") for name, text in rows if text is not None}
        present = {name: _index_words(text.replace(f"{self.schema}.", "")) for name, text in found.items()}
        expected = {
            name.replace(f"{FIRST}_", f"{partition}_"): text.replace(FIRST, partition)
            for partition in self._partitions(connection)
            for name, text in unique_indexes(self.dialect).items()
        }
        return {name for name, text in expected.items() if present.get(name) != _index_words(text)}

    def _triggers(self, connection: Any, rules: Rules) -> dict[tuple[str, str], str]:
        own = (partition_triggers(partition) for partition in self._partitions(connection))
        made = triggers() | (triggers(GOVERNED) if rules.governed else {})
        return made | {key: text for texts in own for key, text in texts.items()}

    def _partitions(self, connection: Any) -> list[str]:
        """Return the names of the journal's partitions; the first one comes with the schema."""
        return [partition.name for partition in partitions(connection, self.schema)] or [FIRST]

    def require_present(self, connection: Any, epoch: int) -> None:
        # A row that is written before the new epoch begins would sort among sealed rows, and never be sealed.
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
def _index_words(index: str) -> list[str]:
    """Return the words of an index that say what it enforces, as a migration writes or PostgreSQL prints it."""
    words = re.findall(r"'[^']*'|\w+|<>", index)
    return [word for word in words if word.lower() not in _PRINTED]


@cache
def functions(schema: str, epoch: int) -> dict[str, str]:
    """Return the body of every trigger function by its name. `schema` is quoted and ends with a dot."""
    return {
        name: text.split("$holdfast$")[1].strip("\n").replace("{schema}", schema).replace("{epoch}", str(epoch))
        for name, text in generated("postgres", "function").items()
    }


@cache
def triggers(kind: str = "trigger") -> dict[tuple[str, str], str]:
    """Return the text of every trigger of a kind by (table, name), as `pg_get_triggerdef` prints it."""
    return {(table, name): text for key, text in generated("postgres", kind).items() for table, name in [key.split()]}
