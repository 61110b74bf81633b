"""Reconciliation: lists a public bucket, compares it with the ledger, and finds writes whose notice never came.

Invariants: listing needs no AWS account; nothing is admitted without `admit_missing`; admission is the same as for a
notice, so running it twice, or while the feed runs, is safe.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
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
    changed: int  # of the missing ones: the object is known, but it was written again
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
    products: Sequence[str] = (),
    admit_missing: bool = False,
    actor: str = "nodd",
) -> ReconcileResult:
    """List the objects of a dataset for one day, compare them with the ledger, and admit missing ones if wanted.

    Prefixes can have codes of strftime for the day. An object whose ETag is another than that of its last known write,
    or without an ETag its size, is missing too: the notice of that write was lost. Raises InputError if there is no
    prefix to list, and StoreUnavailableError if the bucket cannot be reached.
    """
    chosen = [day.strftime(prefix) for prefix in prefixes or dataset.spec.prefixes_of(products)]
    if not chosen:
        raise InputError(
            f"dataset {dataset.name} has no list_prefixes for a day",
            next_step="Name the prefix to list: --prefix PREFIX.",
            context={"dataset": dataset.name},
        )
    counts: Counter[str] = Counter()
    examples: list[str] = []
    for page in _pages(_found(source, datasets, dataset, chosen, counts)):
        if products and not dataset.spec.lists_products:
            page = [notice for notice in page if notice.fields.get("product") in products]  # noqa: PLW2901 - the same page
        objects = [notice for notice in page if notice.sidecar_of is None]
        with store.reading() as reading:
            rows = run_statement(reading, "known_objects", rows=encoded([[notice.object_uri] for notice in objects]))
        known = {uri: (etag, size) for uri, etag, size in rows}
        missing = [notice for notice in objects if not _is_known(notice, known)]
        changed = sum(notice.object_uri in known for notice in missing)
        counts += Counter({"known": len(objects) - len(missing), "missing": len(missing), "changed": changed})
        examples += [notice.object_uri for notice in missing][: EXAMPLES - len(examples)]
        if admit_missing and missing:
            named = {notice.key for notice in missing}
            with_sidecars = [notice for notice in page if (notice.sidecar_of or notice.key) in named]
            admitted = admit_notices(store, with_sidecars, datasets, actor=actor)
            counts["admitted"] += sum(found.fate == "admitted" for found in admitted)
    return ReconcileResult(
        dataset=dataset.name,
        date=day.isoformat(),
        listed=counts["known"] + counts["missing"],
        known=counts["known"],
        missing=counts["missing"],
        changed=counts["changed"],
        admitted=counts["admitted"],
        others=counts["others"],
        examples=tuple(examples),
    )


def _is_known(notice: Notice, known: Mapping[str, tuple[str | None, int | None]]) -> bool:
    """Return whether the last known write of an object is the one that a listing shows."""
    if notice.object_uri not in known:
        return False
    etag, size = known[notice.object_uri]
    if etag is not None and notice.content_etag is not None:
        return etag == notice.content_etag
    return size is None or size == notice.size


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
                else:
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
    """Yield notices in pages; a sidecar, which is listed after its object, is in the page of that."""
    page: list[Notice] = []
    for notice in notices:
        if len(page) >= PAGE and notice.sidecar_of is None:
            yield page
            page = []
        page.append(notice)
    if page:
        yield page
