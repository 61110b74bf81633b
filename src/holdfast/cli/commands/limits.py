"""`holdfast limits`: list, show, set and remove limits of queues, operations and keys.

Invariants: a limit is checked before the ledger is changed; every change is journalled with its actor and reason.
"""

from typing import Annotated, Any

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import RequiredReason, actor, word
from holdfast.cli.text import Column
from holdfast.core.errors import RecordNotFoundError
from holdfast.core.limit_texts import checked, limit_of, limit_text, rate_text
from holdfast.core.limits import DEPTH, RATE, Limit, rule_of
from holdfast.store import Store
from holdfast.store.transaction import Reading

limits = group("Limit how many jobs run at once, and how many start in a time.", "limits")

Subject = Annotated[str, argument(metavar="SUBJECT", help="queue:NAME, operation:NAME or key:OPERATION.")]
Running = Annotated[int | None, option("--running", metavar="N", help="Maximum number of jobs that run at once.")]
Rate = Annotated[
    str | None, word("--rate", "Maximum number of starts in a time, such as 100/minute or 5/10s.", metavar="RATE")
]
Burst = Annotated[int | None, option("--burst", metavar="N", help="Maximum number of starts at once after a pause.")]
WAITING_MAX = 100_000


@limits.subcommand("list")
@command(Location.open)
def list_(store: Store[Any]) -> Answer:
    """List the limits, how much of each is in use, and how many jobs wait."""
    with store.reading() as reading:
        found = [_value(reading, subject) for subject in sorted(reading.limits.rules())]
    return Answer(found, lambda: _print(found))


@limits.subcommand()
@command(Location.open)
def show(store: Store[Any], *, subject: Subject) -> Answer:
    """Show a limit: its buckets, who holds their slots, and its earlier values."""
    with store.reading() as reading:
        value = _value(reading, subject)
        value["buckets"] = [
            {"bucket": name, "waiting": waiting, "holders": _holders(reading, name)}
            for name, waiting in sorted(_buckets(reading, subject).items())
        ]
        value["history"] = [
            {"value": each.value, "state": each.state, "actor": each.actor, "reason": each.reason}
            for each in reading.configuration.history("limit", subject)
        ]
    return Answer(value, lambda: _print_one(value))


@limits.subcommand("set")
@command(Location.open)
def set_(
    store: Store[Any],
    *,
    subject: Subject,
    running: Running = None,
    rate: Rate = None,
    burst: Burst = None,
    path: Annotated[
        str | None,
        word("--path", "For key:OPERATION only: the argument that is the key, such as customer.id.", metavar="PATH"),
    ] = None,
    reason: RequiredReason,
) -> Answer:
    """Set a limit, in place of the one that the subject has."""
    limit = checked(subject, limit_of(running=running, rate=rate, burst=burst, path=path))
    return changed(store, subject, limit, reason)


@limits.subcommand()
@command(Location.open)
def remove(store: Store[Any], *, subject: Subject, reason: RequiredReason) -> Answer:
    """Remove a limit; the jobs that wait for it can start."""
    return changed(store, subject, None, reason)


def changed(store: Store[Any], subject: str, limit: Limit | None, reason: str) -> Answer:
    """Set or remove a limit, and return the answer of the command."""
    with store.transaction() as transaction:
        if limit is None and subject not in transaction.limits.rules():
            raise _missing(subject)
        if subject.startswith(DEPTH):
            transaction.queues.limit_depth(subject.removeprefix(DEPTH), None, actor=actor(), reason=reason)
            has_changed = True
        else:
            has_changed = transaction.limits.set(subject, limit, actor=actor(), reason=reason)
        kind, _, name = subject.partition(":")
        unknown = kind != "queue" and name not in {"noop", *transaction.operations.declared()}
    said = f"Limit of {subject} removed." if limit is None else f"Limit of {subject}: {limit_text(limit)}."
    if limit is not None and unknown:
        said += f"\nNo process has declared the operation {name} yet; the limit holds when one does."
    return Answer({"limit": subject, "changed": has_changed, **limit_value(limit)}, said)


def limit_value(limit: Limit | None) -> dict[str, object]:
    if limit is None:
        return {"running": None, "rate": None, "burst": None, "path": None}
    return {"running": limit.running, "rate": rate_text(limit), "burst": limit.burst, "path": limit.path}


def _value(reading: Reading, subject: str) -> dict[str, Any]:
    rules = reading.limits.rules()
    if subject not in rules:
        raise _missing(subject)
    rule = rules[subject]
    held = sum(rule_of(bucket, rules) is rule for bucket, _, _ in reading.limits.held())
    waiting = sum(_buckets(reading, subject).values())
    return {"limit": subject, **limit_value(rule), "held": held, "waiting": waiting, "depth": rule.depth}


def _buckets(reading: Reading, subject: str) -> dict[str, int]:
    """Return the buckets of a limit that are in use, with how many jobs wait for each."""
    rules = reading.limits.rules()
    rule = rules[subject]
    found = {bucket: 0 for bucket, _, _ in reading.limits.held() if rule_of(bucket, rules) is rule}
    for bucket, _, jobs in reading.limits.waiting(WAITING_MAX):
        if rule_of(bucket, rules) is rule:
            found[bucket] = found.get(bucket, 0) + jobs
    return found


def _holders(reading: Reading, bucket: str) -> list[dict[str, object]]:
    found = reading.limits.holders(bucket)
    return [{"slot": slot, "job_id": job_id, "worker": owner} for slot, job_id, owner in found]


def _missing(subject: str) -> RecordNotFoundError:
    return RecordNotFoundError(
        f"There is no limit of {subject!r}.",
        next_step="To list the limits, run `holdfast limits list`.",
        context={"limit": subject},
    )


def _print(found: list[dict[str, Any]]) -> None:
    output.table(
        [Column("LIMIT"), Column("AT ONCE", right=True), Column("RATE"), Column("FOR EACH"),
         Column("DEPTH", right=True), Column("HELD", right=True), Column("WAITING", right=True)],
        [[row["limit"], row["running"] or "", row["rate"] or "", row["path"] or "",
          "" if row["depth"] is None else row["depth"], row["held"], row["waiting"]] for row in found],
        none="No limits.",
    )  # fmt: skip


def _print_one(value: dict[str, Any]) -> None:
    _print([value])
    for bucket in value["buckets"]:
        name = bucket["bucket"].removeprefix(RATE)
        holders = ", ".join(f"job {each['job_id']} on {each['worker']}" for each in bucket["holders"])
        output.line(f"{name}: {bucket['waiting']} waiting; running: {holders or 'none'}")
    for each in value["history"]:
        output.line(f"{each['state']} by {each['actor']}: {each['value']} ({each['reason']})")
