"""The commands of `holdfast nodd` for a feed: reconcile, backfill, drain-dlq, subscribe and doctor.

Invariants: nothing is created at AWS without --apply; a drain commits to the ledger before it deletes a message.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.declare import option
from holdfast.cli.nodd.options import (
    DatasetName,
    Endpoint,
    Operator,
    Own,
    Region,
    TelemetryTarget,
    dataset_named,
    day_of,
    prepared,
    reporting,
)
from holdfast.cli.options import GrantId, RequiredReason, actor
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.nodd import doctor as doctors
from holdfast.nodd import subscription as subscriptions
from holdfast.nodd.dataset import with_own
from holdfast.nodd.drain import WAIT_S, Drain
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue, aws_errors, client
from holdfast.nodd.reconcile import ReconcileResult
from holdfast.nodd.reconcile import reconcile as reconcile_day
from holdfast.telemetry import Target, start

NO_ACCOUNT = "000000000000"
_DRAINED = {"uncorrelated": "without a record and left in the queue (--admit-unknown admits them)"}
Prefixes = Annotated[
    list[str] | None,
    option(
        "--prefix",
        metavar="TEXT",
        help="Key prefix to list instead of the default ones, with %Y, %m, %d or %j for the day; repeatable.",
    ),
]
Products = Annotated[list[str] | None, option("--product", metavar="NAME", help="List only this product; repeatable.")]


@command(Location.unopened)
def reconcile(
    location: Location,
    *,
    dataset: DatasetName,
    date: Annotated[str, option("--date", metavar="DATE", help="Day in UTC: 2026-11-14.")],
    prefix: Prefixes = None,
    product: Products = None,
    admit_missing: Annotated[bool, option("--admit", help="Admit the missing objects.")] = False,
    own: Own = None,
    endpoint: Endpoint = None,
) -> Answer:
    """Compare one day of a public bucket with the ledger, and list missing objects; needs no AWS account."""
    listing = _Listing(prefix or [], product or [], own, endpoint)
    return _reconciled(location, dataset, (day_of(date), day_of(date)), listing, admit_missing=admit_missing)


@command(Location.unopened)
def backfill(
    location: Location,
    *,
    dataset: DatasetName,
    start: Annotated[str, option("--from", metavar="DATE", help="First day in UTC: 2026-11-14.")],
    end: Annotated[str, option("--to", metavar="DATE", help="Last day in UTC: 2026-11-14.")],
    prefix: Prefixes = None,
    product: Products = None,
    own: Own = None,
    endpoint: Endpoint = None,
) -> Answer:
    """Admit all objects of some days that the ledger does not have, at a lower priority than new ones."""
    if day_of(end) < day_of(start):
        raise InputError("--to is before --from.", next_step="Exchange the values of --from and --to.")
    listing = _Listing(prefix or [], product or [], own, endpoint)
    return _reconciled(location, dataset, (day_of(start), day_of(end)), listing, admit_missing=True)


class _Listing(NamedTuple):
    """What to list, and where."""

    prefixes: list[str]
    products: list[str]
    own: Path | None
    endpoint: str | None


def _reconciled(
    location: Location, name: str, days: tuple[datetime, datetime], listing: _Listing, *, admit_missing: bool
) -> Answer:
    datasets = with_own(listing.own)
    dataset = dataset_named(datasets, name)
    source = S3Source(datasets.buckets(), endpoint=listing.endpoint)
    found, (day, last) = [], days
    with prepared(location) as store:
        while day <= last:
            found.append(
                reconcile_day(
                    store,
                    source,
                    datasets,
                    dataset,
                    day.date(),
                    prefixes=listing.prefixes,
                    products=listing.products,
                    admit_missing=admit_missing,
                    actor=actor(),
                )
            )
            day += timedelta(days=1)
    return Answer([msgspec.to_builtins(one) for one in found], lambda: _print_reconciled(found))


def _print_reconciled(found: list[ReconcileResult]) -> None:
    columns = [Column(name) for name in ("DATE", "LISTED", "KNOWN", "MISSING", "CHANGED", "ADMITTED", "OTHERS")]
    output.table(
        columns,
        [
            (one.date, *map(str, (one.listed, one.known, one.missing, one.changed, one.admitted, one.others)))
            for one in found
        ],
    )
    for uri in [uri for one in found for uri in one.examples][:5]:
        output.line(f"  missing: {uri}")


@command(Location.unopened)
def drain_dlq(
    location: Location,
    *,
    queue: Annotated[
        str, option("--queue", envvar="KFM_SQS_DLQ_QUEUE", metavar="URL", help="URL of the dead-letter queue.")
    ],
    reason: RequiredReason,
    limit: Annotated[int, option("--limit", min=1, max=2000, help="Maximum number of messages.")] = 500,
    admit_unknown: Annotated[
        bool, option("--admit-unknown", help="Admit messages without a record in the ledger.")
    ] = False,
    grant: GrantId = None,
    wait_s: Annotated[
        float, option("--wait", min=0, metavar="SECONDS", help="How long to wait for the outcome of a batch.")
    ] = WAIT_S,
    operator: Operator = None,
    telemetry: TelemetryTarget = Target.OFF,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Drain a dead-letter queue into the ledger, under the guards and grants of a replay.

    Failed records are replayed in batches; those with a permanent error are quarantined. It stops if the same error
    comes back.
    """
    dead = Queue(queue, endpoint=endpoint, region=region)
    sink, datasets = start(telemetry, "holdfast-nodd"), with_own(own)
    with prepared(location) as store, reporting(sink, store) as (reporter, bus):
        drain = Drain(
            store,
            dead,
            datasets,
            actor=operator or actor(),
            reason=reason,
            admit_unknown=admit_unknown,
            grant_id=grant,
            wait_s=wait_s,
            reporter=reporter,
            bus=bus,
        )
        done = drain.run(limit=limit)
    fates = ", ".join(f"{n} {_DRAINED.get(fate, fate)}" for fate, n in done.fates.items()) or "none"
    text = f"{done.run_id}: {done.received} messages received, {done.deleted} deleted: {fates}."
    text += f" Stopped ({done.stopped}): {done.message}." if done.stopped else ""
    return Answer(msgspec.to_builtins(done), text, 3 if done.stopped else 0)


@command()
def subscribe(
    *,
    dataset: DatasetName,
    queue: Annotated[
        str, option("--queue-name", metavar="NAME", help="Name of the queue to create.")
    ] = "nodd-primary-queue",
    account: Annotated[str, option("--account", metavar="NUMBER", help="Number of your AWS account.")] = NO_ACCOUNT,
    prefix: Annotated[
        list[str] | None,
        option("--prefix", metavar="TEXT", help="Subscribe only to keys with this prefix; repeatable."),
    ] = None,
    site: Annotated[
        list[str] | None,
        option("--site", metavar="ID", help="Only chunks of this radar, such as KTLX; repeatable."),
    ] = None,
    env: Annotated[
        subscriptions.SubscriptionEnv,
        option("--env", help="Environment; dev uses a shorter visibility timeout."),
    ] = subscriptions.SubscriptionEnv.PROD,
    apply: Annotated[
        bool, option("--apply", help="Create the resources, with the AWS credentials of the environment.")
    ] = False,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Print the resources of a subscription (queue, dead-letter queue, policy, filter), or create them."""
    if apply and account == NO_ACCOUNT:
        raise InputError("--apply needs --account.", next_step="Add --account NUMBER.")
    found = dataset_named(with_own(own), dataset)
    plans = [
        subscriptions.plan(
            found, bucket, queue=queue, account=account, prefixes=tuple(prefix or ()), sites=tuple(site or ()), env=env
        )
        for bucket in sorted(found.spec.buckets)
    ]
    made = [subscriptions.carry_out(one, endpoint=endpoint, region=region) for one in plans] if apply else []
    value = [
        {**msgspec.to_builtins(one), "made": done} for one, done in zip(plans, made or [{}] * len(plans), strict=True)
    ]
    text = msgspec.json.format(msgspec.json.encode(value), indent=2).decode()
    return Answer(value, text)


@command(Location.unopened)
def doctor(
    location: Location,
    *,
    queue: Annotated[
        str | None, option("--queue", envvar="KFM_SQS_PRIMARY_QUEUE", metavar="URL", help="URL of the queue.")
    ] = None,
    dead: Annotated[
        str | None,
        option("--dlq", envvar="KFM_SQS_DLQ_QUEUE", metavar="URL", help="URL of the dead-letter queue."),
    ] = None,
    subscription: Annotated[
        str | None, option("--subscription", metavar="ARN", help="ARN of the subscription.")
    ] = None,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Diagnose the feed: missing topics, a wrong filter, no messages, messages in the dead-letter queue."""
    with prepared(location) as store:
        findings = doctors.look_at_ledger(store, store.now(), with_own(own))
        if queue:
            read = Queue(queue, endpoint=endpoint, region=region)
            letters = Queue(dead, endpoint=endpoint, region=region) if dead else None
            findings += doctors.look_at_queue(read, letters, with_own(own))
            findings += doctors.look_at_visibility(store, read)
    if subscription:
        sns = client("sns", endpoint=endpoint, region=region)
        with aws_errors("AWS"):
            attributes = sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
        findings += doctors.look_at_subscription(attributes)
    columns = [Column("PROBLEM"), Column("SUBJECT", folds=True), Column("DETAIL", folds=True)]
    columns += [Column("NEXT", folds=True, steps=True)]
    rows = [(one.code, one.subject, one.detail, one.next_step) for one in findings]
    value = {"ok": not findings, "findings": [msgspec.to_builtins(one) for one in findings]}
    return Answer(value, lambda: output.table(columns, rows, none="No problems found."), 1 if findings else 0)
