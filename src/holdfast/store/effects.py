"""Staged effects: statements of a handler that are applied in the transaction that commits its job.

Invariants: an effect is not executed before the commit boundary, so an attempt can be repeated; it is one statement
that reads or writes rows, and does not end the transaction; it cannot name a table of the ledger.
"""

import re
from collections.abc import Iterator, Sequence
from copy import copy
from functools import lru_cache
from itertools import groupby

from holdfast.core.errors import EffectError
from holdfast.store.requests import Effect, Params

__all__ = ["Effect", "Params", "as_pyformat", "groups", "in_turn", "limit", "require_rows", "staged"]

HURRIED = 10
FIRST_WORDS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "SELECT"})
# A name of the ledger, the counters of SQLite's ids, and names that only the server can read, such as U&"\0068".
_FORBIDDEN = re.compile(r"holdfast_|\bsqlite_sequence\b|\bu&[\"]", re.IGNORECASE)

# Skips text that may contain colons or semicolons: quoted text, quoted names, dollar quotes, comments, casts.
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^']|'')*' | "(?:[^"]|"")*" | (?<![\w$])\$(?P<tag>\w*)\$.*?\$(?P=tag)\$
                 | --[^\n]* | /\*.*?\*/ | ::)
      | (?P<name>:[A-Za-z_]\w*)
      | (?P<end>;)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL,
)


def staged(sql: str, params: Params | None, rows: int | None) -> Effect:
    """Return an effect; raise EffectError if it is not allowed, so that the handler sees the error."""
    if rows is not None and rows < 0:
        raise EffectError(f"rows is {rows}; it must not be negative")
    # A copy: the handler may change the same dictionary for its next effect.
    return Effect(_allowed(sql), {} if params is None else copy(params), rows)


@lru_cache(maxsize=512)
def _allowed(sql: str) -> str:
    """Return a statement without the semicolon at its end; raise EffectError if it is not allowed."""
    words = sql.split(None, 1)
    first = words[0].upper() if words else ""
    if first not in FIRST_WORDS:
        raise EffectError(f"an effect cannot begin with {first[:20] or 'nothing'}", context={"statement": sql[:80]})
    if _FORBIDDEN.search(sql):
        raise EffectError(
            "an effect cannot name a table of the ledger, sqlite_sequence, or a name in Unicode escapes",
            context={"statement": sql[:80]},
        )
    if any(token["end"] and sql[token.end() :].strip() for token in _TOKEN.finditer(sql)):
        raise EffectError("an effect must be one statement", context={"statement": sql[:80]})
    return sql.rstrip().rstrip(";")


def limit(longest_s: float, shortest_lease_s: float | None, effects: Sequence[Effect]) -> float:
    """Return for how many seconds effects may wait or run: a quarter of the shortest lease, a tenth if hurried."""
    limit_s = min(longest_s, (shortest_lease_s or longest_s * 4) / 4)
    return limit_s / HURRIED if any(effect.hurried for effect in effects) else limit_s


@lru_cache(maxsize=512)
def as_pyformat(sql: str) -> str:
    """Return a statement with `%(name)s` in place of `:name`; one with placeholders of psycopg is unchanged."""
    if "%(" in sql or "%s" in sql:
        return sql

    def written(token: re.Match[str]) -> str:
        if token["name"]:
            return f"%({token['name'][1:]})s"
        return token[0].replace("%", "%%")

    return _TOKEN.sub(written, sql)


def groups(effects: Sequence[Effect]) -> Iterator[tuple[str, int | None, list[Effect]]]:
    """Yield groups of consecutive effects with the same statement and the same row count."""
    for (sql, rows), run in groupby(effects, key=lambda effect: (effect.sql, effect.rows)):
        yield sql, rows, list(run)


def require_rows(effect: Effect, count: int) -> None:
    """Raise EffectError if the row count of a statement differs from that of its effect."""
    if effect.rows is not None and count != effect.rows:
        raise EffectError(
            f"an effect changed {count} rows instead of {effect.rows}", context={"statement": effect.sql[:80]}
        )


def in_turn(staged_by_job: Sequence[Sequence[Effect]]) -> list[Effect]:
    """Return the effects of many jobs, one job after another, so that no job reads a part of another job's effects.

    Jobs are sorted by their statements: equal statements follow each other, and can run as one batch.
    """
    jobs = sorted(staged_by_job, key=lambda effects: [effect.sql for effect in effects])
    return [effect for effects in jobs for effect in effects]
