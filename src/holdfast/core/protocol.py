"""Which handler can do a job that was submitted at another version: the protocol of a major version only grows.

Invariants: a handler does what was asked of its own version, or of an older one with the same major number (before
1.0.0 the same minor number too), and nothing else; of several, the one of the very version is chosen, else the newest.
"""

import re
from collections.abc import Collection, Iterable
from functools import lru_cache
from typing import NamedTuple

VERSION_CHARACTERS_MAX = 64
_NUMBER = r"(?:0|[1-9]\d*)"
_SEMVER = re.compile(
    rf"({_NUMBER})\.({_NUMBER})\.({_NUMBER})(?:-((?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*)"
    rf"(?:\.(?:{_NUMBER}|\d*[A-Za-z-][0-9A-Za-z-]*))*))?",
    re.ASCII,
)


class Version(NamedTuple):
    """A SemVer version as a tuple: compared as tuples are, it ranks as SemVer says."""

    major: int
    minor: int
    patch: int
    release: bool  # a release ranks above every version before it
    before: tuple[tuple[bool, int, str], ...] = ()  # the parts of a pre-release: numbers rank below words


@lru_cache(maxsize=4096)
def ranked(version: str) -> Version | None:
    """Return what a version ranks by; None if it is no SemVer, or has build metadata, which would not rank."""
    match = _SEMVER.fullmatch(version) if len(version) <= VERSION_CHARACTERS_MAX else None
    if match is None:
        return None
    major, minor, patch, before = match.groups()
    parts = tuple(
        (False, int(part), "") if part.isdecimal() else (True, 0, part)
        for part in (before.split(".") if before else ())
    )
    return Version(int(major), int(minor), int(patch), not parts, parts)


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
