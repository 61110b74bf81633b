"""`holdfast nodd datasets | records | publish | pause | resume`: the datasets, their records and their catalogue.

Invariants: none of these commands needs an AWS account.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.nodd.options import CATALOG, DatasetName, Endpoint, Operator, Own, Region, dataset_named, prepared
from holdfast.cli.options import GrantId, RequiredReason, actor
from holdfast.cli.text import Column
from holdfast.core.errors import BadUrlError
from holdfast.governance.switches import resume_queue
from holdfast.nodd import catalog as catalogue
from holdfast.nodd.catalog_targets import target_of
from holdfast.nodd.dataset import with_own
from holdfast.nodd.records import RecordStatus
from holdfast.store import Store


@command(Location.unopened)
def datasets(location: Location, *, own: Own = None) -> Answer:
    """List the datasets with their buckets, and those that are paused if a ledger is given."""
    found, paused = list(with_own(own)), _paused(location)
    value = [
        {
            "dataset": one.name,
            "title": one.spec.title,
            "format": one.spec.format,
            "buckets": one.spec.buckets,
            "archives": one.spec.archives,
            "paused": one.name in paused,
        }
        for one in found
    ]
    columns = [Column("DATASET"), Column("STATE"), Column("FORMAT"), Column("BUCKET", folds=True)]
    columns += [Column("TITLE", folds=True)]
    rows = [
        (one.name, "paused" if one.name in paused else "", one.spec.format, ", ".join(one.spec.buckets), one.spec.title)
        for one in found
    ]
    return Answer(value, lambda: output.table(columns, rows))


def _paused(location: Location) -> frozenset[str]:
    """Return the paused queues of the ledger, none without a ledger."""
    try:
        location.url  # noqa: B018 - raises if no ledger is named
    except BadUrlError:
        return frozenset()
    with location.open() as store, store.reading() as reading:
        return frozenset(reading.queues.paused())


@command(Location.unopened)
def records(
    location: Location,
    *,
    dataset: Annotated[
        str | None, option("--dataset", metavar="NAME", help="List only records of this dataset.")
    ] = None,
    status: Annotated[RecordStatus | None, option("--status", help="List only records with this status.")] = None,
    limit: Annotated[int, option("--limit", min=1, max=10_000, help="Maximum number of records.")] = 50,
    own: Own = None,
) -> Answer:
    """List the write-ahead records, newest first."""
    from holdfast.nodd.statements import statements  # noqa: PLC0415 - only here

    chosen = {
        "dataset": None if dataset is None else dataset_named(with_own(own), dataset).name,
        "status": None if status is None else str(status),
    }
    with prepared(location) as store, store.reading() as reading:
        [sql] = statements(store.dialect)["wal_records"]
        names, rows = reading.query(sql, {**chosen, "wal_id": None, "n": limit})
    value = [dict(zip(names, row, strict=True)) for row in rows]
    columns = [Column("JOB", right=True), *map(Column, ("STATUS", "DATASET"))]
    columns += [Column("OBJECT", folds=True), Column("ERROR")]
    shown = ("ext_job_id", "status", "dataset", "object_uri", "last_error_code")
    table = [[one[name] or "" for name in shown] for one in value]
    return Answer(msgspec.to_builtins(value), lambda: output.table(columns, table, none="No records."))


@command(prepared)
def publish(
    store: Store[Any],
    *,
    catalog: Annotated[str, CATALOG],
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Write the whole static catalogue from the tables of the ledger."""
    target = target_of(catalog, endpoint=endpoint, region=region)
    done = catalogue.rebuild(store, target, with_own(own))
    words = f"{done.items} items, {done.written} of them written; {done.days} days, {done.collections} collections."
    return Answer(msgspec.to_builtins(done), words)


@command(Location.unopened)
def pause(location: Location, *, dataset: DatasetName, reason: RequiredReason, own: Own = None) -> Answer:
    """Pause a dataset and its replay; notices are still admitted."""
    name = dataset_named(with_own(own), dataset).name
    with prepared(location) as store, store.transaction() as transaction:
        transaction.queues.pause(name, actor=actor(), reason=reason)
    return Answer({"dataset": name, "paused": True}, f"Dataset {name} paused.")


@command(Location.unopened)
def resume(
    location: Location,
    *,
    dataset: DatasetName,
    reason: RequiredReason,
    grant: GrantId = None,
    operator: Operator = None,
    own: Own = None,
) -> Answer:
    """Resume a paused dataset; outside dev under a grant, which is consumed."""
    name = dataset_named(with_own(own), dataset).name
    with prepared(location) as store:
        resumed = resume_queue(store, name, actor=operator or actor(), reason=reason, grant_id=grant)
    words = f"Dataset {name} resumed." if resumed else f"Dataset {name} was not paused."
    return Answer({"dataset": name, "resumed": resumed}, words)
