"""`holdfast nodd admit | rejected | ignored`: admit notices from files; list what was not admitted, and replay it."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import argument, option
from holdfast.cli.nodd.options import Own, TelemetryTarget, prepared, reporting
from holdfast.cli.options import actor
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.core.json_input import loads
from holdfast.nodd import rejected as rejections
from holdfast.nodd.admission import Admitted, FeedMessage
from holdfast.nodd.admission import admit as admit_messages
from holdfast.nodd.dataset import with_own
from holdfast.nodd.queues import BATCH
from holdfast.store import Store
from holdfast.telemetry import Target, start


@command(Location.unopened)
def admit(
    location: Location,
    *,
    files: Annotated[
        list[Path] | None,
        argument(metavar="FILE…", help="Files with messages; - or no file reads standard input."),
    ] = None,
    telemetry: TelemetryTarget = Target.OFF,
    own: Own = None,
) -> Answer:
    """Admit notices from files or standard input, without a queue.

    A file contains the body of one message, or one message per line (JSON Lines).
    """
    messages = [FeedMessage(body) for body in _bodies(files or [])]
    if not messages:
        raise InputError("The input contains no messages.", next_step="Give files that contain messages.")
    sink, datasets = start(telemetry, "holdfast-nodd"), with_own(own)
    with prepared(location) as store, reporting(sink, store) as (reporter, bus):
        found: list[Admitted] = []
        for first in range(0, len(messages), BATCH):
            admitted = admit_messages(store, messages[first : first + BATCH], datasets, actor=actor(), bus=bus)
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
            raise InputError(f"Cannot read {path}: {error.strerror}.", context={"path": str(path)}) from None
        bodies += _split(text)
    return bodies


def _split(text: str) -> list[str]:
    """Return the messages of a file: the whole text if it is one JSON value, otherwise each line."""
    try:
        loads(text, size_max=len(text.encode(errors="surrogatepass")))
    except InputError:
        return [line for line in text.splitlines() if line.strip()]
    return [text]


def _print_fates(found: list[Admitted]) -> None:
    columns = [Column("FATE"), Column("DATASET"), Column("OBJECT", folds=True), Column("REASON", folds=True)]
    output.table(columns, [(str(one.fate), one.dataset or "", one.object_uri or "", one.reason or "") for one in found])


@command(prepared)
def rejected(
    store: Store[Any],
    *,
    replay: Annotated[
        bool, option("--replay", help="Parse the messages again, and admit those that are valid now.")
    ] = False,
    code: Annotated[
        str | None,
        option("--code", metavar="CODE", help="Only messages with this code; required to replay unsigned messages."),
    ] = None,
    limit: Annotated[int, option("--limit", min=1, max=10_000, help="Maximum number of messages.")] = 100,
    own: Own = None,
) -> Answer:
    """List rejected messages, or replay them."""
    if replay:
        found = rejections.replay(store, with_own(own), actor=actor(), code=code, limit=limit)
        return Answer([msgspec.to_builtins(one) for one in found], lambda: _print_fates(found))
    kept = rejections.listed(store, code=code, limit=limit)
    columns = [Column("SHA-256"), Column("CODE"), Column("TIMES"), Column("LAST"), Column("REASON", folds=True)]
    rows = [(one.sha256[:12], one.code, str(one.times), one.last_at, one.message) for one in kept]
    return Answer([msgspec.to_builtins(one) for one in kept], lambda: output.table(columns, rows))


@command(prepared)
def ignored(
    store: Store[Any],
    *,
    reason: Annotated[
        str | None,
        option("--reason", metavar="CODE", help="Only records with this reason, such as unknown_bucket."),
    ] = None,
    limit: Annotated[int, option("--limit", min=1, max=10_000, help="Maximum number of lines.")] = 100,
) -> Answer:
    """List ignored records by reason, newest first: one line for all that differ only in their digits."""
    kept = rejections.ignored(store, reason=reason, limit=limit)
    columns = [Column("REASON"), Column("TIMES", right=True), Column("LAST"), Column("EXAMPLE", folds=True)]
    rows = [(one.reason, str(one.times), one.last_at, one.example) for one in kept]
    value = [msgspec.to_builtins(one) for one in kept]
    return Answer(value, lambda: output.table(columns, rows, none="No ignored records."))
