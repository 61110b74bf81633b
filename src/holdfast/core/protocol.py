"""Versions of operations, and which handler can run a job that was submitted at another version.

Invariants: a handler runs jobs of its own version, and of older versions with the same major number (before 1.0.0 also
the same minor number), and no others; of several handlers the one with exactly the version is chosen, else the newest.
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
    """A SemVer version as a tuple, so that comparing tuples gives the precedence of SemVer."""

    major: int
    minor: int
    patch: int
    release: bool  # a release ranks above its pre-releases
    before: tuple[tuple[bool, int, str], ...] = ()  # the parts of a pre-release; numbers rank below words


@lru_cache(maxsize=4096)
def ranked(version: str) -> Version | None:
    """Return a version in comparable form; None if it is not SemVer, or has build metadata, which has no precedence."""
    match = _SEMVER.fullmatch(version) if len(version) <= VERSION_CHARACTERS_MAX else None
    if match is None:
        return None
    major, minor, patch, before = match.groups()
    parts = tuple(
        (False, int(part), "") if part.isdecimal() else (True, 0, part)
        for part in (before.split(".") if before else ())
    )
    return Version(int(major), int(minor), int(patch), not parts, parts)


def speaks(handler: str, version: str) -> bool:
    """Return whether a handler of one version can run a job of another version."""
    ours, theirs = ranked(handler), ranked(version)
    if ours is None or theirs is None:
        return handler == version
    same = ours.major == theirs.major and (ours.major > 0 or ours.minor == theirs.minor)
    return same and ours >= theirs


def newest(versions: Iterable[str]) -> str | None:
    """Return the highest version, None if there is none. Versions that are not SemVer rank below all others."""
    return max(versions, key=lambda text: (ranked(text) is not None, ranked(text) or (), text), default=None)


def chosen(versions: Collection[str], version: str) -> str | None:
    """Return the version of the handler for a job: exactly the job's version, else the newest that can run it.

    The exact version was tested with such jobs; the newest one has all corrections.
    """
    if version in versions:
        return version
    return newest(handler for handler in versions if speaks(handler, version))
