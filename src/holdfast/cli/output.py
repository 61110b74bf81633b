"""How the command speaks: JSON for programs; lines, tables and colours for people.

Invariants: JSON is one value on one line (indented on a terminal), in ASCII, so that it is the same bytes everywhere;
what people see is plain text unless standard output is a terminal and NO_COLOR is unset; an id, a state or a key is
never shortened; no control character of the data reaches a terminal; a command that is printed can be pasted.
"""

import io
import json
import os
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime
from typing import TYPE_CHECKING, Literal, NamedTuple

if TYPE_CHECKING:  # Rich takes as long to import as the store does, and JSON needs none of it
    from rich.console import Console
    from rich.text import Text

    from holdfast.cli.shell import Place

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
_CONTROLS = {code: f"\\x{code:02x}" for code in (*range(32), *range(127, 160)) if chr(code) != "\n"}
_WIDE = 1 << 16  # no terminal, no edge to wrap at
_FOLDED = 16  # how narrow a folding column may get


class Column(NamedTuple):
    """A column of a table. One that folds gives way when the terminal is narrow; the others never do."""

    title: str
    right: bool = False
    folds: bool = False
    steps: bool = False  # does it say what to type?


# ---------------------------------------------------------------------------------------------------------------------
# Where commands that are printed are to work

_place: "Place | None" = None


def forget_place() -> None:
    """Begin a command: no ledger was named yet."""
    global _place  # noqa: PLW0603 - a process runs one command at a time
    _place = None


def place() -> "Place":
    """Return how the ledger was named, for a flag to add itself."""
    global _place  # noqa: PLW0603 - see above
    if _place is None:
        from holdfast.cli.shell import Place  # noqa: PLC0415 - help needs none of it

        _place = Place()
    return _place


def pasteable(text: str) -> str:
    """Return a text in which every command names the ledger as the user did."""
    return text if _place is None else _place.text(text)


def steps_pasteable(value: object) -> object:
    """Return an answer in which every step does so."""
    return value if _place is None else _place.value(value)


def end() -> None:
    """End a command: say what the commands that it printed still need."""
    note = _needed()
    if note:
        line(f"note: {note}")


def _needed() -> str | None:
    return None if _place is None else _place.note()


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
            give_up()  # and say it where it can still be read
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
    """Let no character of the data fail to print, whatever the encoding; and let closed streams be silent ones."""
    for name in ("stdout", "stderr"):
        stream = getattr(sys, name)
        if stream is None:
            setattr(sys, name, io.StringIO())
        elif isinstance(stream, io.TextIOWrapper):
            stream.reconfigure(errors="backslashreplace")


def give_up() -> None:
    """Drop what cannot be written any more, so that leaving does not fail over it."""
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
    """Print plain text that Holdfast wrote itself."""
    sys.stdout.write(pasteable(text) + "\n")


def console(*, stderr: bool = False, width: int = 0) -> "Console":
    """Return the terminal, at least so wide; or something as wide as it takes where there is none."""
    from rich.console import Console  # noqa: PLC0415 - see above

    stream = sys.stderr if stderr else sys.stdout
    terminal = Console(file=stream, highlight=False, markup=False, emoji=False, soft_wrap=True)
    terminal.width = max(terminal.width, width) if stream.isatty() else _WIDE
    return terminal


def clean(value: object) -> str:
    """Return text without control characters: a message must not move the cursor or ring the bell."""
    return str(value).translate(_CONTROLS)


def styled(value: object, style: str = "") -> "Text":
    """Return text for a terminal, in a style."""
    from rich.text import Text  # noqa: PLC0415 - see above

    return Text(clean(value), style)


def state(name: str) -> "Text":
    """Return a state in its colour."""
    return styled(name, STYLES.get(name, ""))


def table(columns: Sequence[Column], rows: Iterable[Sequence[object]], *, title: str | None = None) -> None:
    """Print a table; a column without any value is left out."""
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
    terminal = console(width=least)
    if title:
        terminal.print(styled(title, "bold"))
    terminal.print(grid, crop=False, soft_wrap=False)


def fields(pairs: Iterable[tuple[str, str]]) -> None:
    """Print names and values below each other."""
    from rich.table import Table  # noqa: PLC0415 - see above

    grid = Table.grid(padding=(0, 2))
    grid.add_column(style="dim", no_wrap=True)
    grid.add_column(overflow="fold")
    for name, value in pairs:
        grid.add_row(name, styled(value))
    console().print(grid, crop=False, soft_wrap=False)


@contextmanager
def progress(*, as_json: bool) -> Iterator[Callable[[str, int, int], None] | None]:
    """Yield what shows how far something is, as bars on a terminal's standard error; None where there is nobody to see.

    It takes what is done, how far that is, and of how much; 0 if nobody knows.
    """
    if as_json or not sys.stderr.isatty():
        yield None
        return
    from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn  # noqa: PLC0415 - see above

    columns = (TextColumn("{task.description}"), BarColumn(), TextColumn("{task.percentage:>3.0f}%"))
    with Progress(*columns, TimeElapsedColumn(), console=console(stderr=True), transient=True) as bars:
        tasks: dict[str, TaskID] = {}

        def show(what: str, done: int, total: int) -> None:
            if what not in tasks:
                tasks[what] = bars.add_task(what, total=total or None)
            bars.update(tasks[what], completed=done)

        yield show


def size(n: int) -> str:
    """Return a number of bytes, short enough to read at a glance."""
    for unit, step in (("GB", 10**9), ("MB", 10**6), ("kB", 10**3)):
        if n >= step:
            return f"{n / step:.1f} {unit}"
    return f"{n} bytes"


def span(seconds: float) -> str:
    """Return a duration, short enough to read at a glance."""
    for size, unit in ((86400, "d"), (3600, "h"), (60, "min")):
        if seconds >= size:
            return f"{int(seconds // size)} {unit}"
    return f"{int(seconds)} s" if seconds >= 1 else f"{int(seconds * 1000)} ms"


def age(moment: datetime, now: datetime) -> str:
    """Return how long ago a moment was, or how far ahead it is."""
    seconds = (now - moment).total_seconds()
    if abs(seconds) < 1:
        return "now"
    return f"{span(seconds)} ago" if seconds > 0 else f"in {span(-seconds)}"


def instant(moment: datetime, *, parts: str = "seconds") -> str:
    """Return a moment as people read it, in UTC."""
    return moment.replace(tzinfo=None).isoformat(" ", timespec=parts)
