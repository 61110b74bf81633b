"""Escapes the characters that a terminal or a page must not get from data.

Invariants: a newline stays; every other character that cannot be printed is shown as its escape, also those that change
the direction of a text.
"""

_KNOWN_MAX = 4096  # characters that are remembered


class _Escapes(dict[int, str | int]):
    """Maps a character that cannot be printed to its escape, and any other to itself."""

    def __missing__(self, code: int) -> str | int:
        shown: str | int = code
        if not chr(code).isprintable():  # also those that turn the direction of a text: U+202E
            width = 2 if code < 0x100 else 4 if code < 0x10000 else 8
            shown = f"\\{'x' if width == 2 else 'u' if width == 4 else 'U'}{code:0{width}x}"
        if len(self) < _KNOWN_MAX:
            self[code] = shown
        return shown


_ESCAPES = _Escapes({ord("\n"): ord("\n")})


def clean(value: object) -> str:
    """Return the text with unprintable characters escaped, so that data cannot control a terminal or a page."""
    text = str(value)
    return text if text.isprintable() else text.translate(_ESCAPES)
