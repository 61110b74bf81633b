"""Lays out a generated SQL condition for reading: one condition a line, each level of parentheses indented.

Invariants: only white space changes, and only beside a parenthesis or before a word that joins conditions; a condition
that fits in a line stays in one.
"""

import re
from functools import lru_cache

WIDTH = 110
_TOKEN = re.compile(r"'[^']*'|[()]|\b(?:AND|OR|WHERE|WHEN|THEN|ELSE|END|BETWEEN)\b")


@lru_cache(maxsize=1024)
def laid_out(condition: str, indent: int) -> str:
    """Return a condition that begins at column `indent`, without white space before its first line."""
    if indent + len(condition) <= WIDTH:
        return condition
    return _Layout(condition).lines(0, 0, len(condition), indent)


class _Layout:
    def __init__(self, text: str) -> None:
        self._text = text
        self._tokens = [(found.start(), found[0]) for found in _TOKEN.finditer(text) if found[0][0] != "'"]
        self._closing: dict[int, int] = {}
        opened = []
        for number, (_, word) in enumerate(self._tokens):
            if word == "(":
                opened.append(number)
            elif word == ")":
                self._closing[opened.pop()] = number

    def lines(self, number: int, start: int, end: int, indent: int) -> str:
        """Lay out a piece of the text whose first token is `number`: a line for each word that joins conditions."""
        parts: list[str] = []
        groups: list[int] = []
        between = False
        while number < len(self._tokens) and self._tokens[number][0] < end:
            at, word = self._tokens[number]
            if word == "(":
                groups.append(number)
                number = self._closing[number]
            elif word == "BETWEEN":
                between = True
            elif word == "AND" and between:
                between = False  # it belongs to BETWEEN
            elif at > start:
                parts.append(self._part(groups, start, at, indent))
                start, groups = at, []
            number += 1
        parts.append(self._part(groups, start, end, indent))
        return f"\n{' ' * indent}".join(parts)

    def _part(self, groups: list[int], start: int, end: int, indent: int) -> str:
        """Return a part as one line or, where it is too long, with its longest parentheses opened."""
        part = self._text[start:end].rstrip()
        if indent + len(part) <= WIDTH or not groups:
            return part
        group = max(groups, key=self._length)
        first, last = self._tokens[group][0] + 1, self._tokens[self._closing[group]][0]
        inner = self.lines(group + 1, first, last, indent + 2)
        pad = " " * indent
        rest = self._part([other for other in groups if other > group], last, end, indent)
        return f"{self._text[start:first]}\n{pad}  {inner}\n{pad}{rest}"

    def _length(self, group: int) -> int:
        return self._tokens[self._closing[group]][0] - self._tokens[group][0]
