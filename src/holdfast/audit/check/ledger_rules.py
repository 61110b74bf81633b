"""Rules about the ledger as a whole: counts, keys, orphans, seals, triggers, and the database itself.

Invariants: each rule is one statement, or short ones page by page, where each page may be of another moment; none
repeats a rule of the transition tables.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Iterator
from datetime import timedelta

from holdfast.audit.check.context import RuleContext
from holdfast.audit.check.findings import Finding
from holdfast.audit.seals.horizons import Horizons, floor_flaw, hidden_row
from holdfast.audit.seals.sealer import genesis, require_sound_end, seal_hash
from holdfast.core.digest import sha256
from holdfast.core.environments import DEV
from holdfast.core.errors import SealsBrokenError, StoreDamagedError
from holdfast.core.machines import EXECUTION, GRANT, JOB, MACHINES, GrantState
from holdfast.core.records import time_text
from holdfast.core.seals import Seal
from holdfast.store.migrations import DOOR_OPEN, unique_indexes
from holdfast.store.reinstall import behind
from holdfast.store.settings import REQUIRED, declared_from
from holdfast.store.verbs.seals import SEQ_MIN

OVERDUE_S = 60.0
ROWS_A_PAGE = 10_000
NAMED_MAX = 20
_FOREIGN = "does not belong to Holdfast, but is on a table of the ledger and can change what is written"
_PARTITION_INDEX = re.compile(r"holdfast_journal_p\d+_(subject|grant)")


def _of(machine: str, subject: int, kind: str, detail: str, **evidence: object) -> Finding:
    return Finding(f"{machine} {subject}", detail, machine, subject, {"kind": kind, **evidence})


# ---------------------------------------------------------------------------------------------------------------------
# Records


def ids_once(context: RuleContext) -> Iterator[Finding]:
    """Yield ids that two records share."""
    for machine, subject, n in context.reading.run("ids_twice"):
        yield _of(machine, subject, "id", f"{n} records have this id", n=n)


def keys_once(context: RuleContext) -> Iterator[Finding]:
    """Yield jobs with the client and key of an older one."""
    for job_id, first, client, key in context.reading.run("keys_twice", n=context.limit):
        detail = f"job {first} has the same client {client!r} and key {key!r}"
        yield _of(JOB.name, job_id, "key", detail, job_id=job_id, first=first, client=client, key=key)


def overdue(context: RuleContext) -> Iterator[Finding]:
    """Yield leases that expired so long ago that a worker should have ended them."""
    for exec_id, job_id, owner, until in context.evidence.overdue(
        context.now - timedelta(seconds=OVERDUE_S), context.limit
    ):
        ago_s = int((context.now - until).total_seconds())
        detail = f"the lease of {owner} on job {job_id} expired {ago_s} s ago, and no worker has ended it"
        yield _of(EXECUTION.name, exec_id, "overdue", detail, job_id=job_id, until=time_text(until))


def counts(context: RuleContext) -> Iterator[Finding]:
    """Yield counts that differ from the number of jobs."""
    for operation, queue, state, counted, found in context.reading.run("counts_to_check", n=context.limit):
        yield Finding(
            f"COUNTS {operation}/{queue}/{state}",
            f"the count is {int(counted)}, but there are {int(found)} jobs",
            evidence={
                "kind": "count", "operation": operation, "queue": queue, "state": state, "counted": int(counted),
                "found": int(found),
            },
        )  # fmt: skip


def slots(context: RuleContext) -> Iterator[Finding]:
    """Yield slots of limits whose job does not run, and running jobs that lack the slot of a limit."""
    limits = context.reading.limits
    for bucket, slot, job_id in limits.leaked(context.limit):
        evidence = {"kind": "leaked", "bucket": bucket, "slot": slot, "job_id": job_id}
        yield Finding(f"SLOT {bucket}/{slot}", f"job {job_id} has the slot, but does not run", evidence=evidence)
    rules = limits.rules()
    held = {(bucket, job_id) for bucket, _, job_id in limits.held()} if rules else set()
    for job_id, buckets in sorted(limits.expected(rules).items()) if rules else ():
        for bucket in sorted(buckets):
            if (bucket, job_id) not in held:
                evidence = {"kind": "missing", "bucket": bucket, "job_id": job_id}
                yield Finding(f"SLOT {bucket}", f"job {job_id} runs without a slot of the limit", evidence=evidence)


# ---------------------------------------------------------------------------------------------------------------------
# Orphans


def orphans(context: RuleContext) -> Iterator[Finding | None]:
    """Yield jobs without their call, and calls, executions, checkpoints, replacements and rows without their job."""
    ask, n = context.reading.run, context.limit
    for missing, job_id in ask("orphan_calls", n=n):
        detail = "the job has no call" if missing == "call" else "the call has no job"
        yield _of(JOB.name, job_id, missing, detail, job_id=job_id)
    for exec_id, job_id in ask("orphan_executions", n=n):
        yield _of(EXECUTION.name, exec_id, "execution", f"job {job_id} of the execution does not exist", job_id=job_id)
    for job_id, name in ask("orphan_checkpoints", n=n):
        evidence = {"kind": "checkpoint", "job_id": job_id, "name": name}
        yield Finding(
            f"CHECKPOINT {job_id}/{name}", f"job {job_id} of the checkpoint does not exist", evidence=evidence
        )
    for job_id, replaced in ask("orphan_replacements", n=n):
        detail = f"the job replaces job {replaced}, which does not exist"
        yield _of(JOB.name, job_id, "replaces", detail, job_id=job_id, replaces=replaced)
    yield None
    yield from _orphan_rows(context)


def _orphan_rows(context: RuleContext) -> Iterator[Finding | None]:
    """Yield records that exist in the journal only, unless their rows are archived."""
    after = looked_at = 0
    lost: dict[tuple[str, int], list[int]] = defaultdict(list)
    while len(lost) < context.limit:
        [[n, last]] = context.reading.run("journal_page", after=after, n=ROWS_A_PAGE)
        if not n or not isinstance(last, int) or last <= after:  # on damaged pages the numbers may not grow
            break
        until = context.evidence.archived_until
        for machine, subject, seq, epoch, xid in context.reading.run("orphan_rows", after=after, until=last):
            if until is None or (epoch, xid, seq) > until:
                lost[machine, subject].append(seq)
        after, looked_at = last, looked_at + n
        yield None
    context.evidence.rows_surveyed = looked_at
    for (machine, subject), seqs in lost.items():
        known = machine in MACHINES
        what = "the record does not exist" if known else "the machine does not exist"
        yield Finding(
            f"{machine} {subject}",
            f"the journal has {len(seqs)} rows, but {what}",
            machine if known else None,
            subject if known else None,
            {"kind": "journal", "rows": len(seqs), "seqs": seqs[:NAMED_MAX]},
        )


def erased(context: RuleContext) -> Iterator[Finding]:
    """Yield erased jobs whose data were written back."""
    for job_id, what in context.reading.run("erased_to_check", job_id=None, n=context.limit):
        detail = f"the job was erased, but its {what} is there again"
        yield _of(JOB.name, job_id, "written_back", detail, what=what)


def governance(context: RuleContext) -> Iterator[Finding | None]:
    """Yield steps, values and evidence without their owner, and evidence that does not have its digest."""
    after = 0
    for kind, subject, what, missing in context.reading.run("orphans_of_governance", n=context.limit):
        machine, number = (kind, subject) if kind in MACHINES else (None, None)
        evidence = {"kind": what, what: missing}
        yield Finding(f"{kind} {subject}", f"{what} {missing} does not exist", machine, number, evidence)
    while kept := context.reading.run("evidence_to_check", after=after, n=context.batch):
        for after, content, digest in kept:
            if sha256(content) != digest:
                detail = "the content does not have the digest that was stored with it"
                yield Finding(f"EVIDENCE {after}", detail, evidence={"kind": "digest", "digest": digest})
        yield None


def approvals(context: RuleContext) -> Iterator[Finding]:
    """Yield consumed grants without a consumer, and active grants without an approver, or approved by the requester."""
    by_another = context.evidence.meta().get("environment", DEV) != DEV
    for grant_id, state, requester, approver in context.reading.run(
        "grants_to_doubt", by_another=by_another, n=context.limit
    ):
        if state == GrantState.CONSUMED:
            yield _of(GRANT.name, grant_id, "consumed_by", "the grant is consumed, but consumed_by is empty")
        elif approver is None:
            yield _of(GRANT.name, grant_id, "approved_by", "the grant is active, but approved_by is empty")
        else:
            detail = f"the grant is active, but its requester {requester} approved it"
            yield _of(GRANT.name, grant_id, "approved_by", detail, requested_by=requester)


def maintenance(context: RuleContext) -> Iterator[Finding]:
    """Yield maintenance whose journal rows do not run from its start to its end."""
    for subject, n, first, last, shut in context.reading.run("broken_maintenance", n=context.limit):
        detail = f"the journal has {n} rows, versions {first} to {last}, with {shut} ends; it must have exactly 1 end"
        yield Finding(f"MAINTENANCE {subject}", detail, evidence={"kind": "maintenance", "rows": n})


# ---------------------------------------------------------------------------------------------------------------------
# Seals


def seals(context: RuleContext) -> Iterator[Finding]:
    """Yield each break in the chain of seals, from the first seal to the last, and rows that its floor hides."""
    before: Seal | None = None
    after, horizons, sound = SEQ_MIN, _horizons(context), True
    while found := context.reading.seals.page(after=after, limit=context.batch):
        for seal in found:
            for finding in _link(context, before, seal, horizons):
                yield finding
                sound = False
            before = seal if seal.seal_id > 0 else None
        after = found[-1].seal_id
    for finding in _end(context, before):
        yield finding
        sound = False
    if sound and horizons:
        yield from _hints(context, before)


def last_seal(context: RuleContext) -> Iterator[Finding]:
    """Yield a last seal that does not follow the one before it, or is not the one that the settings name."""
    last = context.reading.seals.last()
    if last:
        *before, last = context.reading.seals.page(after=last.seal_id - 2, limit=2)
        yield from _link(context, before[0] if before and last.seal_id > 1 else None, last, _horizons(context))
    yield from _end(context, last)


def _link(context: RuleContext, before: Seal | None, seal: Seal, horizons: Horizons | None) -> Iterator[Finding]:
    if seal.seal_id < 1:
        yield _of_seal(seal, "id", "the seal was inserted: the first seal is number 1")
        return
    if seal.seal_id != (before.seal_id + 1 if before else 1):
        yield _of_seal(
            seal, "id", f"the seals between {before.seal_id if before else 0} and {seal.seal_id} are missing"
        )
    elif seal.previous != (before.hash if before else genesis(context.evidence.meta().get("ledger_id", ""))):
        yield _of_seal(seal, "previous", "the seal does not contain the hash of the seal before it")
    if before and seal.end <= before.end:
        yield _of_seal(seal, "end", "the seal ends before the end of the seal before it")
    if seal.hash != seal_hash(seal):
        yield _of_seal(seal, "hash", "the stored hash differs from the hash of the seal's fields")
    elif horizons:
        for number, why in horizons.flaws(seal):
            yield Finding(f"SEAL {number}", why, evidence={"kind": "horizon", "seal_id": number})


def _horizons(context: RuleContext) -> Horizons | None:
    """Return the verifier of horizons; None if the ledger has no epoch, which `enforcement` reports."""
    try:
        return Horizons(context.reading.seals, context.evidence.meta(), one_writer=context.reading.store.one_writer)
    except StoreDamagedError:
        return None


def _hints(context: RuleContext, last: Seal | None) -> Iterator[Finding]:
    """Yield a floor that no seal supports, and a row below the floor that is not sealed."""
    reading, meta = context.reading.seals, context.evidence.meta()
    if flaw := floor_flaw(reading, meta):
        yield Finding("LEDGER", flaw, evidence={"kind": "floor"})
    if found := hidden_row(reading, meta, last):
        seq, floor = found
        detail = f"row {seq} is not sealed, and will not be: the seals say that all rows up to {floor} are sealed"
        yield Finding("LEDGER", detail, evidence={"kind": "floor", "seq": seq, "floor": floor})


def _end(context: RuleContext, last: Seal | None) -> Iterator[Finding]:
    try:
        require_sound_end(context.evidence.meta(), last)
    except SealsBrokenError as broken:
        if last is None or seal_hash(last) == last.hash:  # else `_link` has reported it
            yield Finding("LEDGER", broken.message, evidence={"kind": "head"})


def _of_seal(seal: Seal, kind: str, detail: str) -> Finding:
    return Finding(f"SEAL {seal.seal_id}", detail, evidence={"kind": kind, "seal_id": seal.seal_id})


# ---------------------------------------------------------------------------------------------------------------------
# Enforcement, and the database


def enforcement(context: RuleContext) -> Iterator[Finding]:
    """Yield triggers, functions, indexes and machines that differ from this version, and maintenance left open."""
    try:
        found = context.evidence.drift()
    except StoreDamagedError as error:  # without an epoch nothing can be compared
        yield Finding("LEDGER", error.message, evidence={"kind": "epoch"})
        return
    for name in found:
        if name == DOOR_OPEN:
            yield Finding("DOOR", "a maintenance was left open", evidence={"kind": "door"})
        elif name.startswith("machine "):
            machine = name.removeprefix("machine ")
            detail = "the stored transition table differs from this version"
            yield Finding(f"MACHINE {machine}", detail, evidence={"kind": "machine", "name": machine})
        elif name.startswith("rule "):
            rule = name.removeprefix("rule ")
            yield Finding(f"RULE {rule}", f"the rule {_FOREIGN}", evidence={"kind": "rule", "name": rule})
        else:
            kind = (
                "index"
                if name in unique_indexes(context.reading.dialect) or _PARTITION_INDEX.fullmatch(name)
                else "trigger"
            )
            ours = name.startswith("holdfast_")
            detail = f"the {kind} is missing, or differs from this version" if ours else f"the {kind} {_FOREIGN}"
            yield Finding(f"{kind.upper()} {name}", detail, evidence={"kind": kind, "name": name})


def sequences(context: RuleContext) -> Iterator[Finding]:
    """Yield tables whose next id was used before: two records could get the same id."""
    for table, last, greatest in behind(context.reading):
        detail = f"the next id follows {last}, but {greatest} was used before"
        yield Finding(f"SEQUENCE {table}", detail, evidence={"kind": "sequence", "name": table, "greatest": greatest})


def settings(context: RuleContext) -> Iterator[Finding]:
    """Yield settings and defaults of operations that are missing or invalid."""
    found = context.evidence.meta()
    for name, fits in REQUIRED.items():
        if name not in found:
            yield Finding(f"SETTING {name}", "the setting is missing", evidence={"kind": "setting", "name": name})
        elif not fits(found[name]):
            detail = f"the value {found[name][:40]!r} is invalid"
            yield Finding(f"SETTING {name}", detail, evidence={"kind": "setting", "name": name})
    for operation, _, defaults in context.reading.run("operations_to_check"):
        try:
            declared_from(operation, defaults)
        except StoreDamagedError as error:
            yield Finding(f"OPERATION {operation}", error.message, evidence={"kind": "operation", "name": operation})


def database(context: RuleContext) -> Iterator[Finding]:
    """Yield the errors that the database finds in itself."""
    for subject, detail in context.reading.store.upkeep.faults(context.reading.connection):
        machine, _, number = subject.partition(" ")
        known = machine in MACHINES and number.isdecimal()
        yield Finding(subject, detail, machine if known else None, int(number) if known else None, {"kind": "database"})
