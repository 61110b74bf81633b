"""`Reading`, a consistent view of the ledger, and `Transaction`, which also writes; both have their verbs in groups.

Invariants: all reads of one Reading see the same snapshot, and it cannot write; a group of verbs is imported when it
is first used, so that a process loads only the modules that it needs.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, Never, TypeVar, overload

from holdfast.store.requests import Declared, Effect

if TYPE_CHECKING:
    from holdfast.store.store import Store
    from holdfast.store.verbs import typed
    from holdfast.store.watch import Watch

Reads_co = TypeVar("Reads_co", covariant=True)
Writes_co = TypeVar("Writes_co", covariant=True)


class Group(Generic[Reads_co, Writes_co]):
    """A group of verbs: `…Reads` for a Reading, `…Writes` for a Transaction, imported and created on first use."""

    def __init__(self, prefix: str, module: str | None = None) -> None:
        self._prefix = prefix  # of the names of its classes
        self._module = module  # None: it has the name of the group
        self._classes: tuple[Any, ...] = ()

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    @overload
    def __get__(self, session: Transaction, _owner: type | None = None) -> Writes_co: ...

    @overload
    def __get__(self, session: Reading, _owner: type | None = None) -> Reads_co: ...

    def __get__(self, session: Reading, _owner: type | None = None) -> Any:
        if not self._classes:
            found = vars(import_module(f"holdfast.store.verbs.{self._module or self._name}"))
            reads = found.get(f"{self._prefix}Reads")
            self._classes = reads, found.get(f"{self._prefix}Writes", reads)
        # The next access finds this, not the descriptor.
        verbs = session.__dict__[self._name] = self._classes[session.writes](session)
        return verbs


class Reading:
    """A consistent view of the ledger."""

    writes = False
    jobs: Group[typed.JobReads, typed.JobWrites] = Group("Job")
    executions: Group[typed.ExecutionReads, typed.ExecutionWrites] = Group("Execution")
    journal: Group[typed.JournalReads, typed.JournalReads] = Group("Journal")
    lists: Group[typed.ListReads, typed.ListReads] = Group("List")
    counts: Group[typed.CountReads, typed.CountWrites] = Group("Count")
    queues: Group[typed.QueueReads, typed.QueueWrites] = Group("Queue")
    operations: Group[typed.OperationReads, typed.OperationWrites] = Group("Operation")
    settings: Group[typed.SettingReads, typed.SettingWrites] = Group("Setting")
    grants: Group[typed.GrantReads, typed.GrantWrites] = Group("Grant")
    leases: Group[typed.LeaseReads, typed.LeaseWrites] = Group("Lease")
    runs: Group[typed.RunReads, typed.RunWrites] = Group("Run")
    switches: Group[typed.SwitchReads, typed.SwitchWrites] = Group("Switch")
    configuration: Group[typed.ConfigurationReads, typed.ConfigurationWrites] = Group("Configuration")
    notes: Group[typed.NoteReads, typed.NoteWrites] = Group("Note")
    limits: Group[typed.LimitReads, typed.LimitWrites] = Group("Limit")
    slots: Group[typed.SlotReads, typed.SlotWrites] = Group("Slot")
    schedules: Group[typed.ScheduleReads, typed.ScheduleWrites] = Group("Schedule")
    flow: Group[typed.FlowReads, typed.FlowWrites] = Group("Flow")
    registry: Group[typed.RegistryReads, typed.RegistryWrites] = Group("Registry")
    replay: Group[typed.ReplayReads, typed.ReplayWrites] = Group("Replay")
    quarantine: Group[typed.QuarantineReads, typed.QuarantineReads] = Group("Quarantine")
    retention: Group[typed.RetentionReads, typed.RetentionWrites] = Group("Retention")
    seals: Group[typed.SealReads, typed.SealWrites] = Group("Seal")
    maintenance: Group[typed.MaintenanceReads, typed.MaintenanceWrites] = Group("Maintenance")
    portable: Group[typed.PortableReads, typed.PortableWrites] = Group("Portable")

    def __init__(self, store: Store[Any], connection: Any) -> None:
        self.store = store
        self.connection = connection

    @property
    def dialect(self) -> str:
        """Return the kind of database: sqlite or postgres."""
        return self.store.dialect

    @property
    def governed(self) -> bool:
        """Whether a registry decides which operations this ledger accepts; this is fixed at its creation."""
        if self.store.governed is None:
            self.store.governed = self.settings.read().get("governed") == "yes"
        return self.store.governed

    def now(self) -> datetime:
        """Return the time by which leases and grants expire."""
        return self.store.now()

    def due_now(self) -> datetime:
        """Return a time at which a job is due at once."""
        return self.store.due_now()

    def run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        return self.store.run(self.connection, name, params)

    def query(self, sql: str, params: Mapping[str, object]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement of the caller with `:name` parameters; return the names of its columns, and its rows."""
        return self.store.named(self.connection, sql, params)

    def execute(self, sql: str, params: Mapping[str, object] | Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the caller, with the placeholders of the driver, in this transaction."""
        return self.store.execute(self.connection, sql, params)


class Transaction(Reading):
    """One transaction of the ledger."""

    writes = True
    alone = False  # its one statement commits itself
    turns: Group[Never, typed.TurnWrites] = Group("Turn")
    rulings: Group[Never, typed.RulingWrites] = Group("Ruling")
    recovery: Group[Never, typed.RecoveryWrites] = Group("Recovery")
    workers: Group[Never, typed.WorkerWrites] = Group("Worker")
    parking: Group[Never, typed.ParkingWrites] = Group("Parking")
    fair: Group[Never, typed.FairWrites] = Group("Fair")

    def __init__(self, store: Store[Any], connection: Any) -> None:
        super().__init__(store, connection)
        self.queues_to_announce: set[str] = set()
        self.watches: list[Watch] = []  # of workers that claim in it, where one writer writes at a time
        self.freed: set[str] = set()  # buckets of limits whose slots this transaction has freed
        self.learned: dict[str, Declared] = {}  # operations that the store adds to its cache after the commit

    @property
    def is_open(self) -> bool:
        """Whether the transaction is still open; a statement of a caller may have ended it."""
        return self.store.is_open(self.connection)

    def apply(self, staged: Sequence[Sequence[Effect]]) -> None:
        """Apply the effects of each of some executions that commit in this transaction."""
        from holdfast.store.effects import in_turn  # noqa: PLC0415 - many handlers stage none

        self.store.apply(self.connection, in_turn(staged))

    def savepoint(self) -> AbstractContextManager[None]:
        """Return a block; if it raises, only the writes of the block are undone."""
        return self.store.savepoint(self.connection)
