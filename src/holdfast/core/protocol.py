"""Which handler can do a job that was submitted at another version: the protocol of a major version only grows.

Invariants: a handler does what was asked of its own version, or of an older one with the same major number (before
1.0.0 the same minor number too), and nothing else; of several, the one of the very version is chosen, else the newest.
"""

from collections.abc import Collection, Iterable
from functools import lru_cache

from holdfast.core.errors import RegistryError
from holdfast.core.vocabulary import Version, precedence


@lru_cache(maxsize=4096)
def ranked(version: str) -> Version | None:
    """Return what a version says; None if it is no SemVer."""
    try:
        return precedence(version)
    except RegistryError:
        return None


def speaks(handler: str, asked: str) -> bool:
    """Tell whether a handler of one version does what was asked of another."""
    ours, theirs = ranked(handler), ranked(asked)
    if ours is None or theirs is None:
        return handler == asked
    same = ours.major == theirs.major and (ours.major > 0 or ours.minor == theirs.minor)
    return same and ours >= theirs


def newest(versions: Iterable[str]) -> str | None:
    """Return the version that ranks highest; None if there is none. What is no SemVer ranks below what is."""
    return max(versions, key=lambda text: (ranked(text) is not None, ranked(text) or (), text), default=None)


def chosen(versions: Collection[str], asked: str) -> str | None:
    """Return the version whose handler does what was asked: that very one, else the newest that speaks it.

    The very one: what was asked of it is what it was tested with. Else the newest: it has every correction there is.
    """
    if asked in versions:
        return asked
    return newest(version for version in versions if speaks(version, asked))
