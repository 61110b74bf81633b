"""A connection of the store, with what the path of one job needs below psycopg: a prepared statement and NOTIFY.

psycopg spends more time on a statement that returns one number than the server spends on planning it, and it begins a
transaction before every statement. What is sent here commits itself, unless a transaction is open.

A NOTIFY inside the transaction that writes would make all commits of the cluster wait for each other, so it is sent
after the commit, and its answer is read when the connection is used next. A process that dies in between delays an
idle worker until its next poll, and loses nothing.

Invariants: an answer is read to its end before it counts, and before its connection is used again; nothing in a NOTIFY
waits for a sync.
"""

from __future__ import annotations

import select
from collections.abc import Iterable, Sequence
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import psycopg
from psycopg import errors, sql
from psycopg.pq import ExecStatus

from holdfast.store.statements import encoded
from holdfast.store.verbs.base import new_move_id

if TYPE_CHECKING:
    from holdfast.store.verbs.bulk import Columns

ANSWERED = (ExecStatus.TUPLES_OK, ExecStatus.COMMAND_OK)
NOTIFY = "holdfast_notify"
NOTIFY_TEXT = "SELECT set_config('synchronous_commit', 'off', true), pg_notify($1, q) FROM unnest($2::text[]) q"


class LedgerConnection(psycopg.Connection[tuple[Any, ...]]):
    """A connection to the database of a ledger."""

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        self.plans_due, self.plans_age_s = 0.0, 0.0  # when the plans are discarded next, and how long they are kept
        self.effects_ran = False  # whether effects ran whose changes of the session are not undone yet
        self.announcing = False  # whether the answer to a NOTIFY is still to be read
        self.listens = False
        self._notifications: list[psycopg.Notify] = []  # read by psycopg and not looked at yet
        self.add_notify_handler(self._notifications.append)
        self._named: set[str] = set()  # the statements that the server knows
        self._readable, self._ready = select.poll(), select.poll()
        self._readable.register(self.pgconn.socket, select.POLLIN)
        self._ready.register(self.pgconn.socket, select.POLLIN | select.POLLOUT)  # while there is more to send

    def ask(self, name: str, text: str, values: Sequence[str | None]) -> list[tuple[str | None, ...]]:
        """Run a statement under a name, prepared when it is first used; return the rows as text."""
        for known in (name in self._named, False):
            if not known:
                self._prepare(name, text)
            self._send(name, values)
            try:
                answer = self._answer()
            except errors.InvalidSqlStatementName:
                # psycopg discards all statements of a session after a rollback and after DDL.
                self.forget()
                if not known:
                    raise
            else:
                columns = range(answer.nfields)
                return [tuple(_text(answer.get_value(row, n)) for n in columns) for row in range(answer.ntuples)]
        return []

    def announce(self, channel: str, queues: Iterable[str]) -> None:
        """Notify a channel of queues, without waiting for the answer."""
        self.settle()
        values = [channel, array(map(quoted_element, sorted(queues)))]
        if self.prepare_threshold is None:  # behind a pooler, where nothing of a session is used
            self.pgconn.send_query_params(NOTIFY_TEXT.encode(), [value.encode() for value in values])
            self.pgconn.flush()
        else:
            if NOTIFY not in self._named:
                self._prepare(NOTIFY, NOTIFY_TEXT)
            self._send(NOTIFY, values)
        self.announcing = True

    def settle(self) -> None:
        """Read the answer to an announcement; one that failed is not repeated, because workers poll too.

        Raise OperationalError if the server has closed the connection meanwhile.
        """
        if self.announcing:
            self.announcing = False
            try:
                self._answer()
            except psycopg.Error:
                if self.closed:
                    raise
                self.forget()
        while self._readable.poll(0):  # a notice, or the end of the connection
            self.pgconn.consume_input()

    def heard(self, channel: str) -> bool:
        """Return whether a notification came since the last call. The first call begins to listen, and returns True."""
        if not self.listens:
            self.command(sql.SQL("LISTEN {}").format(sql.Identifier(channel)).as_string(self))
            self.listens = True
            return True
        found = bool(self._notifications)
        self._notifications.clear()
        while self.pgconn.notifies() is not None:
            found = True
        return found

    def unlisten(self) -> None:
        """Listen no longer."""
        self.listens = False
        self.settle()
        self.command("UNLISTEN *")

    def command(self, text: str) -> None:
        """Run a command outside of any transaction."""
        self.pgconn.send_query(text.encode())
        self._answer()

    def forget(self) -> None:
        """Prepare again what is used next: psycopg may have discarded the statements of this session."""
        self._named.clear()

    def _prepare(self, name: str, text: str) -> None:
        self.pgconn.send_prepare(name.encode(), text.encode())
        with suppress(errors.DuplicatePreparedStatement):  # it was not discarded
            self._answer()
        self._named.add(name)

    def _send(self, name: str, values: Sequence[str | None]) -> None:
        self.pgconn.send_query_prepared(name.encode(), [None if value is None else value.encode() for value in values])
        self.pgconn.flush()

    def _answer(self) -> Any:
        """Wait for the whole answer to what was sent; raise the first error in it."""
        server = self.pgconn
        while (unsent := server.flush()) or server.is_busy():
            (self._ready if unsent else self._readable).poll()
            server.consume_input()
        found = server.get_result()
        # The rows of a statement that commits itself come before its COMMIT, which can still fail.
        while found is not None and (after := server.get_result()) is not None:
            found = after if found.status in ANSWERED else found
        if found is None or found.status not in ANSWERED:
            error = psycopg.OperationalError("no answer") if found is None else errors.error_from_result(found)
            raise error if error.sqlstate else psycopg.OperationalError(str(error))
        return found


def quoted_element(element: str) -> str:
    """Return an element of an array as PostgreSQL writes it."""
    return '"' + element.replace("\\", "\\\\").replace('"', '\\"') + '"'


def array(elements: Iterable[object]) -> str:
    """Return an array as PostgreSQL writes it: a tenth of the cost of a Python list as a parameter."""
    return "{" + ",".join(map(str, elements)) + "}"


def arrays(rows: Sequence[tuple[int, int, str]]) -> dict[str, object]:
    """Return the parameters of `complete_jobs` for (job_id, token, result) of some attempts."""
    ids, tokens, results = zip(*rows, strict=True)
    return {"ids": array(ids), "tokens": array(tokens), "results": array(map(quoted_element, results))}


def texts(columns: Columns) -> dict[str, object]:
    """Return the parameters of `insert_jobs`: a payload is canonical JSON, which has no line break."""
    between = "\n"
    payloads = between.join(columns.payloads)
    while payloads.count(between) >= len(columns.payloads):  # but this one is not
        between = f"\n{new_move_id()}\n"
        payloads = between.join(columns.payloads)
    keys = [] if columns.keys.count(None) == len(columns.keys) else columns.keys
    return {
        "payloads": payloads, "between": between, "digests": " ".join(columns.digests), "keys": encoded(keys),
        "which": array(columns.which), "shapes": encoded(columns.shapes),
    }  # fmt: skip


def _text(value: bytes | None) -> str | None:
    return None if value is None else value.decode()
