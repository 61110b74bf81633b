"""One snapshot of the ledger for all viewers, and the stream that tells browsers about it.

Invariants: however many viewers there are, the ledger is read once in SNAPSHOT_S, and only while there are any; what
takes long, the groups of many failures, is done by a thread beside the requests; the last snapshot stays while the
database is away, with its time; a stream ends after STREAM_S, so that its reader is known anew, and within PING_S of
the end of its reader's session.
"""

from __future__ import annotations

import asyncio
import logging
import threading
import time
from collections.abc import AsyncIterator, Callable
from contextlib import suppress
from datetime import datetime

from litestar.response.sse import ServerSentEventMessage

from holdfast.console.context import Console
from holdfast.console.security.callers import Caller
from holdfast.console.templating import rendered
from holdfast.console.views.failures import SHARED_S, FailedGroups, failure_groups, few_groups, no_groups
from holdfast.console.views.overview import Overview, ledger_of, overview
from holdfast.core.errors import GovernanceError, HoldfastError, StoreError
from holdfast.store.verbs.watch import UNFOLDED_MAX

logger = logging.getLogger("holdfast")

SNAPSHOT_S = 2.0
PING_S = 15.0
STREAM_S = 600.0
STREAMS_MAX = 1000
REST = 20  # a thread that groups failures rests so many times as long as it took
GIVES_WAY = 4  # between two slices, too: a request waits for the interpreter whenever its read of the ledger returns


class Snapshot:
    """An overview, and its parts as HTML, rendered once for each base path."""

    def __init__(self, view: Overview, *, stale: bool, now: datetime) -> None:
        self.view, self.stale, self.now = view, stale, now
        self._parts: dict[tuple[str, str], str] = {}

    def part(self, template: str, base: str) -> str:
        key = template, base
        if key not in self._parts:
            self._parts[key] = rendered(
                template, view=self.view, frame=self.view, base=base, now=self.now, at=self.view.at, stale=self.stale,
                here=None,
            )  # fmt: skip
        return self._parts[key]


class Live:
    """The shared snapshot of one console."""

    def __init__(self, console: Console) -> None:
        self._console = console
        self._lock = threading.Lock()
        self._made: Overview | None = None
        self._made_at = 0.0
        self._groups: FailedGroups | None = None
        self._grouped_at = 0.0
        self.beside: set[str] = set()  # what threads do now
        self._streams = 0
        self._shared: asyncio.Task[Snapshot] | None = None
        self._shared_at = 0.0
        self._loop: asyncio.AbstractEventLoop | None = None

    @property
    def last(self) -> Overview | None:
        """The last overview, however old; the ledger is not read."""
        return self._made

    def begin(self) -> None:
        """Read the ledger before the first request does: a thread begins to group many failures.

        Deltas are folded first if they are many, as an earlier version left them where no worker ran.
        """
        store = self._console.store
        with store.reading() as reading:
            [[unfolded, _]] = reading.run("newest_deltas", n=UNFOLDED_MAX)
        if unfolded == UNFOLDED_MAX and not self._console.settings.read_only:
            with suppress(StoreError), store.transaction() as transaction:  # the role may not
                transaction.counts.fold()
        self.overview()

    def groups(self) -> FailedGroups:
        """Return the failures in groups, at most SHARED_S old if they are few.

        Many are grouped by a thread: until it has ended, return the groups that were made last, or none.
        """
        with self._lock:
            return self._fresh_groups()

    def overview(self) -> Overview:
        """Return the overview, at most SNAPSHOT_S old. Raise StoreError if the database is away and there is none."""
        with self._lock:
            if self._made is None or time.monotonic() - self._made_at >= SNAPSHOT_S:
                groups, store = self._fresh_groups(), self._console.store
                with store.reading() as reading:
                    now = store.now()
                    ledger = ledger_of(reading, self._console.name)
                    self._made = overview(reading, groups, ledger, now)
                self._made_at = time.monotonic()
            return self._made

    def expire(self) -> None:
        """Read the ledger anew for the next page: a person who has acted sees what they did."""
        with self._lock:
            self._made_at = self._grouped_at = float("-inf")

    def _fresh_groups(self) -> FailedGroups:
        if self._groups is None or time.monotonic() - self._grouped_at >= SHARED_S:
            store, few = self._console.store, None
            if "group" not in self.beside:
                with store.reading() as reading:
                    few = few_groups(reading, store.now())
            if few is not None:
                self._groups, self._grouped_at = few, time.monotonic()
            else:
                self._beside("group", self._group)
        return self._groups or no_groups(self._console.store.now())

    # -- beside the requests ------------------------------------------------------------------------------------------

    def _beside(self, name: str, act: Callable[[], None]) -> None:
        """Do something in a thread of its own, unless it is being done already."""
        if name in self.beside:
            return
        self.beside.add(name)

        def run() -> None:
            try:
                act()
            except HoldfastError as error:
                logger.debug("the console could not %s: %s", name, error)
            finally:
                self.beside.discard(name)

        threading.Thread(target=run, name=f"console-{name}", daemon=True).start()

    def _group(self) -> None:
        store, worked = self._console.store, 0.0

        def rest(seconds: float) -> None:
            nonlocal worked
            worked += seconds
            time.sleep(seconds * GIVES_WAY)

        with store.reading() as reading:
            made = failure_groups(reading, store.now(), rest=rest)
        # What takes long is done less often, so that it takes no more than a small share of the process.
        self._groups, self._grouped_at = made, time.monotonic() + max(0.0, worked * REST - SHARED_S)

    def snapshot(self) -> Snapshot:
        """Return a snapshot; if the database is away, the last one, marked as stale."""
        try:
            view = self.overview()
            return Snapshot(view, stale=False, now=view.at)
        except HoldfastError:
            if self._made is None:
                raise
            return Snapshot(self._made, stale=True, now=self._console.store.now())

    # -- streams ------------------------------------------------------------------------------------------------------

    async def stream(self, page: str, base: str, caller: Caller) -> AsyncIterator[ServerSentEventMessage]:
        """Yield what changes on a page, every SNAPSHOT_S; raise GovernanceError if there are too many streams."""
        if self._streams >= STREAMS_MAX:
            raise GovernanceError(
                f"{STREAMS_MAX} pages are live already.", code="streams_exhausted", next_step="Reload the page later."
            )
        return self._events(page, base, caller)

    async def _events(self, page: str, base: str, caller: Caller) -> AsyncIterator[ServerSentEventMessage]:
        ends, pinged = time.monotonic() + STREAM_S, time.monotonic()
        self._streams += 1  # here: a stream whose reader is gone before it begins is never counted
        try:
            while time.monotonic() < ends:
                await asyncio.sleep(SNAPSHOT_S)
                try:
                    snapshot = await self._next()
                except HoldfastError:
                    snapshot = None
                if snapshot is not None:
                    yield ServerSentEventMessage(event="clock", data=snapshot.part("clock.html", base))
                    if not snapshot.stale:
                        yield ServerSentEventMessage(event="nav", data=snapshot.part("nav.html", base))
                        if page == "overview":
                            yield ServerSentEventMessage(
                                event="overview", data=snapshot.part("overview_live.html", base)
                            )
                        else:
                            yield ServerSentEventMessage(event="tick", data=str(snapshot.view.at))
                if time.monotonic() - pinged >= PING_S:
                    pinged = time.monotonic()
                    if not await asyncio.to_thread(self._console.still_known, caller):
                        return
                    yield ServerSentEventMessage(comment="ping")
        finally:
            self._streams -= 1

    async def _next(self) -> Snapshot:
        """Return the snapshot that all streams of this moment share."""
        loop = asyncio.get_running_loop()
        old = self._shared is None or self._loop is not loop or time.monotonic() - self._shared_at >= SNAPSHOT_S / 2
        if old:
            self._loop, self._shared_at = loop, time.monotonic()
            self._shared = loop.create_task(asyncio.to_thread(self.snapshot))
        if self._shared is None:
            raise asyncio.CancelledError
        return await asyncio.shield(self._shared)
