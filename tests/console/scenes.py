"""A ledger with realistic data: jobs in all states, failures of several kinds, grants, schedules, pauses and workers.

Run as a program it serves a console over such a ledger, for people who change a page and want to look at it:

    python -m tests.console.scenes FOLDER [PORT]
"""

from __future__ import annotations

import sys
from datetime import UTC, datetime, timedelta
from pathlib import Path
from random import Random

import msgspec

from holdfast import Execution, Ledger, Quarantine
from holdfast.audit.seals.sealer import seal
from holdfast.core.authority import Act, Wanted
from holdfast.core.machines import JobState
from holdfast.core.records import Job
from holdfast.core.selection import Selection, SelectionFilters, Window
from holdfast.engine.world import World
from holdfast.governance import grants
from holdfast.governance import quarantine as quarantining
from holdfast.governance.approval import Identity
from holdfast.governance.replay import replay
from holdfast.governance.switches import throw
from holdfast.scheduling.schedules import Schedule, Schedules
from holdfast.store import Lease, create_store
from holdfast.testing import VirtualClock, virtual_world

NOW = datetime(2026, 11, 16, 14, 32, 7, tzinfo=UTC)
MINUTES = 75
CARD = "tok_4242424242424242"
KNOWN = ("shop.charge", "nodd.ingest", "nodd.validate", "mail.send", "report.nightly")


class Scene(msgspec.Struct, frozen=True, kw_only=True):
    """What tests look at."""

    clock: VirtualClock
    succeeded: int
    failed: int
    held: int  # pending, its operation is switched off
    retried: int  # pending after two failures
    running: int
    quarantined: int
    cancelled: int
    grants: tuple[int, ...]
    replay: str | None


class _Handlers:
    """Operations whose handlers do what their payload says, and take as long on the clock."""

    def __init__(self, ledger: Ledger, clock: VirtualClock) -> None:
        self.clock = clock
        ledger.operation("shop.charge", queue="orders", max_attempts=5)(self.charge)
        ledger.operation("nodd.ingest", queue="goes-abi", max_attempts=1)(self.ingest)
        ledger.operation("nodd.validate", queue="nexrad-l2", max_attempts=1)(self.validate)
        ledger.operation("mail.send", queue="mail", max_attempts=3)(self.send)
        ledger.operation("report.nightly", queue="gfs", max_attempts=2)(self.report)

    def charge(
        self, _run: Execution, /, order: int, card_token: str = "", takes_s: float = 0.4, fails: str = ""
    ) -> dict[str, object]:
        self.clock.advance(takes_s)
        if fails:
            raise ConnectionError(fails)
        return {"charged": order, "receipt": f"R-{order}", "used": bool(card_token)}

    def ingest(self, _run: Execution, /, key: str, takes_s: float = 1.1, fails: str = "") -> dict[str, object]:
        self.clock.advance(takes_s)
        if fails:
            raise TimeoutError(fails)
        return {"key": key}

    def validate(self, _run: Execution, /, item: str, takes_s: float = 0.2, fails: str = "") -> str:
        self.clock.advance(takes_s)
        if fails == "poison":
            raise Quarantine("parse_error", "the header cannot be parsed")
        if fails:
            raise ValueError(fails)
        return item

    def send(self, _run: Execution, /, to: str, takes_s: float = 0.1) -> str:
        self.clock.advance(takes_s)
        return to

    def report(self, _run: Execution, /, takes_s: float = 3.0) -> None:
        self.clock.advance(takes_s)


class _Author:
    """Writes a scene, minute by minute."""

    def __init__(self, ledger: Ledger, clock: VirtualClock, environment: str, minutes: int) -> None:
        self.ledger, self.clock, self.environment, self.minutes = ledger, clock, environment, minutes
        self.numbers = Random(7)
        self.ids: dict[str, int] = {}
        self.grants: list[int] = []
        # What happens how many minutes before the end.
        self.events = {41: self.switch_off, 30: self.pause, 23: self.schedule, 16: self.strand, 12: self.request}

    def write(self, start: datetime) -> Scene:
        for minute in range(self.minutes - 1):
            self.submit(minute)
            self.events.get(self.minutes - minute, lambda: None)()
            if self.minutes - minute == 4:
                self.ids["retried"] = self.charge(99_213, takes_s=3.1, fails="POST /v1/charges answered 500")
            self.work()
            self.clock.advance_to(max(self.clock(), start + timedelta(minutes=minute + 1)))
            if minute % 20 == 19:
                seal(self.ledger.store)
        return self.end()

    def work(self) -> None:
        for queue in ("orders", "goes-abi", "nexrad-l2", "mail", "gfs"):
            self.ledger.run_until_idle(queues=[queue])

    def charge(self, order: int, **more: object) -> int:
        payload = {"order": order, "card_token": CARD, **more}
        return self.ledger.submit("shop.charge", payload, client="web", key=f"order-{order}/charge").job_id

    def submit(self, minute: int) -> None:
        numbers = self.numbers
        for n in range(numbers.randint(2, 4)):
            self.charge(88_000 + minute * 10 + n, takes_s=round(numbers.uniform(0.1, 0.9), 3))
        for n in range(numbers.randint(1, 4)):
            bad = minute > self.minutes * 0.55 and n < 2
            late = f"s3://noaa-goes19/ABI-L2/{minute:03d}/{n}.nc did not answer within {numbers.randint(20, 60)} s"
            takes_s = round(numbers.uniform(0.4, 3.8), 3)
            payload = {"key": f"{minute}-{n}", "fails": late if bad else "", "takes_s": takes_s}
            self.ledger.submit("nodd.ingest", payload, client="nodd")
        odd = f"header says {minute}, the key says {minute + 1}" if minute % 17 == 3 else ""
        poison = "poison" if minute % 23 == 9 else ""
        self.ledger.submit("nodd.validate", {"item": f"KTLX{minute}", "fails": odd or poison}, client="nodd")
        mail = {"to": f"user{minute}@example.org"}
        self.ids["held"] = self.ledger.submit("mail.send", mail, client="shop", key=f"mail-{minute}").job_id

    # -- what people did ----------------------------------------------------------------------------------------------

    def switch_off(self) -> None:
        throw(self.ledger.store, "operation:mail.send", actor="ann", reason="the mail relay answers 500 to all")

    def pause(self) -> None:
        self.ledger.pause("mrms", actor="bob", reason="the disk of ingest-2 is full")

    def schedule(self) -> None:
        schedules = Schedules(self.ledger)
        nightly = Schedule(when="0 2 * * *", operation="report.nightly", tz="America/New_York")
        schedules.add("nightly", nightly, actor="ann", reason="nightly report")
        sweep = Schedule(when="every 6h", operation="nodd.validate", payload={"item": "sweep"})
        schedules.add("sweep", sweep, actor="bob", reason="late objects")
        schedules.add("monthly", Schedule(when="0 0 1 * *", operation="report.nightly"), actor="ann", reason="invoices")
        schedules.pause("monthly", actor="ann", reason="until the new format")

    def strand(self) -> None:
        """Submit to a queue that has no worker any more."""
        for n in range(12):
            self.ledger.submit("nodd.ingest", {"key": f"hrrr-{n}"}, queue="hrrr", client="nodd", priority=n % 2)

    def request(self) -> None:
        store = self.ledger.store
        chosen = self.jobs(JobState.FAILED, "nodd.ingest")[0].job_id
        quarantining.add(store, chosen, "parse_error", operator="ann", reason="INC-2291: look at it by hand")
        self.ids["quarantined"] = chosen
        self.ids["cancelled"] = self.ledger.submit("mail.send", {"to": "old@example.org"}, client="shop").job_id
        self.ledger.cancel(self.ids["cancelled"], actor="eve", reason="sent by hand")
        for name, by in (("quarantined", "eve"), ("cancelled", "ann")):
            target = f"job:{self.ids[name]}"
            act = Wanted(act=Act.RELEASE, target=target, environment=self.environment, executor=by)
            reason = "INC-2291: S3 in us-east-1 is back"
            made = grants.request(store, act, requester=by, rollback_plan="cancel it again", reason=reason)
            self.grants.append(made.grant_id)
        if self.environment == "dev":
            grants.approve(store, self.grants[1], Identity(name="bob"))

    def replay(self) -> str:
        window = Window(self.clock() - timedelta(hours=2), None)
        filters = SelectionFilters(operations=("nodd.validate",), created_at=window)
        report = replay.run(
            self.ledger.store,
            Selection(name="scene", env=self.environment, filters=filters),
            actor="bob",
            reason="the parser is fixed",
            replay_reason="incident",
            world=World(clock=self.clock),
            sleep=lambda _: None,
        )
        return report.run_id

    # -- the present --------------------------------------------------------------------------------------------------

    def jobs(self, state: JobState, operation: str) -> list[Job]:
        with self.ledger.store.reading() as reading:
            return reading.lists.jobs(state=state, operation=operation, limit=50)

    def end(self) -> Scene:
        """Leave work that is due, running and not due; seal, and let the workers say hello."""
        ledger, clock = self.ledger, self.clock
        replayed = self.replay() if self.environment == "dev" else None
        ledger.submit("report.nightly", {}, run_at=clock() + timedelta(minutes=58))
        running = [ledger.submit("nodd.ingest", {"key": f"now-{n}"}, client="nodd").job_id for n in range(6)]
        clock.advance(11)
        lease = Lease(owner="ingest-2/41c0", seconds=30)
        claimed = ledger.perform(lambda tx: tx.executions.claim_these(running[:4], lease))
        self.ids["running"] = claimed[0].job_id
        self.ids["succeeded"] = self.jobs(JobState.SUCCEEDED, "shop.charge")[0].job_id
        self.ids["failed"] = self.jobs(JobState.FAILED, "nodd.ingest")[0].job_id
        clock.advance(7)
        seal(ledger.store)
        with ledger.store.transaction() as transaction:
            for duty in ("fold", "seal", "check"):
                transaction.workers.take_duty(duty, 0.0)
        clock.advance(3)
        hello(ledger)
        return Scene(clock=clock, grants=tuple(self.grants), replay=replayed, **self.ids)


def hello(ledger: Ledger) -> None:
    """Let the workers of the scene say that they run."""
    with ledger.store.transaction() as transaction:
        transaction.workers.seen("pay-1/77d0", ("orders", "mail"), KNOWN, 8)
        transaction.workers.seen("ingest-2/41c0", ("goes-abi", "nexrad-l2", "mrms", "gfs"), KNOWN, 4)
        transaction.workers.seen("ingest-3/9be2", ("goes-abi", "nexrad-l2"), KNOWN, 4)


def fill(url: str, *, environment: str = "dev", minutes: int = MINUTES, now: datetime = NOW) -> tuple[Ledger, Scene]:
    """Fill a new ledger, and return it, open and on its clock, with what tests look at."""
    start = now - timedelta(minutes=minutes)
    clock = VirtualClock(start)
    create_store(url, clock, environment=environment).close()
    ledger = Ledger(url, world=virtual_world(clock, seed=7))
    _Handlers(ledger, clock)
    hello(ledger)
    with ledger.store.transaction() as transaction:
        transaction.workers.seen("old-1/0001", ("hrrr",), KNOWN, 4)
        transaction.workers.stopped("old-1/0001")
    return ledger, _Author(ledger, clock, environment, minutes).write(start)


def main() -> None:
    """Serve a console over a new scene."""
    from holdfast.console.app import create_app
    from holdfast.console.server import listening, serve
    from holdfast.console.settings import PORT, ConsoleSettings, local_origins

    folder, *port = sys.argv[1:]
    number = int(port[0]) if port else PORT
    ledger, _ = fill(f"sqlite:///{Path(folder).resolve() / 'weather.db'}")
    settings = ConsoleSettings(origins=local_origins("127.0.0.1", number), open_to_all=True)
    print(f"http://127.0.0.1:{number}")
    serve(create_app(ledger, settings), [listening("127.0.0.1", number)])


if __name__ == "__main__":
    main()
