"""`Reading`, a consistent view of the ledger, and `Transaction`, which also writes; both have their verbs in groups.

Invariants: all reads of one Reading see the same snapshot, and it cannot write; a group of verbs is imported when it
is first used, so that a process loads only the modules that it needs.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import datetime
from importlib import import_module
from typing import TYPE_CHECKING, Any, Generic, TypeVar

from holdfast.store.requests import Declared, Effect

if TYPE_CHECKING:
    from holdfast.store.store import Store
    from holdfast.store.verbs import typed

Verbs_co = TypeVar("Verbs_co", covariant=True)


class Group(Generic[Verbs_co]):
    """A group of verbs, imported and created for its transaction when it is first used."""

    def __init__(self, home: str) -> None:
        self._module, self._class = home.split(":")
        self._verbs: Callable[[Reading], Verbs_co] | None = None

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, session: Reading, _owner: type | None = None) -> Verbs_co:
        if self._verbs is None:
            self._verbs = getattr(import_module(f"holdfast.store.verbs.{self._module}"), self._class)
        verbs = session.__dict__[self._name] = self._verbs(session)  # the next access finds this, not the descriptor
        return verbs


class Reading:
    """A consistent view of the ledger."""

    jobs: Group[typed.JobReads] = Group("jobs:JobReads")
    executions: Group[typed.ExecutionReads] = Group("executions:ExecutionReads")
    journal: Group[typed.JournalReads] = Group("journal:JournalReads")
    lists: Group[typed.Lists] = Group("lists:Lists")
    counts: Group[typed.CountReads] = Group("counts:CountReads")
    queues: Group[typed.QueueReads] = Group("queues:QueueReads")
    operations: Group[typed.OperationReads] = Group("operations:OperationReads")
    settings: Group[typed.SettingReads] = Group("settings:SettingReads")
    grants: Group[typed.GrantReads] = Group("grants:GrantReads")
    leases: Group[typed.LeaseReads] = Group("leases:LeaseReads")
    runs: Group[typed.RunReads] = Group("runs:RunReads")
    switches: Group[typed.SwitchReads] = Group("switches:SwitchReads")
    configuration: Group[typed.ConfigurationReads] = Group("configuration:ConfigurationReads")
    notes: Group[typed.NoteReads] = Group("notes:NoteReads")
    limits: Group[typed.LimitReads] = Group("limits:LimitReads")
    schedules: Group[typed.ScheduleReads] = Group("schedules:ScheduleReads")
    flow: Group[typed.FlowReads] = Group("flow:FlowReads")
    registry: Group[typed.RegistryReads] = Group("registry:RegistryReads")
    replay: Group[typed.ReplayReads] = Group("replay:ReplayReads")
    quarantine: Group[typed.QuarantineReads] = Group("quarantine:QuarantineReads")
    retention: Group[typed.RetentionReads] = Group("retention:RetentionReads")
    seals: Group[typed.SealReads] = Group("seals:SealReads")
    maintenance: Group[typed.MaintenanceReads] = Group("maintenance:MaintenanceReads")
    portable: Group[typed.PortableReads] = Group("portable:PortableReads")

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

    def run(self, name: str, /, **params: object) -> list[tuple[Any, ...]]:
        """Run a named statement of the store."""
        return self.store.run(self.connection, name, params)

    def query(self, sql: str, params: Mapping[str, object]) -> tuple[list[str], list[tuple[Any, ...]]]:
        """Run a statement of the caller with `:name` parameters; return the names of its columns, and its rows."""
        return self.store.named(self.connection, sql, params)

    def execute(self, sql: str, params: Sequence[object] = ()) -> list[tuple[Any, ...]]:
        """Run a statement of the caller, with the placeholders of the driver, in this transaction."""
        return self.store.execute(self.connection, sql, params)


class Transaction(Reading):
    """One transaction of the ledger."""

    jobs: Group[typed.JobWrites] = Group("jobs:JobWrites")
    executions: Group[typed.ExecutionWrites] = Group("executions:ExecutionWrites")
    turns: Group[typed.TurnWrites] = Group("turns:TurnWrites")
    recovery: Group[typed.RecoveryWrites] = Group("recovery:RecoveryWrites")
    counts: Group[typed.CountWrites] = Group("counts:CountWrites")
    queues: Group[typed.QueueWrites] = Group("queues:QueueWrites")
    workers: Group[typed.WorkerWrites] = Group("workers:WorkerWrites")
    operations: Group[typed.OperationWrites] = Group("operations:OperationWrites")
    settings: Group[typed.SettingWrites] = Group("settings:SettingWrites")
    grants: Group[typed.GrantWrites] = Group("grants:GrantWrites")
    leases: Group[typed.LeaseWrites] = Group("leases:LeaseWrites")
    runs: Group[typed.RunWrites] = Group("runs:RunWrites")
    switches: Group[typed.SwitchWrites] = Group("switches:SwitchWrites")
    configuration: Group[typed.ConfigurationWrites] = Group("configuration:ConfigurationWrites")
    notes: Group[typed.NoteWrites] = Group("notes:NoteWrites")
    limits: Group[typed.LimitWrites] = Group("limits:LimitWrites")
    schedules: Group[typed.ScheduleWrites] = Group("schedules:ScheduleWrites")
    parking: Group[typed.ParkingWrites] = Group("parking:ParkingWrites")
    flow: Group[typed.FlowWrites] = Group("flow:FlowWrites")
    fair: Group[typed.FairWrites] = Group("fair:FairWrites")
    registry: Group[typed.RegistryWrites] = Group("registry:RegistryWrites")
    replay: Group[typed.ReplayWrites] = Group("replay:ReplayWrites")
    retention: Group[typed.RetentionWrites] = Group("retention:RetentionWrites")
    seals: Group[typed.SealWrites] = Group("seals:SealWrites")
    maintenance: Group[typed.MaintenanceWrites] = Group("maintenance:MaintenanceWrites")
    portable: Group[typed.PortableWrites] = Group("portable:PortableWrites")

    def __init__(self, store: Store[Any], connection: Any) -> None:
        super().__init__(store, connection)
        self.queues_to_announce: set[str] = set()
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
