"""Errors of PostgreSQL and of psycopg as errors of Holdfast, by the table of `sqlstates.py`.

Invariants: every error of the driver has an error of Holdfast; whether a connection is lost is known from the
connection, not from a code, which a function of the user can raise too; no message contains the password.
"""

from __future__ import annotations

import re
from typing import Any

import psycopg

from holdfast.core.errors import (
    EffectError,
    HoldfastError,
    RefusedByDatabaseError,
    StoreDamagedError,
    StoreReadOnlyError,
    StoreUnavailableError,
)
from holdfast.store.enforcement import Refusal
from holdfast.store.meanings import Fault, Meaning, meaning_of
from holdfast.store.postgres.sqlstates import OTHER, TABLE

_REFUSALS = {str(refusal) for refusal in Refusal}
_SCHEMA_MISSING = "3F000"
_MAY_NOT = "42501"
_WAITED = frozenset({"40P01", "55P03", "57014"})  # deadlock, lock timeout, statement timeout
# A prepared statement is missing, or exists already: of the driver once, of a function of the user again and again.
_OF_SESSION = ("26", "42P05")
_LAST_WORDS = ("FATAL", "PANIC")  # no function of a user can raise them
LOST = "connection_lost"  # in the context of an error: its connection, or what the driver knew of the session
IN_EFFECT = "in_effect"  # and: while effects ran


def translated(error: psycopg.Error, *, url: str, schema: str) -> HoldfastError:
    """Return the error of Holdfast for an error of the driver, in a statement that is not an effect."""
    state, text = error.sqlstate or "", without_password(first_line(error), url)
    if not state:
        # Of the driver itself: a lost connection, or a value that it cannot send.
        if isinstance(error, psycopg.OperationalError | psycopg.InterfaceError):
            return StoreUnavailableError(text, context={LOST: True})
        return RefusedByDatabaseError(text)
    if state == _SCHEMA_MISSING:
        return StoreUnavailableError(
            f"there is no schema {schema!r}",
            next_step=f'Create it with CREATE SCHEMA "{schema}", or give another schema.',
            context={"schema": schema, "sqlstate": state},
        )
    context: dict[str, object] = {"sqlstate": state, LOST: True} if _ends_connection(state) else {"sqlstate": state}
    if state == _MAY_NOT:
        return StoreReadOnlyError(
            text, next_step="Use a role that may do this, or give it the right: docs/roles.md.", context=context
        )
    kind = meaning(state).error
    if kind is StoreDamagedError and state.startswith("42") and "holdfast_" not in text:
        kind = RefusedByDatabaseError  # a table or column of the caller's statement
    # A CHECK of the jobs: the parts of the row, job and attempt, disagree.
    checked = re.fullmatch(r"holdfast_jobs_\w+_check", error.diag.constraint_name or "")
    if state in _REFUSALS or checked:
        context = {"refusal": Refusal.ILLEGAL_EDGE.value if checked else state}
    return kind(text, context=context)


def of_effect(error: psycopg.Error, connection: Any, statement: str, *, url: str, schema: str) -> HoldfastError:
    """Return the error of Holdfast for an error of the driver in an effect: the effect's fault, or the database's."""
    state = error.sqlstate or ""
    # Of the driver itself, or what only the server says; an end of the connection that no answer says is not seen yet.
    lost = isinstance(error, psycopg.OperationalError | psycopg.InterfaceError) and not state
    lost = lost or connection.closed or error.diag.severity_nonlocalized in _LAST_WORDS
    if lost or (meaning(state).in_effect is Fault.DATABASE and not _ends_connection(state)):
        unsent = translated(error, url=url, schema=schema)
        if state.startswith(_OF_SESSION):
            unsent.context[LOST] = True
        unsent.context[IN_EFFECT] = True
        return unsent
    context: dict[str, object] = {"sqlstate": state, "statement": statement[:80]}
    if state in _WAITED:
        context["waited"] = True
    return EffectError(f"the database refused an effect: {without_password(first_line(error), url)}", context=context)


def meaning(state: str) -> Meaning:
    return meaning_of(state, TABLE, OTHER)


def _ends_connection(state: str) -> bool:
    """Return whether a code ends the connection: on one that is still open, a function of the user raised it."""
    return state.startswith(("08", "57P")) or state in ("25P03", "25P04")


def first_line(error: psycopg.Error) -> str:
    """Return the message of an error without its context and hints."""
    return str(error).strip().split("\n")[0]


def without_password(text: str, url: str) -> str:
    try:
        password = psycopg.conninfo.conninfo_to_dict(url).get("password")
    except psycopg.ProgrammingError:
        # The text of a URL that cannot be parsed may quote any part of it.
        return "cannot parse it"
    return text.replace(str(password), "***") if password else text
