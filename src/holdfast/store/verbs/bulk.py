"""Submits several jobs by one statement: what they share is judged once and passed once.

Invariants: of one client and key there is one job; all writers insert in the same order, so that two batches with
common keys cannot deadlock; a submit records all of its jobs, or raises and writes nothing.
"""

from __future__ import annotations

from collections.abc import Sequence
from hashlib import sha256
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import msgspec

from holdfast.core.digest import is_storable
from holdfast.store.requests import WORD_BYTES_MAX, Admission, Shared, Submission
from holdfast.store.verbs.base import Shapes
from holdfast.store.verbs.repeats import admissions, key_conflict

if TYPE_CHECKING:
    from holdfast.store.transaction import Transaction
    from holdfast.store.verbs.jobs import JobWrites

_QUEUE = Shared.__struct_fields__.index("queue")


class Columns(NamedTuple):
    """The rows of `insert_jobs`, column by column."""

    payloads: Sequence[str]
    digests: Sequence[str]
    keys: Sequence[str | None]
    which: Sequence[int]  # of the shapes, for each row; empty: the first
    shapes: Sequence[tuple[object, ...]]

    def at(self, places: Sequence[int]) -> Columns:
        """Return these rows, in this order."""
        if places == [*range(len(self.keys))]:
            return self
        payloads, digests, keys, which, shapes = self
        return Columns(
            [payloads[place] for place in places],
            [digests[place] for place in places],
            [keys[place] for place in places],
            [which[place] for place in places] if which else (),
            shapes,
        )


class Bulk(Sequence[Submission]):
    """Submissions that differ only in payload and key, as columns: one is made when it is looked at."""

    def __init__(self, first: Submission, payloads: list[str], keys: list[str | None]) -> None:
        self.first = first
        self.patterns = (first,)
        self._payloads = payloads
        self._keys = keys

    @overload
    def __getitem__(self, place: int) -> Submission: ...

    @overload
    def __getitem__(self, place: slice) -> list[Submission]: ...

    def __getitem__(self, place: int | slice) -> Submission | list[Submission]:
        if isinstance(place, slice):
            return [self[each] for each in range(len(self))[place]]
        return msgspec.structs.replace(self.first, payload=self._payloads[place], key=self._keys[place])

    def __len__(self) -> int:
        return len(self._payloads)

    @property
    def columns(self) -> Columns:
        """The columns; only the first shape is in use."""
        begin = f"{self.first.operation}\n"  # as `digest_of` does it for one
        digests = [sha256((begin + payload).encode()).hexdigest() for payload in self._payloads]
        return Columns(self._payloads, digests, self._keys, (), [self.first.shape])


def bulk_of(first: Submission, payloads: list[str], keys: list[str | None]) -> Bulk | None:
    """Return submissions that share all but payload and key; None if one of them has to be looked at alone."""
    if first.flow is not None:
        return None
    named = [key for key in keys if key is not None]
    if named:
        words = first.operation, first.client, first.operation_version, first.queue
        if set(map(type, named)) != {str} or not (all(named) and is_storable("".join(named))):
            return None
        if (sum(map(len, words)) + max(map(len, named))) * 4 > WORD_BYTES_MAX:
            return None
    return Bulk(first, payloads, keys)


def columns_of(submitted: Sequence[tuple[Submission, str]]) -> Columns:
    """Return submissions, each with its digest, as columns."""
    shapes: Shapes = {}
    which = [shapes.setdefault(submission.shape, len(shapes)) for submission, _ in submitted]
    payloads = [submission.payload for submission, _ in submitted]
    return Columns(payloads, [digest for _, digest in submitted], [one.key for one, _ in submitted], which, [*shapes])


def submit_bulk(
    jobs: JobWrites, transaction: Transaction, submissions: Sequence[Submission], born: dict[str, object]
) -> list[Admission]:
    """Record jobs as `JobWrites.submit` does; `born` are the values that all rows of the insert share."""
    if isinstance(submissions, Bulk):
        columns = submissions.columns
        names: Sequence[Any] = columns.keys
    else:
        columns = columns_of([(submission, submission.digest) for submission in submissions])
        names = [None if one.key is None else (one.client, one.key) for one in submissions]
    digests = columns.digests
    first: dict[Any, int] = {}
    for place, name in enumerate(names if names.count(None) < len(names) else ()):
        if name is not None and digests[place] != digests[first.setdefault(name, place)]:
            raise key_conflict(submissions[place])
    keyless = [place for place, name in enumerate(names) if name is None] if first else range(len(names))
    to_insert = [*(first[name] for name in sorted(first)), *keyless]
    ids = transaction.store.insert_jobs(transaction, columns.at(to_insert), **born)
    if ids.count(None) < len(ids):
        transaction.queues_to_announce.update(str(shape[_QUEUE]) for shape in columns.shapes)
    made = [Admission(job_id, is_new=True) for job_id in ids if job_id is not None]
    if len(made) == len(names) and not first:
        return made
    inserted = [place for place, job_id in zip(to_insert, ids, strict=True) if job_id is not None]
    admitted = dict(zip(inserted, made, strict=True))
    if len(made) < len(ids):
        rest = [place for place in to_insert if place not in admitted]
        left_out = admissions(jobs, transaction, [(submissions[place], digests[place]) for place in rest], born)
        admitted |= zip(rest, left_out, strict=True)
    return [
        admitted.get(place) or msgspec.structs.replace(admitted[first[name]], is_new=False)
        for place, name in enumerate(names)
    ]
