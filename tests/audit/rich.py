"""A ledger with a rich history: jobs in every state, and every way to get there.

Invariants: made by the store's own verbs on a clock that stands still between them, so that it is the same every time;
nothing in it is wrong; the jobs have the names that `Rich` gives them.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.audit.seals.sealer import seal
from holdfast.core.commands import Cancel, Commit, Complete, Fail, Finish, GiveBack, Quarantine, Replay
from holdfast.core.decide import Move
from holdfast.core.governed import GrantEvent, Release
from holdfast.core.records import Attempt, time_text
from holdfast.governance.approval import register_approver
from holdfast.store import Declared, Lease, Store, Submission, Transaction
from holdfast.testing import VirtualClock

WORKER = "worker-1"
OPERATOR = "operator-1"
LONG_S = 86_400.0  # longer than any test


class Rich(msgspec.Struct, frozen=True, kw_only=True):
    """Which job has which history."""

    waiting: int  # never claimed
    scheduled: int  # due much later
    retried: int  # failed once, pending again
    running: int
    leased: int  # not started yet
    committed: int  # committed, not finished
    done: int  # at the first attempt, with a checkpoint and a follow-up
    followup: int
    done_late: int  # after a failure, an expired lease and a graceful stop
    failed: int
    replayed: int  # failed, and pending again by a replay
    quarantined: int  # before any claim
    poisoned: int  # by its own failure
    cancelled: int
    released: int  # quarantined, and pending again under a grant
    replacing: int  # re-does `done`
    slimmed: int  # succeeded
    slimmed_quarantined: int
    released_grant: int
    draft_grant: int
    active_grant: int
    run: int  # of a procedure: running, under a grant that it has consumed
    step: int  # performed
    undone_step: int
    value: int  # in force
    superseded: int  # by `value`
    switch: int  # on
    lifted_switch: int
    evidence: int
    maintenance: int  # the act that slimmed


class Maker:
    """Makes the history, one verb at a time."""

    def __init__(self, store: Store[Any], clock: VirtualClock) -> None:
        self.store = store
        self.clock = clock

    def submit(self, key: str, **fields: Any) -> int:
        self.clock.advance(1)
        given = {"operation": "echo", "payload": f'{{"of":"{key}"}}', "client": "web", "key": key, **fields}
        with self.store.transaction() as transaction:
            [admission] = transaction.jobs.submit([Submission(**given)])
        return admission.job_id

    def claim(self, job_id: int, *, seconds: float = LONG_S, begin: bool = True) -> Attempt:
        self.clock.advance(1)
        with self.store.transaction() as transaction:
            [attempt] = transaction.executions.claim_these([job_id], Lease(owner=WORKER, seconds=seconds, begin=begin))
        return attempt

    def work(self, attempt: Attempt, command: object) -> None:
        self.clock.advance(1)
        with self.store.transaction() as transaction:
            [answer] = transaction.executions.move([(attempt, command)], actor=WORKER)
        assert isinstance(answer, Move), answer

    def fail(self, job_id: int, **how: Any) -> None:
        attempt = self.claim(job_id)
        self.work(attempt, Fail(attempt.execution.lease_token, "io_error", "the disk said no", **how))

    def complete(self, job_id: int, result: str = '{"bytes":312}') -> None:
        attempt = self.claim(job_id)
        self.work(attempt, Complete(attempt.execution.lease_token, result))

    def rule(self, job_id: int, command: object) -> None:
        self.clock.advance(1)
        with self.store.transaction() as transaction:
            [answer] = transaction.rulings.rule(
                [(transaction.jobs.get(job_id), command)], actor=OPERATOR, reason="as requested"
            )
        assert isinstance(answer, Move), answer

    def grant(self, action: str = "release", target: str = "job") -> int:
        with self.store.transaction() as transaction:
            return transaction.grants.request(
                action=action,
                target=target,
                scope=f"one {target}",
                actor=OPERATOR,
                reason="it was mended",
                expires_at=self.clock.after(LONG_S),
            )

    def approved(self, action: str, target: str) -> int:
        grant_id = self.grant(action, target)
        self.clock.advance(1)
        with self.store.transaction() as transaction:
            self._move_grant(transaction, grant_id, GrantEvent("approve", "approver-1"), f"approve-{grant_id}")
        return grant_id

    def consume(self, transaction: Transaction, grant_id: int, move_id: str) -> str:
        self._move_grant(transaction, grant_id, GrantEvent("consume", OPERATOR), move_id)
        return move_id

    @staticmethod
    def _move_grant(transaction: Transaction, grant_id: int, command: GrantEvent, move_id: str) -> None:
        grant = transaction.grants.get(grant_id)
        assert grant
        assert isinstance(transaction.grants.move(grant, command, move_id=move_id), Move)

    def release(self, job_id: int) -> int:
        grant_id = self.approved("release", "job")
        with self.store.transaction() as transaction:
            self.consume(transaction, grant_id, f"consume-{job_id}")
            release = Release(operator=OPERATOR, reason="it was mended", grant_id=grant_id)
            job = transaction.jobs.get(job_id)
            [answer] = transaction.rulings.rule(
                [(job, release)], actor=OPERATOR, reason="mended", move_id=f"consume-{job_id}", grant_id=grant_id
            )
        assert isinstance(answer, Move)
        return grant_id

    def govern(self) -> dict[str, int]:
        """Build a registry as far as its last step, replace one of its values, throw two switches and lift one."""
        build = self.approved("registry.build", "operations")
        with self.store.transaction() as transaction:
            self.consume(transaction, build, "consume-build")
            run_id = transaction.runs.begin(
                "build-1",
                "build",
                params="{}",
                plan="p",
                lease="registry:operations",
                grant_id=build,
                actor=OPERATOR,
                reason="new",
            )
            run = transaction.runs.get("build-1")
            assert run_id
            assert run
            assert isinstance(transaction.runs.move(run, "run", actor=OPERATOR), Move)
            undone = transaction.runs.perform_step(run_id, 0, "S2_SCHEMA", "{}", actor=OPERATOR)
        self.clock.advance(1)
        with self.store.transaction() as transaction:
            assert isinstance(
                transaction.runs.undo_step(transaction.runs.performed_steps(run_id)[0], actor=OPERATOR), Move
            )
            at = time_text(self.clock())
            transaction.execute(
                "INSERT INTO holdfast_collections (collection, schema, schema_digest, status, run_id, created_at,"
                f" updated_at) VALUES ('operations', '{{}}', '{'0' * 64}', 'in force', {run_id}, '{at}', '{at}')"
            )
            step = transaction.runs.perform_step(run_id, 0, "S2_SCHEMA", "{}", actor=OPERATOR)
            old, value = (self._value(transaction, code, run_id, build) for code in ("echo", "echo.two"))
            transaction.execute("UPDATE holdfast_values SET status = 'in force'")
            evidence = transaction.runs.add_evidence(
                "readback", "operations", '{"values":2}', actor=OPERATOR, run_id=run_id
            )
            assert evidence
        self._supersede(old)
        for name in ("replay", "registration"):
            with self.store.transaction() as transaction:
                assert transaction.switches.throw(name, actor=OPERATOR, reason="harm was seen")
        lift = self.approved("switch.lift", "registration")
        with self.store.transaction() as transaction:
            move_id = self.consume(transaction, lift, "lift-registration")
            on = transaction.switches.on()
            moved = transaction.switches.lift(
                on["registration"], grant_id=lift, actor=OPERATOR, reason="it is over", move_id=move_id
            )
            assert isinstance(moved, Move)
        register_approver(self.store, "approver-1", "0a" * 32, actor=OPERATOR, reason="a key")
        return {
            "run": run_id, "step": step, "undone_step": undone, "value": value, "superseded": old,
            "switch": on["replay"].switch_id, "lifted_switch": on["registration"].switch_id, "evidence": evidence,
            "active_grant": self.approved("registry.retire", "echo.two"),
        }  # fmt: skip

    def _value(self, transaction: Transaction, code: str, run_id: int, grant_id: int) -> int:
        row = {
            "vocab_id": f"vocab-{code}", "collection": "operations", "operation_code": code,
            "protocol_version": "1.0.0", "act_type": "operation", "semantics": "{}", "authority_ref": "charter",
            "digest": "0" * 64, "status": "staged", "state": "active", "version": 1,
            "run_id": run_id, "grant_id": grant_id,
            "event": "admit", "actor": OPERATOR, "reason": "new", "move_id": f"admit-{code}",
            "created_at": time_text(self.clock()), "updated_at": time_text(self.clock()),
        }  # fmt: skip
        values = ", ".join(repr(value) for value in row.values())
        insert = f"INSERT INTO holdfast_values ({', '.join(row)}) VALUES ({values}) RETURNING value_id"
        [[value_id]] = transaction.execute(insert)
        return int(value_id)

    def _supersede(self, value_id: int) -> None:
        grant = self.approved("registry.supersede", "echo")
        with self.store.transaction() as transaction:
            self.consume(transaction, grant, "supersede-echo")
            transaction.execute(
                "UPDATE holdfast_values SET state = 'superseded', version = version + 1, event = 'supersede',"
                f" move_id = 'supersede-echo', grant_id = {grant}, successor_code = 'echo.two',"
                f" successor_version = '1.0.0' WHERE value_id = {value_id}"
            )

    def slim(self, *job_ids: int) -> int:
        self.clock.advance(1)
        with (
            self.store.transaction() as transaction,
            transaction.maintenance.open(who="keeper", why="retention") as door,
        ):
            slimmed = transaction.retention.slim(job_ids, before=self.clock())
            transaction.maintenance.note(door, "slim", jobs=slimmed)
        assert slimmed == sorted(job_ids)
        return door


def make_rich(store: Store[Any], clock: VirtualClock) -> Rich:
    """Give a new ledger its history. It has two blocks sealed, counts folded, and some of both not."""
    with store.transaction() as transaction:
        transaction.operations.declare({"echo": Declared()})
    make = Maker(store, clock)
    slimmed, slimmed_quarantined = make.submit("slimmed"), make.submit("slimmed-quarantined")
    make.complete(slimmed)
    make.fail(slimmed_quarantined, permanent=True)
    maintenance = make.slim(slimmed, slimmed_quarantined)
    seal(store)
    done, followup = _done(make)
    done_late = _done_late(make)
    with store.transaction() as transaction:
        transaction.counts.fold()
    seal(store)
    failed, replayed = make.submit("failed", max_attempts=1), make.submit("replayed", max_attempts=1)
    make.fail(failed)
    make.fail(replayed)
    make.rule(replayed, Replay("incident"))
    retried = make.submit("retried")
    make.fail(retried, retry_at=clock.after(5))
    quarantined, cancelled, released = (make.submit(key) for key in ("quarantined", "cancelled", "released"))
    make.rule(quarantined, Quarantine("poison", "it cannot be read"))
    make.rule(cancelled, Cancel())
    make.rule(released, Quarantine("poison"))
    released_grant = make.release(released)
    poisoned = make.submit("poisoned")
    make.fail(poisoned, permanent=True)
    running, leased, committed = (make.submit(key) for key in ("running", "leased", "committed"))
    make.claim(running)
    make.claim(leased, begin=False)
    attempt = make.claim(committed)
    make.work(attempt, Commit(attempt.execution.lease_token, "null"))
    return Rich(
        waiting=make.submit("waiting"),
        scheduled=make.submit("scheduled", run_at=clock.after(LONG_S)),
        replacing=make.submit("replacing", replaces=done),
        draft_grant=make.grant(),
        **make.govern(),
        retried=retried, running=running, leased=leased, committed=committed, done=done, followup=followup,
        done_late=done_late, failed=failed, replayed=replayed, quarantined=quarantined, poisoned=poisoned,
        cancelled=cancelled, released=released, slimmed=slimmed, slimmed_quarantined=slimmed_quarantined,
        released_grant=released_grant, maintenance=maintenance,
    )  # fmt: skip


def _done(make: Maker) -> tuple[int, int]:
    """Return a job that succeeded, and the follow-up that it submitted when it committed."""
    done = make.submit("done")
    attempt = make.claim(done)
    make.clock.advance(1)
    with make.store.transaction() as transaction:
        assert transaction.notes.save_checkpoints(attempt, {"page": "1"})
        [answer] = transaction.executions.move(
            [(attempt, Complete(attempt.execution.lease_token, "[1]"))], actor=WORKER
        )
        assert isinstance(answer, Move)
        staged = Submission(operation="noop", payload="{}", client="holdfast", key=f"{done}/1", by_engine=True)
        [admission] = transaction.jobs.submit([staged])
    return done, admission.job_id


def _done_late(make: Maker) -> int:
    """Return a job that succeeded at its fourth attempt, in two steps."""
    job_id = make.submit("done-late")
    make.fail(job_id, retry_at=make.clock())
    make.claim(job_id, seconds=10)
    make.clock.advance(11)
    with make.store.transaction() as transaction:
        [(_, answer)] = transaction.recovery.recover(actor="reaper-1")
        assert isinstance(answer, Move)
    attempt = make.claim(job_id)
    make.work(attempt, GiveBack(attempt.execution.lease_token, make.clock(), "worker_stopped"))
    attempt = make.claim(job_id)
    token = attempt.execution.lease_token
    make.work(attempt, Commit(token, '"late"'))
    with make.store.transaction() as transaction:
        now = transaction.lists.attempt(attempt.execution.exec_id)
    assert now
    make.work(now, Finish(token))
    return job_id
