"""Prints the output of commands: JSON for programs; lines, tables and colours for people.

Invariants: JSON is one value on one line (indented on a terminal), in ASCII, so that it is the same bytes everywhere;
what people see is plain text unless standard output is a terminal and NO_COLOR is unset; an id, a state or a key is
never shortened; no character of the data that controls a terminal, or changes the direction of a text, reaches it; a
command that is printed can be pasted.
"""

import io
import json
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, TextIO, TypeVar

from holdfast.cli.text import Column, Text, field_lines, table_lines
from holdfast.core import printable, spans

if TYPE_CHECKING:
    from holdfast.cli.shell import LedgerFlags
    from holdfast.core.steps import Steps

T = TypeVar("T")

STYLES = {
    "pending": "cyan",
    "running": "yellow",
    "succeeded": "green",
    "failed": "red",
    "quarantined": "magenta",
    "LEASED": "cyan",
    "IN_PROGRESS": "yellow",
    "COMMITTED": "green",
    "DONE": "green",
    "ABORTED": "red",
}
SHOWN_AFTER_S = 2.0  # a progress bar appears only after this time
_WIDTH = 80  # of a terminal that does not say how wide it is
age, clean, instant, span = spans.age, printable.clean, spans.instant, spans.span


# ---------------------------------------------------------------------------------------------------------------------
# The ledger that printed commands name

_ledger_flags: "LedgerFlags | None" = None


def forget_ledger() -> None:
    """Start a command: no ledger is given yet."""
    global _ledger_flags  # noqa: PLW0603 - a process runs one command at a time
    _ledger_flags = None


def ledger_flags() -> "LedgerFlags":
    """Return the flags that locate the ledger, so that a flag can add itself."""
    global _ledger_flags  # noqa: PLW0603 - see above
    if _ledger_flags is None:
        from holdfast.cli.shell import LedgerFlags  # noqa: PLC0415 - help needs none of it

        _ledger_flags = LedgerFlags()
    return _ledger_flags


def pasteable(text: str) -> str:
    """Return the text with --db and --schema added to its commands, as the user typed them."""
    return text if _ledger_flags is None else _ledger_flags.text(text)


def steps_pasteable(value: object) -> object:
    """Return the answer with --db and --schema added to the commands of its steps."""
    return value if _ledger_flags is None else _ledger_flags.value(value)


def end() -> None:
    """End a command: print what the printed commands still need."""
    note = _needed()
    if note:
        line(f"note: {note}")


def _needed() -> str | None:
    return None if _ledger_flags is None else _ledger_flags.note()


# ---------------------------------------------------------------------------------------------------------------------
# For both


def answer(value: object, human: Callable[[], None], *, as_json: bool) -> None:
    if as_json:
        json_line(value)
    else:
        human()


def error(value: Mapping[str, object], *, as_json: bool) -> None:
    """Print an error: as JSON on standard output, or as a line and a next step on standard error."""
    if as_json:
        try:
            json_line(value)
            sys.stdout.flush()
            return
        except OSError:
            give_up()  # standard error may still be readable
    message = f" {value['error_message']} ({value['error_code']})"
    show(styled("error:", "bold red") + styled(message), sys.stderr)
    context = value["context"]
    if isinstance(context, Mapping) and "next_step" in context:
        step = pasteable(str(context["next_step"]))
        note = _needed()
        if note:
            show(styled("note:  ", "bold") + styled(note), sys.stderr)
        show(styled("next:  ", "bold") + styled(step), sys.stderr)


def make_printable() -> None:
    """Escape characters that the encoding of a stream cannot print; replace closed streams by silent ones."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up() -> None:
    """Discard further output, so that the exit does not fail on a closed pipe."""
    try:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    except (OSError, ValueError):
        sys.stdout = io.StringIO()


# ---------------------------------------------------------------------------------------------------------------------
# For programs


def json_line(value: object) -> None:
    value = steps_pasteable(value)
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None) + "\n")


# ---------------------------------------------------------------------------------------------------------------------
# For people


def line(text: str) -> None:
    sys.stdout.write(clean(pasteable(text)) + "\n")


def styled(value: object, style: str = "") -> Text:
    return Text((clean(value), style))


def state(name: str) -> Text:
    return styled(name, STYLES.get(name, ""))


def show(text: Text, stream: TextIO | None = None) -> None:
    """Print a line in its styles, on standard output or on another stream."""
    stream = stream or sys.stdout
    stream.write(text.drawn(colours=_colours(stream)) + "\n")


def table(
    columns: Sequence[Column], rows: Sequence[Sequence[object]], *, title: str | None = None, none: str | None = None
) -> None:
    """Print a table; columns without any value are omitted. Without rows, print the line `none` if it is given."""
    if none is not None and not rows:
        line(none)
        return
    for text in table_of(columns, rows, title=title):
        show(text)


def table_of(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, title: str | None = None) -> list[Text]:
    """Return the lines of a table, as wide as standard output."""

    def shown(column: Column, cell: object) -> Text:
        return cell if isinstance(cell, Text) else styled(pasteable(str(cell)) if column.steps else cell)

    cells = [[shown(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows]
    head = [styled(title, "bold")] if title else []
    return [*head, *table_lines(columns, cells, _width(), "─" if draws_lines() else "-")]


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    for text in fields_of(pairs):
        show(text)


def fields_of(pairs: Iterable[tuple[str, str]]) -> list[Text]:
    """Return the lines of names and values below each other, as wide as standard output."""
    return field_lines(((name, styled(value)) for name, value in pairs), _width())


@contextmanager
def screen() -> Iterator[Callable[[Iterable[Text]], None]]:
    """Yield a function that fills the terminal with lines in place of those before; the end restores the terminal."""

    def fill(lines: Iterable[Text]) -> None:
        height = os.get_terminal_size(sys.stdout.fileno()).lines
        drawn = [text.drawn(colours=_colours(sys.stdout)) + "\x1b[K" for text in lines][:height]
        sys.stdout.write("\x1b[H" + "\n".join(drawn) + "\x1b[J")
        sys.stdout.flush()

    # The alternate screen without a cursor; a line that is too long is cut by the terminal.
    sys.stdout.write("\x1b[?1049h\x1b[?25l\x1b[?7l")
    try:
        yield fill
    finally:
        sys.stdout.write("\x1b[?7h\x1b[?25h\x1b[?1049l")
        sys.stdout.flush()


def _colours(stream: TextIO) -> bool:
    return stream.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") not in ("dumb", "unknown")


def _width() -> int | None:
    """Return the width of the terminal; None without one, where lines are never wrapped."""
    if not sys.stdout.isatty():
        return None
    given = os.environ.get("COLUMNS", "")
    if given.isdecimal() and int(given):
        return int(given)
    try:
        return os.get_terminal_size(sys.stdout.fileno()).columns or _WIDTH
    except OSError:
        return _WIDTH


def draws_lines() -> bool:
    """Return whether standard output can print the characters of which lines are drawn."""
    return (getattr(sys.stdout, "encoding", None) or "utf-8").lower().startswith("utf")


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows progress bars on standard error; None with --json, or without a terminal.

    The function takes a label, the number done, and the total (0 if it is not known). A bar has the time that is left,
    and appears only after two seconds.
    """
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.console import Console  # noqa: PLC0415 - it takes as long to import as the store does
    from rich.progress import (  # noqa: PLC0415
        BarColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    terminal = Console(file=sys.stderr, highlight=False, markup=False, emoji=False)
    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bars = Progress(*columns, *left, console=terminal, transient=True)
    tasks: dict[str, TaskID] = {}
    began = time.monotonic()

    def show(label: str, done: int, total: int) -> None:
        if label not in tasks:
            tasks[label] = bars.add_task(label, total=total or None)
        bars.update(tasks[label], completed=done, total=total or None)
        if not bars.live.is_started and time.monotonic() - began > SHOWN_AFTER_S:
            bars.start()

    try:
        yield show
    finally:
        bars.stop()


def shown_steps(label: str, steps: "Steps[T]", *, as_json: bool) -> "T":
    """Run the steps of a long act under a progress bar, and return their result."""
    with progress(as_json=as_json) as show:
        done = 0
        while True:
            try:
                left = next(steps)
            except StopIteration as end:
                result: T = end.value
                return result
            done += 1
            if show is not None:
                show(label, done, 0 if left is None else done + left)


def size(n: int) -> str:
    """Return a number of bytes as a short text, such as 1.5 MB."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= step:
            return f"{n / step:.1f} {unit}"
    return f"{n} bytes"
