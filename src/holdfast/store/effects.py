"""Staged effects: statements that a handler leaves to be applied when its job commits.

Invariants: an effect is data until the commit boundary, so repeating it is safe; it is one statement that reads or
writes rows, never one that ends a transaction; it cannot name a table of the ledger.
"""

import re
from collections.abc import Iterator, Mapping, Sequence
from copy import copy
from functools import lru_cache
from itertools import groupby

import msgspec

from holdfast.core.errors import EffectError

FIRST_WORDS = frozenset({"INSERT", "UPDATE", "DELETE", "MERGE", "WITH", "SELECT"})

# What a parameter or a semicolon can hide in: quoted text, quoted names, dollar quotes, comments, casts.
_TOKEN = re.compile(
    r"""(?P<skip>'(?:[^']|'')*' | "(?:[^"]|"")*" | \$(?P<tag>\w*)\$.*?\$(?P=tag)\$ | --[^\n]* | /\*.*?\*/ | ::)
      | (?P<name>:[A-Za-z_]\w*)
      | (?P<end>;)
      | (?P<percent>%)""",
    re.VERBOSE | re.DOTALL,
)

Params = Mapping[str, object] | Sequence[object]


class Effect(msgspec.Struct, frozen=True):
    """One statement with its parameters; `rows` is the row count it must have, if that matters."""

    sql: str
    params: Params
    rows: int | None = None


def staged(sql: str, params: Params | None, rows: int | None) -> Effect:
    """Return an effect, or raise EffectError at once: in the handler, where the mistake is."""
    words = sql.split(None, 1)
    first = words[0].upper() if words else ""
    if first not in FIRST_WORDS:
        raise EffectError(f"an effect cannot begin with {first[:20] or 'nothing'}", context={"statement": sql[:80]})
    if "holdfast_" in sql.lower():
        raise EffectError("an effect cannot name a table of the ledger", context={"statement": sql[:80]})
    if any(token["end"] and sql[token.end() :].strip() for token in _TOKEN.finditer(sql)):
        raise EffectError("an effect is one statement", context={"statement": sql[:80]})
    if rows is not None and rows < 0:
        raise EffectError("an effect cannot have fewer than no rows")
    # A copy: the handler may go on to fill the same dictionary for its next effect.
    return Effect(sql.rstrip().rstrip(";"), {} if params is None else copy(params), rows)


@lru_cache(maxsize=512)
def as_pyformat(sql: str) -> str:
    """Return a statement with `:name` parameters as psycopg takes it; one that has `%(name)s` already is left alone."""
    if "%(" in sql or "%s" in sql:
        return sql

    def written(token: re.Match[str]) -> str:
        if token["name"]:
            return f"%({token['name'][1:]})s"
        return token[0].replace("%", "%%")

    return _TOKEN.sub(written, sql)


def groups(effects: Sequence[Effect]) -> Iterator[tuple[str, int | None, list[Effect]]]:
    """Yield runs of effects with the same statement and the same claim about rows."""
    for (sql, rows), run in groupby(effects, key=lambda effect: (effect.sql, effect.rows)):
        yield sql, rows, list(run)


def require_rows(effect: Effect, count: int) -> None:
    """Raise EffectError if a statement touched another number of rows than its effect said."""
    if effect.rows is not None and count != effect.rows:
        raise EffectError(
            f"an effect touched {count} rows instead of {effect.rows}", context={"statement": effect.sql[:80]}
        )


def in_turn(staged_by_job: Sequence[Sequence[Effect]]) -> list[Effect]:
    """Return the effects of many jobs, one job after another, so that no job sees another half done.

    Jobs are sorted by what they do: those with the same single statement stand together, and can be run as a set.
    """
    jobs = sorted(staged_by_job, key=lambda effects: [effect.sql for effect in effects])
    return [effect for effects in jobs for effect in effects]
