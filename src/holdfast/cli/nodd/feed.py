"""The commands of `holdfast nodd` that look after a feed: listings, dead letters, subscriptions, the doctor.

Invariants: nothing is made at AWS without --apply; a drain tells the ledger before the queue.
"""

from __future__ import annotations

from datetime import datetime, timedelta
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec
import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.nodd.options import (
    DatasetName,
    Endpoint,
    Operator,
    Own,
    Reason,
    Region,
    Told,
    day_of,
    known,
    prepared,
    telling,
)
from holdfast.cli.options import actor
from holdfast.cli.output import Column
from holdfast.core.errors import InputError
from holdfast.nodd import doctor as doctors
from holdfast.nodd import subscription as subscriptions
from holdfast.nodd.dataset import with_own
from holdfast.nodd.drain import Drain
from holdfast.nodd.objects import S3Source
from holdfast.nodd.queues import Queue, aws_errors, client
from holdfast.nodd.reconcile import ReconcileResult
from holdfast.nodd.reconcile import reconcile as reconcile_day
from holdfast.telemetry import Target, start

NO_ACCOUNT = "000000000000"


@command(Location.unopened)
def reconcile(
    location: Location,
    *,
    dataset: DatasetName,
    date: Annotated[str, typer.Option("--date", metavar="DATE", help="The day, in UTC: 2026-11-14.")],
    prefix: Annotated[
        list[str] | None, typer.Option("--prefix", metavar="TEXT", help="List this instead. May be repeated.")
    ] = None,
    admit_missing: Annotated[bool, typer.Option("--admit", help="Admit what is missing.")] = False,
    own: Own = None,
    endpoint: Endpoint = None,
) -> Answer:
    """Hold a day of a public bucket against the ledger: which notices never came? No account is needed."""
    days = day_of(date), day_of(date)
    return _reconciled(location, dataset, days, _Listing(prefix or [], own, endpoint), admit_missing=admit_missing)


@command(Location.unopened)
def backfill(
    location: Location,
    *,
    dataset: DatasetName,
    start: Annotated[str, typer.Option("--from", metavar="DATE", help="The first day.")],
    end: Annotated[str, typer.Option("--to", metavar="DATE", help="The last day.")],
    prefix: Annotated[
        list[str] | None, typer.Option("--prefix", metavar="TEXT", help="List this instead. May be repeated.")
    ] = None,
    own: Own = None,
    endpoint: Endpoint = None,
) -> Answer:
    """Admit every object of some days that the ledger does not know, behind the work of today."""
    if day_of(end) < day_of(start):
        raise InputError("the last day is before the first", next_step="Exchange --from and --to.")
    days = day_of(start), day_of(end)
    return _reconciled(location, dataset, days, _Listing(prefix or [], own, endpoint), admit_missing=True)


class _Listing(NamedTuple):
    """What is listed, and where."""

    prefixes: list[str]
    own: Path | None
    endpoint: str | None


def _reconciled(
    location: Location, name: str, days: tuple[datetime, datetime], listing: _Listing, *, admit_missing: bool
) -> Answer:
    datasets = with_own(listing.own)
    dataset = known(datasets, name)
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
                    admit_missing=admit_missing,
                    actor=actor(),
                )
            )
            day += timedelta(days=1)
    return Answer([msgspec.to_builtins(one) for one in found], lambda: _print_reconciled(found))


def _print_reconciled(found: list[ReconcileResult]) -> None:
    columns = [Column(name) for name in ("DATE", "LISTED", "KNOWN", "MISSING", "ADMITTED", "OTHERS")]
    output.table(
        columns,
        [(one.date, *map(str, (one.listed, one.known, one.missing, one.admitted, one.others))) for one in found],
    )
    for uri in [uri for one in found for uri in one.examples][:5]:
        output.line(f"  missing: {uri}")


@command(Location.unopened)
def drain_dlq(
    location: Location,
    *,
    queue: Annotated[
        str, typer.Option("--queue", envvar="KFM_SQS_DLQ_QUEUE", metavar="URL", help="The dead-letter queue.")
    ],
    reason: Reason,
    limit: Annotated[int, typer.Option("--limit", min=1, max=2000, help="At most so many messages.")] = 500,
    admit_unknown: Annotated[bool, typer.Option("--admit-unknown", help="Admit messages that have no record.")] = False,
    operator: Operator = None,
    telemetry: Told = Target.OFF,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Drain a dead-letter queue: the ledger first, then the queue; stops when the same error comes back."""
    dead = Queue(queue, endpoint=endpoint, region=region)
    sink, datasets = start(telemetry), with_own(own)
    with prepared(location) as store, telling(sink, store) as (reporter, bus):
        drain = Drain(
            store,
            dead,
            datasets,
            actor=operator or actor(),
            reason=reason,
            admit_unknown=admit_unknown,
            reporter=reporter,
            bus=bus,
        )
        done = drain.run(limit=limit)
    words = ", ".join(f"{n} {fate}" for fate, n in done.fates.items()) or "nothing"
    text = f"{done.received} received, {done.deleted} deleted: {words}. {done.stopped or ''}"
    return Answer(msgspec.to_builtins(done), text, 3 if done.stopped else 0)


@command()
def subscribe(
    *,
    dataset: DatasetName,
    queue: Annotated[
        str, typer.Option("--queue-name", metavar="NAME", help="The queue to make.")
    ] = "nodd-primary-queue",
    account: Annotated[str, typer.Option("--account", metavar="NUMBER", help="Your AWS account.")] = NO_ACCOUNT,
    prefix: Annotated[
        list[str] | None, typer.Option("--prefix", metavar="TEXT", help="Only keys that begin so. May be repeated.")
    ] = None,
    env: Annotated[
        subscriptions.SubscriptionEnv,
        typer.Option("--env", help="What for: messages of dev are invisible for a shorter time."),
    ] = subscriptions.SubscriptionEnv.PROD,
    apply: Annotated[bool, typer.Option("--apply", help="Make it, with the credentials of the environment.")] = False,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Print what a subscription needs (queue, dead-letter queue, policy, filter), or make it."""
    if apply and account == NO_ACCOUNT:
        raise InputError("--apply makes queues in an account", next_step="Name yours with --account.")
    found = known(with_own(own), dataset)
    plans = [
        subscriptions.plan(found, bucket, queue=queue, account=account, prefixes=tuple(prefix or ()), env=env)
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
        str | None, typer.Option("--queue", envvar="KFM_SQS_PRIMARY_QUEUE", metavar="URL", help="The queue.")
    ] = None,
    dead: Annotated[
        str | None, typer.Option("--dlq", envvar="KFM_SQS_DLQ_QUEUE", metavar="URL", help="The dead-letter queue.")
    ] = None,
    subscription: Annotated[str | None, typer.Option("--subscription", metavar="ARN", help="The subscription.")] = None,
    own: Own = None,
    endpoint: Endpoint = None,
    region: Region = "us-east-1",
) -> Answer:
    """Say what ails the feed: dead topics, a wrong filter, silence, dead letters."""
    with prepared(location) as store:
        findings = doctors.look_at_ledger(store, store.now())
        if queue:
            read = Queue(queue, endpoint=endpoint, region=region)
            letters = Queue(dead, endpoint=endpoint, region=region) if dead else None
            findings += doctors.look_at_queue(read, letters, with_own(own))
            findings += doctors.look_at_visibility(store, read)
    if subscription:
        sns = client("sns", endpoint=endpoint, region=region)
        with aws_errors("AWS"):
            told = sns.get_subscription_attributes(SubscriptionArn=subscription)["Attributes"]
        findings += doctors.look_at_subscription(told)
    columns = [Column("WHAT"), Column("OF", folds=True), Column("WHY", folds=True)]
    columns += [Column("NEXT", folds=True, steps=True)]
    rows = [(one.code, one.subject, one.detail, one.next_step) for one in findings]
    value = {"ok": not findings, "findings": [msgspec.to_builtins(one) for one in findings]}
    healthy = "nothing ails the feed"
    return Answer(value, (lambda: output.table(columns, rows)) if rows else healthy, 1 if findings else 0)
