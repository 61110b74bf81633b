"""The canonical texts of many objects at once: what `digest.read_back` returns for one, without a call for each.

Invariants: a text is the one that `read_back` returns for its object; if that takes a closer look at one of them, there
is no text of any.
"""

import unicodedata
from collections.abc import Callable, Sequence

from holdfast.core.digest import DECODER, ENCODER, LISTS, SHORT, Json, refuse_foreign
from holdfast.core.errors import InputError

AT_ONCE = 64  # the copies of so many objects are alive together: fewer than start the garbage collector
LONG = 1 << 22  # bytes of so many texts; beyond them each text is made alone


def canonical_lines(
    values: Sequence[Json], judge: Callable[[list[Json]], object], *, size_max: int
) -> list[str] | None:
    """Return the canonical text of each object, none of them longer than `size_max` bytes.

    Return None if one of them takes a closer look; `judge`, which gets the objects as they are read back, says so by a
    TypeError or ValueError.
    """
    texts: list[str] = []
    for begin in range(0, len(values), AT_ONCE):
        some = values[begin : begin + AT_ONCE]
        try:
            encoded = ENCODER.encode_lines(some)  # no text has a line break
            if len(encoded) > LONG:
                return None
            written = encoded.decode()
            lines = written.split("\n")[:-1]
            copies = list(map(DECODER.decode, lines))
            if copies != some or _any_odd(lines, copies):
                return None
            judge(copies)
        except (TypeError, ValueError, OverflowError, RecursionError, InputError):
            return None
        plain = written.isascii()
        if max(map(len, lines if plain else map(str.encode, lines))) > size_max:
            return None
        if not (plain or unicodedata.is_normalized("NFC", written)):
            return None
        texts += lines
    return texts


def _any_odd(texts: list[str], copies: list[Json]) -> bool:
    if max(map(len, texts)) <= SHORT:
        return max([text.count("[") for text in texts]) > LISTS
    return any(
        refuse_foreign(copy) if len(text) > SHORT else text.count("[") > LISTS
        for text, copy in zip(texts, copies, strict=True)
    )
