"""Reconciling: what a public bucket holds against what the ledger knows, to find notices that never came.

Invariants: listing needs no account; nothing is admitted unless asked for; what is admitted goes through the same door
as a notice, so doing it twice, or beside the feed, is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Sequence
from datetime import date
from typing import Any

import msgspec

from holdfast.core.errors import InputError, StoreUnavailableError
from holdfast.nodd.admission import admit_notices
from holdfast.nodd.dataset import Dataset, Datasets
from holdfast.nodd.notices import Notice, listed_notice
from holdfast.nodd.objects import ObjectError, ObjectHead, S3Source
from holdfast.nodd.statements import run_statement
from holdfast.store import Store
from holdfast.store.statements import encoded

PAGE = 500
EXAMPLES = 5


class ReconcileResult(msgspec.Struct, frozen=True, kw_only=True):
    """What a listing showed."""

    dataset: str
    date: str
    listed: int  # objects of the dataset, sidecars left out
    known: int
    missing: int
    admitted: int
    others: int  # keys of no dataset
    examples: tuple[str, ...]  # of what is missing


def reconcile(
    store: Store[Any],
    source: S3Source,
    datasets: Datasets,
    dataset: Dataset,
    day: date,
    *,
    prefixes: Sequence[str] = (),
    admit_missing: bool = False,
    actor: str = "nodd",
) -> ReconcileResult:
    """List one day of a dataset and hold it against the ledger; admit what is missing if asked to."""
    chosen = prefixes or [day.strftime(prefix) for prefix in dataset.spec.list_prefixes]
    if not chosen:
        raise InputError(
            f"{dataset.name} has no prefix of a day",
            next_step="Give one with --prefix.",
            context={"dataset": dataset.name},
        )
    told: Counter[str] = Counter()
    examples: list[str] = []
    for page in _pages(_found(source, datasets, dataset, chosen, told)):
        with store.reading() as reading:
            rows = run_statement(reading, "known_objects", rows=encoded([[notice.object_uri] for notice in page]))
        known = {uri for (uri,) in rows}
        missing = [notice for notice in page if notice.object_uri not in known]
        told += Counter({"known": len(page) - len(missing), "missing": len(missing)})
        examples += [notice.object_uri for notice in missing][: EXAMPLES - len(examples)]
        if admit_missing and missing:
            admitted = admit_notices(store, missing, actor=actor)
            told["admitted"] += sum(found.fate == "admitted" for found in admitted)
    return ReconcileResult(
        dataset=dataset.name,
        date=day.isoformat(),
        listed=told["known"] + told["missing"],
        known=told["known"],
        missing=told["missing"],
        admitted=told["admitted"],
        others=told["others"],
        examples=tuple(examples),
    )


def _found(
    source: S3Source, datasets: Datasets, dataset: Dataset, prefixes: Sequence[str], told: Counter[str]
) -> Iterator[Notice]:
    for bucket in sorted(dataset.spec.buckets):
        for prefix in prefixes:
            for key, head in _listed(source, bucket, prefix):
                notice = listed_notice(
                    datasets, bucket, key, size=head.size, etag=head.etag, written_at=head.last_modified
                )
                if notice is None or notice.dataset != dataset.name:
                    told["others"] += 1
                elif notice.sidecar_of is None:
                    yield notice


def _listed(source: S3Source, bucket: str, prefix: str) -> Iterator[tuple[str, ObjectHead]]:
    try:
        yield from source.listed(bucket, prefix)
    except ObjectError as error:
        why = str(error).removeprefix(f"s3://{bucket}/").strip(": ")
        raise StoreUnavailableError(
            f"the bucket {bucket} is out of reach: {why}",
            next_step="Check the network and --endpoint, and try again: what was admitted is not admitted twice.",
            context={"bucket": bucket},
        ) from None


def _pages(notices: Iterator[Notice]) -> Iterator[list[Notice]]:
    page: list[Notice] = []
    for notice in notices:
        page.append(notice)
        if len(page) == PAGE:
            yield page
            page = []
    if page:
        yield page
