"""Rules about the ledger as a whole: counts, keys, orphans, seals, what enforces, and the database itself.

Invariants: each question is one statement, or short ones page by page; none restates a transition.
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
from holdfast.core.records import Seal, time_text
from holdfast.store.migrations import DOOR_OPEN, unique_indexes
from holdfast.store.settings import REQUIRED, declared_from
from holdfast.store.verbs.seals import SEQ_MIN

OVERDUE_S = 60.0
ROWS_A_PAGE = 50_000
NAMED_MAX = 20
_FOREIGN = "is none of Holdfast's, and stands on a table of the ledger, where it can undo what is written"
_PARTITION_INDEX = re.compile(r"holdfast_journal_p\d+_(subject|grant)")


def _of(machine: str, subject: int, kind: str, detail: str, **evidence: object) -> Finding:
    return Finding(f"{machine} {subject}", detail, machine, subject, {"kind": kind, **evidence})


# ---------------------------------------------------------------------------------------------------------------------
# Records


def ids_once(context: RuleContext) -> Iterator[Finding]:
    """Yield ids that two records share, and that are therefore in two states."""
    for machine, subject, n in context.evidence.ask("ids_twice"):
        yield _of(machine, subject, "id", f"{n} records have this id", n=n)


def keys_once(context: RuleContext) -> Iterator[Finding]:
    """Yield jobs with the client and key of an older one."""
    for job_id, first, client, key in context.evidence.ask("keys_twice", n=context.limit):
        detail = f"it has the key of job {first}: client {client!r}, key {key!r}"
        yield _of(JOB.name, job_id, "key", detail, job_id=job_id, first=first, client=client, key=key)


def leases(context: RuleContext) -> Iterator[Finding]:
    """Yield, from the few jobs and executions that are under way, those that do not belong together."""
    for job_id, n in context.evidence.ask("running_without_lease", n=context.limit):
        yield _of(JOB.name, job_id, "leases", f"it is running under {n} open executions", job_id=job_id)
    for exec_id, job_id, status, state in context.evidence.ask("leases_without_running", n=context.limit):
        detail = f"it is {status}, and its job {job_id} is {state}"
        yield _of(EXECUTION.name, exec_id, "open", detail, job_id=job_id, status=status, state=state)


def overdue(context: RuleContext) -> Iterator[Finding]:
    """Yield leases that ran out so long ago that somebody should have noticed."""
    for exec_id, job_id, owner, until in context.evidence.overdue(
        context.now - timedelta(seconds=OVERDUE_S), context.limit
    ):
        ago_s = int((context.now - until).total_seconds())
        detail = f"the lease of {owner} on job {job_id} ran out {ago_s} s ago, and nobody has ended it"
        yield _of(EXECUTION.name, exec_id, "overdue", detail, job_id=job_id, until=time_text(until))


def counts(context: RuleContext) -> Iterator[Finding]:
    """Yield counts that are not the number of jobs."""
    for operation, queue, state, told, found in context.evidence.ask("counts_to_check", n=context.limit):
        yield Finding(
            f"COUNTS {operation}/{queue}/{state}",
            f"{int(told)} are counted, and there are {int(found)}",
            evidence={
                "kind": "count", "operation": operation, "queue": queue, "state": state, "told": int(told),
                "found": int(found),
            },
        )  # fmt: skip


# ---------------------------------------------------------------------------------------------------------------------
# Orphans


def orphans(context: RuleContext) -> Iterator[Finding]:
    """Yield what belongs to something that is not there."""
    ask, n = context.evidence.ask, context.limit
    for exec_id, job_id in ask("orphan_executions", n=n):
        yield _of(EXECUTION.name, exec_id, "execution", f"there is no job {job_id}", job_id=job_id)
    for job_id, name in ask("orphan_checkpoints", n=n):
        evidence = {"kind": "checkpoint", "job_id": job_id, "name": name}
        yield Finding(f"CHECKPOINT {job_id}/{name}", f"there is no job {job_id}", evidence=evidence)
    for job_id, replaced in ask("orphan_replacements", n=n):
        detail = f"it replaces job {replaced}, which is not there"
        yield _of(JOB.name, job_id, "replaces", detail, job_id=job_id, replaces=replaced)
    yield from _orphan_rows(context)


def _orphan_rows(context: RuleContext) -> Iterator[Finding]:
    """Yield records of which only the journal tells, unless their rows are archived already."""
    until = context.evidence.archived_until
    after = looked_at = 0
    lost: dict[tuple[str, int], list[int]] = defaultdict(list)
    while len(lost) < context.limit:
        [[n, last]] = context.evidence.ask("journal_page", after=after, n=ROWS_A_PAGE)
        if not n:
            break
        for machine, subject, seq, epoch, xid in context.evidence.ask("orphan_rows", after=after, until=last):
            if until is None or (epoch, xid, seq) > until:
                lost[machine, subject].append(seq)
        after, looked_at = last, looked_at + n
    context.evidence.rows_surveyed = looked_at
    for (machine, subject), seqs in lost.items():
        known = machine in MACHINES
        what = "and there is no such record" if known else "and there is no such machine"
        yield Finding(
            f"{machine} {subject}",
            f"the journal tells of it in {len(seqs)} rows, {what}",
            machine if known else None,
            subject if known else None,
            {"kind": "journal", "rows": len(seqs), "seqs": seqs[:NAMED_MAX]},
        )


def governance(context: RuleContext) -> Iterator[Finding]:
    """Yield steps, values and evidence of what is not there, and evidence that is not what was kept."""
    ask, after = context.evidence.ask, 0
    for kind, subject, what, missing in ask("orphans_of_governance", n=context.limit):
        machine, number = (kind, subject) if kind in MACHINES else (None, None)
        evidence = {"kind": what, what: missing}
        yield Finding(f"{kind} {subject}", f"there is no {what} {missing}", machine, number, evidence)
    while kept := ask("evidence_to_check", after=after, n=context.batch):
        for after, content, digest in kept:
            if sha256(content) != digest:
                detail = "it is not what was kept: its digest is another"
                yield Finding(f"EVIDENCE {after}", detail, evidence={"kind": "digest", "digest": digest})


def approvals(context: RuleContext) -> Iterator[Finding]:
    """Yield grants that were used by nobody, and active ones that nobody, or nobody else, has approved."""
    by_another = context.evidence.meta().get("environment", DEV) != DEV
    for grant_id, state, requester, approver in context.evidence.ask(
        "grants_to_doubt", by_another=by_another, n=context.limit
    ):
        if state == GrantState.CONSUMED:
            yield _of(GRANT.name, grant_id, "consumed_by", "it was used, and does not say by whom")
        elif approver is None:
            yield _of(GRANT.name, grant_id, "approved_by", "it is active, and nobody has approved it")
        else:
            detail = f"it is active, and {requester} has approved it, who asked for it"
            yield _of(GRANT.name, grant_id, "approved_by", detail, requested_by=requester)


def maintenance(context: RuleContext) -> Iterator[Finding]:
    """Yield acts of maintenance of which the journal does not tell from the opening of the door to its shutting."""
    for subject, n, first, last, shut in context.evidence.ask("broken_maintenance", n=context.limit):
        detail = f"the journal has {n} rows of it, from version {first} to {last}, and shuts the door {shut} times"
        yield Finding(f"MAINTENANCE {subject}", detail, evidence={"kind": "maintenance", "rows": n})


# ---------------------------------------------------------------------------------------------------------------------
# Seals


def seals(context: RuleContext) -> Iterator[Finding]:
    """Yield where the chain of seals does not hold, from the first seal to the last, and what its hints hide."""
    before: Seal | None = None
    after, horizons, sound = SEQ_MIN, _horizons(context), True
    while found := context.evidence.seals(after, context.batch):
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
    """Yield whether the last seal follows the one before it, and is the one that the ledger noted."""
    last = context.evidence.last_seal()
    if last:
        *before, last = context.evidence.seals(last.seal_id - 2, 2)
        yield from _link(context, before[0] if before and last.seal_id > 1 else None, last, _horizons(context))
    yield from _end(context, last)


def _link(context: RuleContext, before: Seal | None, seal: Seal, horizons: Horizons | None) -> Iterator[Finding]:
    if seal.seal_id < 1:
        yield _of_seal(seal, "id", "it was inserted: the first seal is number 1")
        return
    if seal.seal_id != (before.seal_id + 1 if before else 1):
        yield _of_seal(seal, "id", f"it follows seal {before.seal_id if before else 0}: those between are gone")
    elif seal.previous != (before.hash if before else genesis(context.evidence.meta().get("ledger_id", ""))):
        yield _of_seal(seal, "previous", "it does not name the hash of the one before it")
    if before and seal.end <= before.end:
        yield _of_seal(seal, "end", "it ends before the one before it")
    if seal.hash != seal_hash(seal):
        yield _of_seal(seal, "hash", "its hash is not the hash of what it says")
    elif horizons:
        for number, why in horizons.flaws(seal):
            yield Finding(f"SEAL {number}", why, evidence={"kind": "horizon", "seal_id": number})


def _horizons(context: RuleContext) -> Horizons | None:
    """Return a judge of horizons; none where the ledger's epoch is gone, which is told elsewhere."""
    try:
        return Horizons(context.evidence.sealed, context.evidence.meta(), one_writer=context.evidence.one_writer)
    except StoreDamagedError:
        return None


def _hints(context: RuleContext, last: Seal | None) -> Iterator[Finding]:
    """Yield where the number up to which all rows are said to be sealed is none, or hides rows from the sealer."""
    reading, meta = context.evidence.sealed, context.evidence.meta()
    if flaw := floor_flaw(reading, meta):
        yield Finding("LEDGER", flaw, evidence={"kind": "floor"})
    if found := hidden_row(reading, meta, last):
        seq, floor = found
        detail = f"row {seq} is not sealed, and no sealer will look at it: seals say that all rows up to {floor} are"
        yield Finding("LEDGER", detail, evidence={"kind": "floor", "seq": seq, "floor": floor})


def _end(context: RuleContext, last: Seal | None) -> Iterator[Finding]:
    try:
        require_sound_end(context.evidence.meta(), last)
    except SealsBrokenError as broken:
        if last is None or seal_hash(last) == last.hash:  # else it has been said
            yield Finding("LEDGER", broken.message, evidence={"kind": "head"})


def _of_seal(seal: Seal, kind: str, detail: str) -> Finding:
    return Finding(f"SEAL {seal.seal_id}", detail, evidence={"kind": kind, "seal_id": seal.seal_id})


# ---------------------------------------------------------------------------------------------------------------------
# What enforces, and the database


def enforcement(context: RuleContext) -> Iterator[Finding]:
    """Yield triggers, functions, indexes and machines that are not those of this version, and a door left open."""
    try:
        found = context.evidence.drift()
    except StoreDamagedError as error:  # no epoch: nothing can be compared
        yield Finding("LEDGER", error.message, evidence={"kind": "epoch"})
        return
    for name in found:
        if name == DOOR_OPEN:
            yield Finding("DOOR", "the maintenance door stands open", evidence={"kind": "door"})
        elif name.startswith("machine "):
            machine = name.removeprefix("machine ")
            detail = "the ledger was made by another table of transitions"
            yield Finding(f"MACHINE {machine}", detail, evidence={"kind": "machine", "name": machine})
        elif name.startswith("rule "):
            rule = name.removeprefix("rule ")
            yield Finding(f"RULE {rule}", f"it {_FOREIGN}", evidence={"kind": "rule", "name": rule})
        else:
            kind = (
                "index"
                if name in unique_indexes(context.evidence.dialect) or _PARTITION_INDEX.fullmatch(name)
                else "trigger"
            )
            ours = name.startswith("holdfast_")
            detail = "it is missing, or not as this version writes it" if ours else f"it {_FOREIGN}"
            yield Finding(f"{kind.upper()} {name}", detail, evidence={"kind": kind, "name": name})


def sequences(context: RuleContext) -> Iterator[Finding]:
    """Yield tables whose next number was given out before: a lease could have the token of another."""
    for table, last, greatest in context.evidence.behind():
        detail = f"it goes on after {last}, and {greatest} was given out before"
        yield Finding(f"SEQUENCE {table}", detail, evidence={"kind": "sequence", "name": table, "greatest": greatest})


def settings(context: RuleContext) -> Iterator[Finding]:
    """Yield settings and defaults of operations that are missing, or are none that were ever written."""
    found = context.evidence.meta()
    for name, fits in REQUIRED.items():
        if name not in found:
            yield Finding(f"SETTING {name}", "it is missing", evidence={"kind": "setting", "name": name})
        elif not fits(found[name]):
            detail = f"it is {found[name][:40]!r}, which it can never have been"
            yield Finding(f"SETTING {name}", detail, evidence={"kind": "setting", "name": name})
    for operation, _, defaults in context.evidence.ask("operations_to_check"):
        try:
            declared_from(operation, defaults)
        except StoreDamagedError as error:
            yield Finding(f"OPERATION {operation}", error.message, evidence={"kind": "operation", "name": operation})


def database(context: RuleContext) -> Iterator[Finding]:
    """Yield what the database itself finds wrong."""
    for subject, detail in context.evidence.faults():
        machine, _, number = subject.partition(" ")
        known = machine in MACHINES and number.isdecimal()
        yield Finding(subject, detail, machine if known else None, int(number) if known else None, {"kind": "database"})
