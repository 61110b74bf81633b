"""`holdfast nodd admit | rejected`: notices from files, and the messages that could not be understood."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.nodd.options import Own, Told, prepared, telling
from holdfast.cli.options import actor
from holdfast.cli.output import Column
from holdfast.core.digest import loads
from holdfast.core.errors import InputError
from holdfast.nodd import rejected as rejections
from holdfast.nodd.admission import Admitted, FeedMessage
from holdfast.nodd.admission import admit as admit_messages
from holdfast.nodd.dataset import with_own
from holdfast.store import Store
from holdfast.telemetry import Target, start


@command(Location.unopened)
def admit(
    location: Location,
    *,
    files: Annotated[
        list[Path] | None, typer.Argument(metavar="FILE…", help="Messages, one a file; - or none: stdin.")
    ] = None,
    telemetry: Told = Target.OFF,
    own: Own = None,
) -> Answer:
    """Admit notices from files or standard input; no queue is needed.

    A file holds the body of one message, or one message a line (JSON Lines).
    """
    messages = [FeedMessage(body) for body in _bodies(files or [])]
    if not messages:
        raise InputError("there is nothing to admit", next_step="Name files that hold messages.")
    sink, datasets = start(telemetry), with_own(own)
    with prepared(location) as store, telling(sink, store) as (reporter, bus):
        found: list[Admitted] = []
        for part in _tens(messages):
            admitted = admit_messages(store, part, datasets, actor=actor(), bus=bus)
            found += admitted
            if reporter is not None:
                reporter.admitted(admitted)
    value = [
        {
            "fate": str(one.fate),
            "dataset": one.dataset,
            "object_uri": one.object_uri,
            "wal_id": one.wal_id,
            "reason": one.reason,
        }
        for one in found
    ]
    return Answer(value, lambda: _print_fates(found))


def _bodies(files: list[Path]) -> list[str]:
    bodies: list[str] = []
    for path in files or [Path("-")]:
        try:
            text = sys.stdin.read() if str(path) == "-" else path.read_text(encoding="utf-8", errors="surrogateescape")
        except OSError as error:
            raise InputError(f"{path} cannot be read: {error.strerror}", context={"path": str(path)}) from None
        bodies += _split(text)
    return bodies


def _split(text: str) -> list[str]:
    """Return the messages of a file: one, if it is JSON as a whole; else each line is one, whatever is on it."""
    try:
        loads(text, size_max=len(text.encode(errors="surrogatepass")))
    except InputError:
        return [line for line in text.splitlines() if line.strip()]
    return [text]


def _tens(messages: list[FeedMessage]) -> list[list[FeedMessage]]:
    return [messages[start : start + 10] for start in range(0, len(messages), 10)]


def _print_fates(found: list[Admitted]) -> None:
    columns = [Column("FATE"), Column("DATASET"), Column("OBJECT", folds=True), Column("WHY", folds=True)]
    output.table(columns, [(str(one.fate), one.dataset or "", one.object_uri or "", one.reason or "") for one in found])


@command(prepared)
def rejected(
    store: Store[Any],
    *,
    replay: Annotated[
        bool, typer.Option("--replay", help="Read them again, and admit what is understood now.")
    ] = False,
    code: Annotated[
        str | None, typer.Option("--code", metavar="CODE", help="Only these; unsigned ones are replayed only so.")
    ] = None,
    limit: Annotated[int, typer.Option("--limit", min=1, max=10_000, help="At most so many.")] = 100,
    own: Own = None,
) -> Answer:
    """List the messages that could not be understood, or read them again."""
    if replay:
        found = rejections.replay(store, with_own(own), actor=actor(), code=code, limit=limit)
        return Answer([msgspec.to_builtins(one) for one in found], lambda: _print_fates(found))
    kept = rejections.listed(store, code=code, limit=limit)
    columns = [Column("SHA-256"), Column("CODE"), Column("TIMES"), Column("LAST"), Column("WHY", folds=True)]
    rows = [(one.sha256[:12], one.code, str(one.times), one.last_at, one.message) for one in kept]
    return Answer([msgspec.to_builtins(one) for one in kept], lambda: output.table(columns, rows))
