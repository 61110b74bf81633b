"""Verbs of slots: the claim of a ledger that has limits, the slots that it takes, and the jobs that get them next.

A ledger without limits runs none of this. The plain claim gives out nothing while a limit is set, and the look for the
next due job tells an idle worker of it, so that a process that has not heard of a limit cannot exceed it.

Invariants: one transaction at a time looks at slots and tokens; a slot belongs to a job that runs; what has no room is
parked, and costs no execution and no journal row; the transaction that ends a job gives its slots to the next ones.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from datetime import datetime, timedelta
from weakref import WeakKeyDictionary

import msgspec

from holdfast.core.limits import DEPTH, EVERY, RATE, Candidate, Limit, Room, Rules, buckets_of, counted, rule_of
from holdfast.core.records import Attempt, time_text
from holdfast.store.requests import Lease
from holdfast.store.statements import encoded
from holdfast.store.verbs.base import Verbs, WritingVerbs

SWEEP_S = 1.0  # how often a fleet looks for slots and parked jobs that a crash or a change has left
AHEAD = 100  # how many due jobs a claim looks at beyond what it wants: those that have no room are parked
ROUNDS = 20  # how often a claim looks again after it has parked jobs
BUCKETS_A_SWEEP = 1000
Look = Callable[[int], list[Candidate]]

# By store: the last bucket that a sweep looked at, and when this process last tried to sweep.
_swept: WeakKeyDictionary[object, tuple[str, datetime]] = WeakKeyDictionary()


class SlotReads(Verbs):
    """Reads limits and the slots that are held."""

    def rules(self) -> dict[str, Limit]:
        return _rules(self._run("limit_rules"))

    def next_due(self, due_at: datetime | None) -> datetime | None:
        """Return when to look for work, given when the next job that is not parked is due."""
        [[wake_at, waiting]] = self._run("next_wake")
        times = [due_at, None if wake_at is None else self._store.moment(wake_at)]
        if waiting:
            times.append(self._store.now() + timedelta(seconds=SWEEP_S))
        return min((at for at in times if at is not None), default=None)

    def held(self) -> list[tuple[str, int, int]]:
        """Return every slot that is held: (bucket, slot, job_id)."""
        return [(bucket, slot, job_id) for bucket, slot, job_id in self._run("all_slots")]

    def expected(self, rules: Rules) -> dict[int, set[str]]:
        """Return the buckets of slots that each running job belongs to, without jobs that have none."""
        found = [Candidate(*row) for row in self._run("running_jobs")]
        return {job.job_id: buckets for job in found if (buckets := _slotted(job, rules))}


class SlotWrites(SlotReads, WritingVerbs):
    """Claims within limits, and frees slots."""

    # -- the claim ----------------------------------------------------------------------------------------------------

    def claim(self, lease: Lease) -> list[Attempt]:
        """Lease up to n due jobs that are within their limits, and park those that are not."""
        now, queues = self._lock(), list(dict.fromkeys(lease.queues))
        seen: list[list[Candidate]] = []  # what was read with the limits, if no job is unparked meanwhile
        if self._store.fair or self._session.freed:
            rules = self.rules()
            self._admit(rules, now, self._session.freed)
        else:
            rules, found = self._look(queues, lease.n + AHEAD)
            seen.append(found)
        if self._wake(rules, now):
            seen.clear()
        claimed = self._claim(lease, rules, now, lambda n: seen.pop() if seen else self._due(queues, n))
        self._admit(rules, now, rules.keys() & {DEPTH + queue for queue in queues})  # fewer jobs wait now
        if len(claimed) < lease.n and self._must_sweep(now):
            self.sweep(rules, now)
        return claimed

    def _due(self, queues: list[str], n: int) -> list[Candidate]:
        """Return the first due jobs, in the fair order where that is used."""
        if not self._store.fair:
            return self._look(queues, n)[1]
        place = {job_id: index for index, job_id in enumerate(self._session.fair.shared(queues, n))}
        return sorted(self._these(place), key=lambda job: place[job.job_id])

    def _look(self, queues: list[str], n: int) -> tuple[dict[str, Limit], list[Candidate]]:
        """Return the limits, and the first due jobs by priority."""
        rows = self._run("limited_jobs", queues=encoded(queues), n=n, now=self._store.time_parameter())
        rules = _rules((name, value) for job_id, name, value, _ in rows if job_id is None)
        return rules, [Candidate(*row) for row in rows if row[0] is not None]

    def _these(self, job_ids: Iterable[int]) -> list[Candidate]:
        rows = self._run("limited_these", rows=encoded(sorted(set(job_ids))), now=self._store.time_parameter())
        return [Candidate(*row) for row in rows]

    def _must_sweep(self, now: datetime) -> bool:
        """Return whether it is this process that sweeps now: one of the fleet does, in each period."""
        after, last = _swept.get(self._store, ("", None))
        if last is not None and timedelta(0) <= now - last < timedelta(seconds=SWEEP_S):
            return False
        _swept[self._store] = after, now
        return self._session.workers.take_duty("limits", SWEEP_S)

    def claim_these(self, job_ids: Iterable[int], lease: Lease) -> list[Attempt]:
        """Lease those of the given jobs that are due and within their limits; park those that are over one.

        A ledger without limits leases none: the plain claim has looked already.
        """
        if not self.rules():
            return []
        now, rules = self._lock(), self.rules()  # another process may have changed them before it gave the lock back
        found = self._these(job_ids)
        self._admit(rules, now, self._session.freed)
        once = iter([found])  # what is parked is not looked at again
        return self._claim(msgspec.structs.replace(lease, n=len(found)), rules, now, lambda _: next(once, []))

    def _claim(self, lease: Lease, rules: Rules, now: datetime, look: Look) -> list[Attempt]:
        chosen: list[int] = []
        known = Room(rules, now)
        looked_at: set[str] = set()
        for _ in range(ROUNDS):
            wanted = lease.n - len(chosen)
            candidates = [job for job in look(wanted + AHEAD + len(chosen)) if job.job_id not in set(chosen)]
            self._learn(known, looked_at, {name for job in candidates for name, _ in counted(buckets_of(job, rules))})
            made = known.assign(candidates, wanted)
            chosen += made.chosen
            self._take(made.taken)
            if made.parked:
                self._run("park_jobs", rows=encoded(sorted(made.parked.items())), parked="limit")
            self._keep_tokens(known, rules, {*made.tokens, *made.parked.values()})
            # A parked job leaves room in its other buckets: jobs that wait for that room are unparked.
            admitted = self._admit(rules, now, {name for name in made.passed if not name.startswith(RATE)})
            if len(chosen) >= lease.n or not (made.parked or admitted):
                break
        if not chosen:
            return []
        place = {job_id: index for index, job_id in enumerate(chosen)}
        leased = self._session.executions.claim_these(chosen, lease, limited=True)
        return sorted(leased, key=lambda attempt: place[attempt.job_id])

    def _learn(self, known: Room, looked_at: set[str], buckets: set[str]) -> None:
        """Read what the ledger has of buckets that this claim has not seen yet."""
        new = sorted(buckets - looked_at)
        looked_at.update(new)
        if any(name.startswith(DEPTH) for name in new):
            from holdfast.store.verbs.depth import jobs_waiting  # noqa: PLC0415 - few queues park what is submitted

            known.waiting |= jobs_waiting(self._session, new, known.rules)
        slots, tokens = [b for b in new if not b.startswith(RATE)], [b for b in new if b.startswith(RATE)]
        used = self._run("used_slots", rows=encoded(slots)) if slots else []
        found = self._run("read_buckets", rows=encoded(tokens)) if tokens else []
        known.know(
            [(bucket, slot) for bucket, slot in used],
            [(bucket, float(n), self._store.moment(at)) for bucket, n, at in found],
        )

    def _take(self, taken: Sequence[tuple[str, int, int]]) -> None:
        if taken:
            self._run("take_slots", rows=encoded(taken))

    def _keep_tokens(self, known: Room, rules: Rules, buckets: Iterable[str]) -> None:
        """Write buckets of tokens, and when to wake for the jobs that wait for them."""
        names = sorted(name for name in buckets if name.startswith(RATE))
        waiting = {name for (name,) in self._run("still_waiting", rows=encoded(names))} if names else set()
        rows = []
        for name in names:
            rule = rule_of(name, rules)
            if rule is not None and rule.starts is not None:
                left = known.tokens_of(name, rule)
                wake_at = time_text(left.wake_at(known.now, rule)) if name in waiting else None
                rows.append([name, left.tokens, time_text(left.at), wake_at])
        if rows:
            self._run("write_buckets", rows=encoded(rows))

    # -- the end of a job ---------------------------------------------------------------------------------------------

    def ended(self, job_ids: Iterable[int]) -> None:
        """Free the slots of those of these jobs that no longer run; the jobs that wait for them get them at commit."""
        if self._store.limited is None:
            self._store.limited = bool(self.rules())
        if self._store.limited:
            rows = self._run("free_slots", rows=encoded(sorted(job_ids)))
            self._session.freed.update(bucket for (bucket,) in rows)

    def admit(self) -> None:
        """Unpark jobs for the slots that this transaction has freed."""
        now = self._lock()
        self._admit(self.rules(), now, self._session.freed)

    def _admit(self, rules: Rules, now: datetime, freed: set[str]) -> bool:
        """Unpark as many jobs as there is room for in these buckets; return whether there were any."""
        if not freed:
            return False
        known = Room(rules, now)
        self._learn(known, set(), freed)
        buckets = sorted(freed)
        freed.clear()
        return self._let_go(known, rules, buckets)

    def _let_go(self, known: Room, rules: Rules, buckets: Sequence[str]) -> bool:
        rows = []
        for bucket in buckets:
            rule = rule_of(bucket, rules)
            n = EVERY if rule is None else known.left(bucket, rule)
            if n:
                rows.append((bucket, n))
        found = self._run("admit_parked", rows=encoded(rows), most=max(n for _, n in rows)) if rows else []
        self._session.queues_to_announce.update(queue for _, queue in found)
        self._keep_tokens(known, rules, buckets)
        return bool(found)

    def _wake(self, rules: Rules, now: datetime) -> bool:
        """Unpark jobs whose buckets have tokens again; return whether there were any."""
        if not any(rule.starts for rule in rules.values()):
            return False
        found = self._run("woken_buckets", at=self._store.stored(now), n=BUCKETS_A_SWEEP)
        known = Room(rules, now)
        known.know((), [(bucket, float(n), self._store.moment(at)) for bucket, n, at in found])
        return bool(found) and self._let_go(known, rules, [bucket for bucket, _, _ in found])

    # -- repair -------------------------------------------------------------------------------------------------------

    def sweep(self, rules: Rules | None = None, now: datetime | None = None, *, whole: bool = False) -> None:
        """Free slots of jobs that do not run, give slots to jobs that run without one, and unpark jobs for free slots.

        It repairs what a crash or a change of a limit has left. It looks at some of the buckets that jobs wait for, and
        at others the next time; `whole` looks at all.
        """
        now = self._lock() if now is None else now
        rules = self.rules() if rules is None else rules
        self._run("free_leaked_slots")
        self._give_missing(rules, now)
        after = "" if whole else _swept.get(self._store, ("", now))[0]
        while True:
            buckets = [name for (name,) in self._run("waiting_buckets", after=after, n=BUCKETS_A_SWEEP)]
            known = Room(rules, now)
            self._learn(known, set(), set(buckets))
            self._let_go(known, rules, buckets)
            after = buckets[-1] if len(buckets) == BUCKETS_A_SWEEP else ""
            if not whole or not after:
                break
        _swept[self._store] = after, now

    def _give_missing(self, rules: Rules, now: datetime) -> None:
        """Give slots to jobs that were claimed before their limit was set, beyond the limit if need be."""
        held: dict[int, set[str]] = {}
        slots = self.held()
        for bucket, _, job_id in slots:
            held.setdefault(job_id, set()).add(bucket)
        known = Room(rules, now)
        known.know([(bucket, slot) for bucket, slot, _ in slots], ())
        missing = [
            (bucket, known.free_slot(bucket), job_id)
            for job_id, buckets in sorted(self.expected(rules).items())
            for bucket in sorted(buckets - held.get(job_id, set()))
        ]
        self._take(missing)

    def _lock(self) -> datetime:
        """Wait until no other transaction looks at slots and tokens; return the time of the database."""
        [[now]] = self._run("lock_limits", now=self._store.time_parameter())
        return self._store.moment(now)


def _rules(rows: Iterable[Sequence[str]]) -> dict[str, Limit]:
    return {name: msgspec.json.decode(value, type=Limit) for name, value in rows}


def _slotted(job: Candidate, rules: Rules) -> set[str]:
    return {name for name, limit in buckets_of(job, rules) if limit.running is not None}
