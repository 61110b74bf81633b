"""The form in which the jobs of a run are stored: for each version, its ranges of ids.

Invariants: unpacking what was packed gives the same ids and versions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import msgspec


def packed(job_ids: Sequence[int], versions: Sequence[int]) -> dict[str, str]:
    """Return candidates in the form in which they are stored: for each version, its ranges of ids."""
    by_version: dict[int, list[int]] = {}
    for job_id, version in zip(job_ids, versions, strict=True):
        by_version.setdefault(version, []).append(job_id)
    return {str(version): ",".join(_ranges(ids)) for version, ids in sorted(by_version.items())}


def unpacked(text: str) -> tuple[list[int], list[int]]:
    """Return the stored ids, ascending, and the version of each."""
    packed_ranges = msgspec.json.decode(text, type=dict[str, str])
    pairs = sorted((job_id, int(version)) for version, ranges in packed_ranges.items() for job_id in _ids(ranges))
    return [job_id for job_id, _ in pairs], [version for _, version in pairs]


def _ranges(ids: Iterable[int]) -> Iterator[str]:
    first = last = None
    for job_id in ids:
        if last is not None and job_id == last + 1:
            last = job_id
            continue
        if first is not None:
            yield _range(first, last)
        first = last = job_id
    if first is not None:
        yield _range(first, last)


def _range(first: int, last: int | None) -> str:
    return str(first) if first == last else f"{first}-{last}"


def _ids(ranges: str) -> Iterator[int]:
    for part in ranges.split(",") if ranges else ():
        first, _, last = part.partition("-")
        yield from range(int(first), int(last or first) + 1)
