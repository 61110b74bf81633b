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
from typing import TYPE_CHECKING, Literal, NamedTuple, TypeVar

from holdfast.core import printable, spans

if TYPE_CHECKING:  # Rich takes as long to import as the store does, and JSON needs none of it
    from rich.console import Console
    from rich.text import Text

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
_WIDE = 1 << 16  # not a terminal: never wrap a line
SHOWN_AFTER_S = 2.0  # a progress bar
_FOLDED = 16  # the smallest width of a folding column
age, clean, instant, span = spans.age, printable.clean, spans.instant, spans.span


class Column(NamedTuple):
    """A column of a table. In a narrow terminal only the columns that fold get narrower."""

    title: str
    right: bool = False
    folds: bool = False
    steps: bool = False  # it holds commands to paste


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
    """Print an answer: as JSON, or as `human` prints it."""
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
    terminal = console(stderr=True)
    terminal.print(styled("error:", "bold red"), f"{clean(value['error_message'])} ({value['error_code']})")
    context = value["context"]
    if isinstance(context, Mapping) and "next_step" in context:
        step = pasteable(str(context["next_step"]))
        note = _needed()
        if note:
            terminal.print(styled("note: ", "bold"), note)
        terminal.print(styled("next: ", "bold"), clean(step))


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
    """Print one JSON value."""
    value = steps_pasteable(value)
    sys.stdout.write(json.dumps(value, indent=2 if sys.stdout.isatty() else None) + "\n")


# ---------------------------------------------------------------------------------------------------------------------
# For people


def line(text: str) -> None:
    """Print a line of plain text."""
    sys.stdout.write(clean(pasteable(text)) + "\n")


def console(*, stderr: bool = False, width: int = 0) -> "Console":
    """Return the terminal, at least `width` columns wide; without a terminal, lines are never wrapped."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = sys.stderr if stderr else sys.stdout
    terminal = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    terminal.width = max(terminal.width, width) if stream.isatty() else _WIDE
    return terminal


def styled(value: object, style: str = "") -> "Text":
    """Return text for a terminal, in a style."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(clean(value), style)


def ansi(drawn: str) -> "Text":
    """Return what a terminal has drawn, to be drawn again."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text.from_ansi(drawn)


def state(name: str) -> "Text":
    """Return a state in its colour."""
    return styled(name, STYLES.get(name, ""))


def table(
    columns: Sequence[Column],
    rows: Iterable[Sequence[object]],
    *,
    title: str | None = None,
    terminal: "Console | None" = None,
) -> None:
    """Print a table; columns without any value are omitted."""
    from rich import box  # noqa: PLC0415 - see above
    from rich.table import Table  # noqa: PLC0415
    from rich.text import Text  # noqa: PLC0415

    def shown(column: Column, cell: object) -> Text:
        return cell if isinstance(cell, Text) else Text(clean(pasteable(str(cell)) if column.steps else cell))

    lines = [[shown(column, cell) for column, cell in zip(columns, row, strict=True)] for row in rows]
    grid = Table(box=box.SIMPLE_HEAD, show_edge=False, pad_edge=False, header_style="bold")
    kept = [i for i, column in enumerate(columns) if any(row[i].plain for row in lines) or column.right]
    least = 0
    for i in kept:
        column = columns[i]
        width = max([len(column.title), *(row[i].cell_len for row in lines)])
        width = min(width, _FOLDED) if column.folds else width
        justify: Literal["left", "right"] = "right" if column.right else "left"
        grid.add_column(column.title, justify=justify, no_wrap=not column.folds, overflow="fold", min_width=width)
        least += width + 3
    for row in lines:
        grid.add_row(*(row[i] for i in kept))
    # Rich drops columns that a narrow terminal has no room for; let the terminal wrap its lines instead.
    terminal = terminal or console(width=least)
    if title:
        terminal.print(styled(title, "bold"))
    terminal.print(grid, crop=False, soft_wrap=False)


def fields(pairs: Iterable[tuple[str, str]], terminal: "Console | None" = None) -> None:
    """Print names and values below each other."""
    from rich.table import Table  # noqa: PLC0415 - see above

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, styled(value))
    (terminal or console()).print(grid, crop=False, soft_wrap=False)


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield a function that shows progress bars on standard error; None with --json, or without a terminal.

    The function takes a label, the number done, and the total (0 if it is not known). A bar has the time that is left,
    and appears only after two seconds.
    """
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import (  # noqa: PLC0415 - see above
        BarColumn,
        Progress,
        TaskID,
        TextColumn,
        TimeElapsedColumn,
        TimeRemainingColumn,
    )

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    left = (TimeElapsedColumn(), TextColumn("left"), TimeRemainingColumn())
    bars = Progress(*columns, *left, console=console(stderr=True), transient=True)
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
