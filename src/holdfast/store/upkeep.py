"""The verbs that keep the ledger itself: operations, queues, workers, counts, settings, grants and the door.

Invariants: a grant moves as `core.decide` says, matching id, state and version; the maintenance door is open only
inside its block.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any
from uuid import uuid4

import msgspec

from holdfast.core.digest import Json, canonical
from holdfast.core.machines import JOB
from holdfast.core.records import Seal, time_text
from holdfast.store.enforcement import Guarded
from holdfast.store.governance import GovernanceWriting
from holdfast.store.reading import Reading
from holdfast.store.registry import RegistryWriting
from holdfast.store.replaying import ReplayWriting
from holdfast.store.requests import Declared
from holdfast.store.retention import RetentionWriting
from holdfast.store.statements import encoded
from holdfast.store.supersession import SupersessionWriting

if TYPE_CHECKING:
    from holdfast.store.store import Store


class Upkeep(
    Reading,
    RetentionWriting,
    GovernanceWriting,
    RegistryWriting,
    SupersessionWriting,
    ReplayWriting,
):
    """What a transaction can do to the ledger itself."""

    def __init__(self, store: Store[Any], connection: Any) -> None:
        super().__init__(store, connection)
        self.queues_to_announce: set[str] = set()
        self.learned: dict[str, Declared] = {}

    @property
    def is_open(self) -> bool:
        """Whether the transaction still stands: a statement may have ended it."""
        return self._store.is_open(self._connection)

    def pause_queue(self, queue: str, *, actor: str, reason: str) -> None:
        """Stop giving out work of a queue; what is running goes on."""
        self._run("pause_queue", queue=queue, actor=actor, reason=reason, now=self._store.time_parameter())

    def resume_queue(self, queue: str, *, actor: str, reason: str) -> bool:
        """Give out work of a queue again; return whether it was paused."""
        resumed = bool(self._run("resume_queue", queue=queue, actor=actor, reason=reason))
        self.queues_to_announce.add(queue)
        return resumed

    def worker_seen(self, worker_id: str, queues: Sequence[str], operations: Sequence[str], concurrency: int) -> None:
        """Note that a worker lives, and what it does."""
        self._run(
            "worker_seen",
            worker_id=worker_id,
            queues=encoded(list(queues)),
            operations=encoded(list(operations)),
            concurrency=concurrency,
            now=self._store.time_parameter(),
        )

    def worker_stopped(self, worker_id: str) -> None:
        """Note that a worker has stopped."""
        self._run("worker_stopped", worker_id=worker_id, now=self._store.time_parameter())

    def forget_workers(self, before: datetime) -> None:
        """Forget workers that were last seen before a time: every start of one leaves a row."""
        self._run("forget_workers", before=self._store.stored(before))

    def fold_counts(self) -> None:
        """Fold the deltas into the counts."""
        self._run("fold_counts")

    def set_meta(self, name: str, value: str) -> None:
        """Write one of the ledger's settings."""
        self._run("set_meta", name=name, value=value)

    @contextmanager
    def maintenance(self, *, who: str, why: str, grant_id: int | None = None) -> Iterator[int]:
        """Open the maintenance door for a block; what is written inside is journalled and marked."""
        [[door]] = self._run("open_door", who=who, why=why, grant_id=grant_id, now=self._store.time_parameter())
        yield int(door)
        self._run("shut_door", maintenance_id=door)

    def note(self, door: int, event: str, **what: Json) -> None:
        """Write into the journal what is done under an open door: what was there before, for one thing."""
        self._run("note_maintenance", maintenance_id=door, event=event, note=canonical(what))

    def mend(self, guarded: Guarded, subject: int, columns: Mapping[str, object]) -> None:
        """Set columns of one record as a repair found right; needs an open door. A change of state is journalled."""
        sets = ", ".join(f"{column} = :{column}" for column in columns)
        sql = f"UPDATE {guarded.table} SET {sets} WHERE {guarded.id} = :subject"
        self._store.named(self._connection, sql, {**columns, "subject": subject})

    def put_back(self, guarded: Guarded, columns: Mapping[str, object]) -> None:
        """Write a record that was lost, with its id; needs an open door, and its journal stays as it is."""
        sql = f"INSERT INTO {guarded.table} ({', '.join(columns)}) VALUES ({', '.join(f':{name}' for name in columns)})"
        self._store.named(self._connection, sql, columns)

    def tell_repair(self, door: int, row: Mapping[str, object]) -> None:
        """Journal what a repair settled without a change of state; needs an open door."""
        self._run("tell_repair", maintenance_id=door, **row)

    def forget_journal_rows(self, seqs: Sequence[int]) -> None:
        """Remove journal rows; needs an open door, and somebody who keeps what they said."""
        self._run("forget_journal_rows", rows=encoded(sorted(seqs)))

    def forget_checkpoints(self, job_ids: Sequence[int]) -> None:
        """Drop what attempts at these jobs have kept."""
        self._run("forget_checkpoints", rows=encoded(sorted(job_ids)))

    def recount(self) -> None:
        """Count jobs anew, and forget what was counted before."""
        self._run("recount")

    def lock_records(self) -> None:
        """Let nobody else write records until this transaction ends; where writers take turns anyway, do nothing."""
        self._run("lock_records")

    def slim(self, job_ids: Sequence[int], *, before: datetime, states: Iterable[str] = JOB.final) -> list[int]:
        """Drop payload, result and checkpoints of those jobs that ended before a time; return their ids.

        Needs an open maintenance door. Digest, key and history stay: the key is taken for life.
        """
        slimmed = sorted(
            job_id
            for (job_id,) in self._run(
                "slim_jobs",
                rows=encoded(sorted(job_ids)),
                states=encoded(sorted(states)),
                before=self._store.stored(before),
            )
        )
        self.forget_checkpoints(slimmed)
        return slimmed

    def add_seal(self, seal: Seal) -> Seal | None:
        """Write a seal after the one that it was made to follow, and return it as written; None if that has a follower.

        Its `horizon_seq` must have been read before: this transaction's own number, which is younger, goes with it.
        """
        self._run("lock_seals")
        last = self.last_seal()
        if (last.seal_id, last.hash) != (seal.seal_id - 1, seal.previous) if last else seal.seal_id != 1:
            return None
        values = {name: value for name, value in msgspec.structs.asdict(seal).items() if name != "horizon_xid"}
        [[horizon_xid]] = self._run("insert_seal", **values)
        self.set_meta("seal_head", seal.mark)
        return msgspec.structs.replace(seal, horizon_xid=horizon_xid)

    def take_duty(self, name: str, every_s: float) -> bool:
        """Tell whether it falls to the caller to do what a whole fleet does once in a period."""
        now = self._store.now()
        due = time_text(now - timedelta(seconds=every_s))
        return bool(self._run("take_duty", name=f"duty:{name}", now=time_text(now), due=due))

    def retry_duty(self, name: str, every_s: float, after_s: float) -> None:
        """Let a duty that was taken and failed be taken again after a time, not only after its whole period."""
        due = self._store.now() - timedelta(seconds=every_s - min(after_s, every_s))
        self.set_meta(f"duty:{name}", time_text(due))

    def _signature(self, actor: str | None, reason: str | None, move_id: str | None = None) -> dict[str, object]:
        return {
            "actor": actor,
            "reason": reason,
            "move_id": move_id or uuid4().hex,
            "now": self._store.time_parameter(),
        }
