"""Text in colours, and tables of it, for a terminal.

Invariants: the plain text is the same with and without colours; in a narrow terminal only columns that fold get
narrower, so an id, a state or a key is never cut; no line ends in spaces.
"""

from bisect import bisect_right
from collections.abc import Iterable, Iterator, Sequence
from itertools import accumulate, zip_longest
from typing import NamedTuple

_CODES = {"bold": "1", "dim": "2", "red": "31", "green": "32", "yellow": "33", "magenta": "35", "cyan": "36"}
_FOLDED = 16  # the smallest width of a folding column
_GAP = "   "
_NAMES_GAP = "  "


class Text:
    """Text in pieces, each with a style such as `bold red`."""

    def __init__(self, *pieces: tuple[str, str]) -> None:
        self.pieces = pieces

    def __add__(self, other: "Text") -> "Text":
        return Text(*self.pieces, *other.pieces)

    @property
    def plain(self) -> str:
        return "".join(text for text, _ in self.pieces)

    def drawn(self, *, colours: bool) -> str:
        """Return what to write to a terminal that shows colours, or to one that does not."""
        if not colours:
            return self.plain
        return "".join(_coloured(text, style) if style else text for text, style in self.pieces)

    def cut(self, begin: int, end: int) -> "Text":
        """Return the characters from `begin` to before `end`."""
        pieces, at = [], 0
        for text, style in self.pieces:
            pieces.append((text[max(0, begin - at) : max(0, end - at)], style))
            at += len(text)
        return Text(*pieces)

    def lines(self, width: int | None = None) -> "list[Text]":
        """Return the lines of the text, folded between words where a line is wider than `width`."""
        found, begin = [], 0
        for line in self.plain.split("\n"):
            found += [self.cut(begin + start, begin + end) for start, end in _folds(line, width)]
            begin += len(line) + 1
        return found


class Column(NamedTuple):
    """A column of a table. In a narrow terminal only the columns that fold get narrower."""

    title: str
    right: bool = False
    folds: bool = False
    steps: bool = False  # it holds commands to paste


def table_lines(columns: Sequence[Column], rows: Sequence[Sequence[Text]], width: int | None, rule: str) -> list[Text]:
    """Return the lines of a table: titles, a rule of that character, rows. Columns without any value are omitted."""
    kept = [i for i, column in enumerate(columns) if column.right or any(row[i].plain for row in rows)]
    shown = [columns[i] for i in kept]
    rows = [[row[i] for i in kept] for row in rows]
    widths = [
        max(
            _cells(line.plain)
            for cell in (Text((column.title, "")), *(row[i] for row in rows))
            for line in cell.lines()
        )
        for i, column in enumerate(shown)
    ]
    if width is not None:
        _narrow(widths, [column.folds for column in shown], width)
    head = [Text((column.title, "bold")) for column in shown]
    whole = sum(widths) + len(_GAP) * (len(widths) - 1)
    lines = [*_row_lines(shown, widths, head), Text((rule * whole, ""))]
    for row in rows:
        lines += _row_lines(shown, widths, row)
    return lines


def field_lines(pairs: Iterable[tuple[str, Text]], width: int | None) -> list[Text]:
    """Return the lines of names and values below each other."""
    known = list(pairs)
    names = max((_cells(name) for name, _ in known), default=0)
    room = None if width is None else max(_FOLDED, width - names - len(_NAMES_GAP))
    lines = []
    for name, value in known:
        for i, line in enumerate(value.lines(room)):
            label = "" if i else name
            padding = " " * (names - _cells(label)) + _NAMES_GAP if line.plain else ""
            lines.append(Text((label + padding, "dim")) + line)
    return lines


def _row_lines(columns: Sequence[Column], widths: Sequence[int], row: Sequence[Text]) -> Iterator[Text]:
    cells = [
        cell.lines(width if column.folds else None) for cell, width, column in zip(row, widths, columns, strict=True)
    ]
    for parts in zip_longest(*cells, fillvalue=Text()):
        line, pending = Text(), ""  # spaces that are written only if something follows
        for part, width, column in zip(parts, widths, columns, strict=True):
            space = " " * (width - _cells(part.plain))
            if part.plain:
                line = line + Text((pending + (space if column.right else ""), "")) + part
                pending = ""
            pending += ("" if column.right and part.plain else space) + _GAP
        yield line


def _narrow(widths: list[int], folds: Sequence[bool], room: int) -> None:
    """Make the widest of the folding columns narrower, until a table fits or no column can be made narrower."""
    excess = sum(widths) + len(_GAP) * (len(widths) - 1) - room
    while excess > 0:
        wide = sorted((width, i) for i, width in enumerate(widths) if folds[i] and width > _FOLDED)
        if not wide:
            return
        width, i = wide[-1]
        next_width = wide[-2][0] if len(wide) > 1 else _FOLDED
        step = min(excess, max(1, width - next_width))
        widths[i] -= step
        excess -= step


def _folds(line: str, width: int | None) -> Iterator[tuple[int, int]]:
    """Yield where each part of a line begins and ends, none wider than `width`: between words if there is a space."""
    begin = 0
    if width is not None and _cells(line) > width:
        reach = [0, *accumulate(map(_cells, line))]
        while reach[-1] - reach[begin] > width:
            end = max(begin + 1, bisect_right(reach, reach[begin] + width) - 1)
            space = line.rfind(" ", begin + 1, end + 1)
            yield begin, end if space < 0 else space
            begin = end if space < 0 else space + 1
    yield begin, len(line)


def _cells(text: str) -> int:
    """Return how many cells of a terminal a text takes."""
    if text.isascii():
        return len(text)
    from unicodedata import category, east_asian_width  # noqa: PLC0415 - most texts are ASCII

    return sum(0 if category(c) in ("Mn", "Me") else 2 if east_asian_width(c) in "WF" else 1 for c in text)


def _coloured(text: str, style: str) -> str:
    return f"\x1b[{';'.join(_CODES[word] for word in style.split())}m{text}\x1b[0m"
