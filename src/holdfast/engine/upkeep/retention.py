"""Retention: how long what is finished is kept, and what `holdfast gc` drops, archives and leaves.

Finished jobs are slimmed: payload, result and checkpoints go; the row, its key and its digest stay for life. History
is archived: sealed blocks leave the journal as files, first to last, once every record in them has ended for good.

Invariants: nothing is dropped until a policy says so; whatever leaves the journal is in a durable file that the ledger
names; each step is one short transaction under the maintenance door, noted in the journal, so that a gc that is killed
leaves a clean ledger; the blocks that have left are always the first ones, without a gap.
"""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import msgspec

from holdfast.audit.files.archive import ArchiveWriter, require_directory
from holdfast.audit.seals.sealer import seal_steps
from holdfast.core.digest import is_storable
from holdfast.core.errors import InputError, SealsBrokenError, StoreBusyError
from holdfast.core.machines import JobState
from holdfast.core.records import time_text
from holdfast.core.seals import Archive, Seal
from holdfast.core.steps import Steps, run_steps
from holdfast.engine.upkeep.archiving import ROWS_A_FILE, Archived, Block, BlocksToArchive, blocks_after
from holdfast.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.retention import Holder

logger = logging.getLogger("holdfast")

SETTING = "retention"
AGE_S_MAX = 100 * 366 * 86400
JOBS_A_BATCH = 1000
DROP_TRIES, DROP_PAUSE_S = 3, 0.1


class Retention(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """How long to keep things, in seconds since they last moved; None keeps them for ever."""

    finished_s: float | None = None  # payload and result of jobs that succeeded
    quarantined_s: float | None = None  # the same of jobs that were quarantined or cancelled
    history_s: float | None = None  # the journal, and attempts that ended without success
    archive_dir: str | None = None  # where history goes: one directory for the whole fleet

    def __post_init__(self) -> None:
        """Refuse ages out of range, and an age of history without an archive directory."""
        for name in ("finished_s", "quarantined_s", "history_s"):
            age = getattr(self, name)
            if age is not None and not (math.isfinite(age) and 0 <= age <= AGE_S_MAX):
                why = f"{name} must be between 0 and {AGE_S_MAX} seconds, not {age:g}"
                raise InputError(why, context={"setting": name})
        if self.archive_dir is not None and not _is_from_root(self.archive_dir):
            raise InputError(
                f"archive_dir must be an absolute path, not {self.archive_dir!r}",
                next_step="Give an absolute path: every worker of the ledger uses it.",
                context={"archive_dir": self.archive_dir},
            )
        if self.history_s is not None and self.archive_dir is None:
            raise InputError(
                "history_s is set, but archive_dir is not",
                next_step="Set archive_dir too: `holdfast gc --set history=90d --set archive_dir=/var/lib/holdfast`.",
            )

    @property
    def is_off(self) -> bool:
        """Whether everything is kept for ever."""
        return self.finished_s is None and self.quarantined_s is None and self.history_s is None

    def slims(self, now: datetime) -> dict[str, datetime]:
        """Return the states whose jobs are slimmed, and before which time they must have come to rest."""
        ages = {JobState.SUCCEEDED: self.finished_s, JobState.QUARANTINED: self.quarantined_s}
        return {state.value: now - timedelta(seconds=age) for state, age in ages.items() if age is not None}


class HeldBlock(msgspec.Struct, frozen=True):
    """The first block that could not leave, and the record that held it."""

    seal_id: int
    machine: str
    subject: int
    state: str


class GcReport(msgspec.Struct, frozen=True, kw_only=True):
    """What a gc has done; what it would do, if it was a dry run."""

    dry_run: bool
    finished: int = 0  # jobs that succeeded, slimmed
    quarantined: int = 0  # jobs in quarantine, slimmed
    archives: tuple[Archived, ...] = ()
    partitions: tuple[str, ...] = ()  # of the journal, dropped
    held: HeldBlock | None = None

    @property
    def blocks(self) -> int:
        """Return how many blocks have left the journal."""
        return sum(archive.last_seal - archive.first_seal + 1 for archive in self.archives)


# ---------------------------------------------------------------------------------------------------------------------
# The policy


def policy_of(store: Store[Any]) -> Retention:
    """Return the ledger's policy; nothing is dropped where none was set."""
    with store.reading() as reading:
        return _policy(reading.settings.read().get(SETTING, "{}"))


def policy_to_change(store: Store[Any]) -> Retention:
    """Return the policy that a change begins with: one that cannot be read is replaced by one that drops nothing."""
    try:
        return policy_of(store)
    except _UnreadableError:
        return Retention()


def set_policy(store: Store[Any], policy: Retention, *, who: str, why: str) -> None:
    """Write the ledger's policy, and into the journal who changed it, why, and what it was before."""
    with store.transaction() as transaction:
        text = transaction.settings.read().get(SETTING, "{}")
        try:
            before = _plain(_policy(text))
        except _UnreadableError:
            before = {"unreadable": text}
        if before == _plain(policy):
            return
        with transaction.maintenance.open(who=who, why=why) as door:
            transaction.maintenance.note(door, SETTING, before=before, after=_plain(policy))
            transaction.settings.set(SETTING, msgspec.json.encode(policy).decode())


class _UnreadableError(InputError):
    """This version cannot read the ledger's policy: nothing is dropped under it."""

    next_step = "Write it again with --set (`holdfast gc --help`): what you do not set is kept for ever."


def _policy(text: str) -> Retention:
    try:
        return msgspec.json.decode(text, type=Retention)
    except (msgspec.DecodeError, UnicodeError, InputError) as error:
        raise _UnreadableError(f"the ledger's retention policy cannot be read: {error}") from None


def _is_from_root(path: str) -> bool:
    return is_storable(path) and Path(path).is_absolute()


def _plain(policy: Retention) -> dict[str, float | str | None]:
    return msgspec.structs.asdict(policy)


# ---------------------------------------------------------------------------------------------------------------------
# gc


def gc(
    store: Store[Any],
    policy: Retention | None = None,
    now: datetime | None = None,
    *,
    who: str,
    why: str = "retention",
    dry_run: bool = False,
) -> GcReport:
    """Slim and archive what is past its age by a policy, the ledger's own if none is given; return what was done.

    It may run at any time, anywhere, and more than once at a time.
    """
    return run_steps(gc_steps(store, policy, now, who=who, why=why, dry_run=dry_run))


def gc_steps(
    store: Store[Any],
    policy: Retention | None = None,
    now: datetime | None = None,
    *,
    who: str,
    why: str = "retention",
    dry_run: bool = False,
) -> Steps[GcReport]:
    """Do what `gc` does in steps: a batch of jobs, a page of history, or one archive that leaves."""
    policy = policy_of(store) if policy is None else policy
    run = _GcRun(store, policy, now or store.now(), who=who, why=why, dry_run=dry_run)
    if not dry_run:
        extend_journal(store)
    if policy.is_off:
        return run.report()
    directory = Path(policy.archive_dir) if policy.archive_dir and policy.history_s is not None else None
    if directory and not dry_run:
        require_directory(directory)  # before anything is dropped
        yield from seal_steps(store)  # before anything is noted: a block is as young as its newest row
    yield from run.slim()
    if directory:
        yield from run.archive(directory, run.now - timedelta(seconds=policy.history_s or 0))
        yield from run.drop_partitions()
    return run.report()


def extend_journal(store: Store[Any]) -> str | None:
    """Add the journal's next partition if it is time to, where it has partitions; return its name."""
    with store.transaction() as transaction:
        return transaction.retention.extend_journal()


class _NothingToDoError(Exception):
    """Another process has done it first: the transaction is rolled back."""


class _GcRun:
    """One gc, step by step."""

    def __init__(
        self,
        store: Store[Any],
        policy: Retention,
        now: datetime,
        *,
        who: str,
        why: str,
        dry_run: bool,
    ) -> None:
        self._store = store
        self.now = now
        self._slims = policy.slims(now)
        self._who, self._why, self._dry_run = who, why, dry_run
        self._slimmed = dict.fromkeys(self._slims, 0)
        self._archives: list[Archived] = []
        self._partitions: list[str] = []
        self._held: HeldBlock | None = None

    def report(self) -> GcReport:
        return GcReport(
            dry_run=self._dry_run,
            finished=self._slimmed.get(JobState.SUCCEEDED, 0),
            quarantined=self._slimmed.get(JobState.QUARANTINED, 0),
            archives=tuple(self._archives),
            partitions=tuple(self._partitions),
            held=self._held,
        )

    # -- jobs ---------------------------------------------------------------------------------------------------------

    def slim(self) -> Steps[None]:
        """Slim the jobs that have rested long enough, batch by batch; which ones is found without a lock."""
        with self._store.reading() as reading:
            mark = reading.retention.slim_mark()
        for state, before in self._slims.items():
            with self._store.reading() as reading:
                found = reading.retention.slimmable_among(mark.left, before=before, states=[state]) if mark.left else []
            after = mark.below - 1
            while True:
                if not found:
                    with self._store.reading() as reading:
                        found = reading.retention.slimmable(
                            before=before, states=[state], after=after, limit=JOBS_A_BATCH
                        )
                if not found:
                    break
                self._slimmed[state] += len(found) if self._dry_run else self._slim_batch(found, state, before)
                after, found = max(after, found[-1]), []
                yield None

    def _slim_batch(self, job_ids: Sequence[int], state: str, before: datetime) -> int:
        try:
            with self._store.transaction() as transaction:
                transaction.retention.lock()
                with transaction.maintenance.open(who=self._who, why=self._why) as door:
                    slimmed = transaction.retention.slim(job_ids, before=before, states=[state])
                    if not slimmed:
                        raise _NothingToDoError
                    transaction.maintenance.note(door, "slim", jobs=len(slimmed), first=slimmed[0], last=slimmed[-1])
                    transaction.retention.move_slim_mark(slimmed)
        except _NothingToDoError:
            return 0
        return len(slimmed)

    # -- history ------------------------------------------------------------------------------------------------------

    def archive(self, directory: Path, before: datetime) -> Steps[None]:
        """Archive the first blocks that are old enough and at rest, a file at a time."""
        looked_at = 0
        while True:
            with self._store.reading() as reading:
                archived = max([looked_at, *(archive.last_seal for archive in reading.seals.archives())])
                blocks = self._leaving(reading, archived, before)
            if not blocks:
                return
            yield None
            leaving = BlocksToArchive(self._store, blocks)
            if self._dry_run:
                yield from leaving.read_into(None)
                self._archives.append(leaving.archived(None))
                looked_at = leaving.last_seal
                continue
            try:
                with leaving.writer(directory) as writer:
                    yield from leaving.read_into(writer)
                    self._leave(leaving, writer)
            except SealsBrokenError:
                if not self._has_left(archived):
                    raise
            yield None

    def _has_left(self, archived: int) -> bool:
        """Return whether another process has archived the next block meanwhile."""
        with self._store.reading() as reading:
            return any(archive.last_seal > archived for archive in reading.seals.archives())

    def _leaving(self, reading: Reading, archived: int, before: datetime) -> list[Block]:
        """Return the blocks of the next file; none if the next block is too young, or if something in it may move."""
        found: list[Block] = []
        telling = rows = 0
        for block in blocks_after(reading, archived):
            age = reading.retention.block_age(block.start, block.seal, before=before)
            rows += block.seal.rows
            if age.young or (found and rows > ROWS_A_FILE):
                break
            holder = reading.retention.block_holder(block.start, block.seal, self._slims if self._dry_run else {})
            if holder is not None:
                self._hold(block.seal, holder)
                break
            found.append(block)
            telling = len(found) if age.telling else telling
        # Notes about archives that were made are not worth another archive, which would be noted again.
        return found[:telling]

    def _hold(self, held: Seal, holder: Holder) -> None:
        self._held = HeldBlock(held.seal_id, holder.machine, holder.subject, holder.state)

    def _leave(self, leaving: BlocksToArchive, writer: ArchiveWriter) -> None:
        """Finish the file and let its rows go, in one transaction, unless another process has done so meanwhile.

        Then the file is dropped: it may lack what the other process has removed while this one read.
        """
        try:
            with self._store.transaction() as transaction:
                transaction.retention.lock()
                earlier = transaction.seals.archives()
                if max([0, *(archive.last_seal for archive in earlier)]) != leaving.first_seal - 1:
                    raise _NothingToDoError
                made = leaving.archived(writer.finish().sha256)
                with transaction.maintenance.open(who=self._who, why=self._why) as door:
                    what = msgspec.structs.asdict(made)
                    transaction.maintenance.note(door, "archive", archive=what.pop("file"), **what)
                    transaction.retention.add_archive(
                        Archive(
                            archive_id=len(earlier) + 1,
                            first_seal=made.first_seal,
                            last_seal=made.last_seal,
                            file=made.file,
                            sha256=made.sha256 or "",
                            rows=made.rows,
                            executions=made.executions,
                            created_at=time_text(self._store.now()),
                        )
                    )
                    transaction.retention.forget_attempts(leaving.attempts)
                    transaction.retention.begin_histories(leaving.versions)
                    transaction.retention.forget_archived_rows(leaving.seqs)
        except _NothingToDoError:
            return
        self._archives.append(made)

    def drop_partitions(self) -> Steps[None]:
        """Drop the journal's partitions that have only archived rows; where writers are in the way, another time."""
        while not self._dry_run:
            yield None
            with self._store.reading() as reading:
                archives = reading.seals.archives()
                last = reading.seals.page(after=archives[-1].last_seal - 1, limit=1) if archives else []
            name = self._store.upkeep.archived_partition(last[0]) if last else None
            if name is None or not self._dropped(name):
                return
            self._partitions.append(name)

    def _dropped(self, name: str) -> bool:
        for _ in range(DROP_TRIES):
            try:
                with self._store.transaction() as transaction:
                    transaction.retention.lock()
                    with transaction.maintenance.open(who=self._who, why=self._why) as door:
                        if not transaction.retention.drop_partition(name):
                            raise _NothingToDoError
                        transaction.maintenance.note(door, "drop_partition", partition=name)
            except _NothingToDoError:
                return False
            except StoreBusyError as busy:
                logger.info("partition %s is archived; it is dropped later: %s", name, busy)
                time.sleep(DROP_PAUSE_S)
            else:
                return True
        return False
