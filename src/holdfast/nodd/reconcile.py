"""Reconciliation: lists a public bucket, compares it with the ledger, and finds objects whose notice never came.

Invariants: listing needs no AWS account; nothing is admitted without `admit_missing`; admission is the same as for a
notice, so running it twice, or while the feed runs, is safe.
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
    """Counts of a listing: objects that the ledger knows, and those that are missing."""

    dataset: str
    date: str
    listed: int  # objects of the dataset without sidecars
    known: int
    missing: int
    admitted: int
    others: int  # keys of other datasets, or of none
    examples: tuple[str, ...]  # missing objects


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
    """List the objects of a dataset for one day, compare them with the ledger, and admit missing ones if wanted.

    Raises InputError if there is no prefix to list, and StoreUnavailableError if the bucket cannot be reached.
    """
    chosen = prefixes or [day.strftime(prefix) for prefix in dataset.spec.list_prefixes]
    if not chosen:
        raise InputError(
            f"dataset {dataset.name} has no list_prefixes for a day",
            next_step="Name the prefix to list: --prefix PREFIX.",
            context={"dataset": dataset.name},
        )
    counts: Counter[str] = Counter()
    examples: list[str] = []
    for page in _pages(_found(source, datasets, dataset, chosen, counts)):
        with store.reading() as reading:
            rows = run_statement(reading, "known_objects", rows=encoded([[notice.object_uri] for notice in page]))
        known = {uri for (uri,) in rows}
        missing = [notice for notice in page if notice.object_uri not in known]
        counts += Counter({"known": len(page) - len(missing), "missing": len(missing)})
        examples += [notice.object_uri for notice in missing][: EXAMPLES - len(examples)]
        if admit_missing and missing:
            admitted = admit_notices(store, missing, datasets, actor=actor)
            counts["admitted"] += sum(found.fate == "admitted" for found in admitted)
    return ReconcileResult(
        dataset=dataset.name,
        date=day.isoformat(),
        listed=counts["known"] + counts["missing"],
        known=counts["known"],
        missing=counts["missing"],
        admitted=counts["admitted"],
        others=counts["others"],
        examples=tuple(examples),
    )


def _found(
    source: S3Source, datasets: Datasets, dataset: Dataset, prefixes: Sequence[str], counts: Counter[str]
) -> Iterator[Notice]:
    for bucket in sorted((*dataset.spec.buckets, *dataset.spec.archives)):
        for prefix in prefixes:
            for key, head in _listed(source, bucket, prefix):
                notice = listed_notice(
                    datasets, bucket, key, size=head.size, etag=head.etag, written_at=head.last_modified
                )
                if notice is None or notice.dataset != dataset.name:
                    counts["others"] += 1
                elif notice.sidecar_of is None:
                    yield notice


def _listed(source: S3Source, bucket: str, prefix: str) -> Iterator[tuple[str, ObjectHead]]:
    try:
        yield from source.listed(bucket, prefix)
    except ObjectError as error:
        why = str(error).removeprefix(f"s3://{bucket}/").strip(": ")
        raise StoreUnavailableError(
            f"bucket {bucket} cannot be listed: {why}",
            next_step="Check the network and --endpoint, then run the command again; no object is admitted twice.",
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
