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
    from holdfast.store.verbs.configuration import ConfigurationReads, ConfigurationWrites
    from holdfast.store.verbs.counts import CountReads, CountWrites
    from holdfast.store.verbs.executions import ExecutionReads, ExecutionWrites
    from holdfast.store.verbs.flow import FlowReads, FlowWrites
    from holdfast.store.verbs.grants import GrantReads, GrantWrites
    from holdfast.store.verbs.jobs import JobReads, JobWrites
    from holdfast.store.verbs.journal import JournalReads
    from holdfast.store.verbs.leases import LeaseReads, LeaseWrites
    from holdfast.store.verbs.lists import Lists
    from holdfast.store.verbs.maintenance import MaintenanceReads, MaintenanceWrites
    from holdfast.store.verbs.operations import OperationReads, OperationWrites
    from holdfast.store.verbs.parking import ParkingWrites
    from holdfast.store.verbs.portable import PortableReads, PortableWrites
    from holdfast.store.verbs.quarantine import QuarantineReads
    from holdfast.store.verbs.registry import RegistryReads, RegistryWrites
    from holdfast.store.verbs.replay import ReplayReads, ReplayWrites
    from holdfast.store.verbs.retention import RetentionReads, RetentionWrites
    from holdfast.store.verbs.runs import RunReads, RunWrites
    from holdfast.store.verbs.schedules import ScheduleReads, ScheduleWrites
    from holdfast.store.verbs.seals import SealReads, SealWrites
    from holdfast.store.verbs.settings import SettingReads, SettingWrites
    from holdfast.store.verbs.switches import SwitchReads, SwitchWrites
    from holdfast.store.verbs.workers import QueueReads, QueueWrites, WorkerWrites

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

    jobs: Group[JobReads] = Group("jobs:JobReads")
    executions: Group[ExecutionReads] = Group("executions:ExecutionReads")
    journal: Group[JournalReads] = Group("journal:JournalReads")
    lists: Group[Lists] = Group("lists:Lists")
    counts: Group[CountReads] = Group("counts:CountReads")
    queues: Group[QueueReads] = Group("workers:QueueReads")
    operations: Group[OperationReads] = Group("operations:OperationReads")
    settings: Group[SettingReads] = Group("settings:SettingReads")
    grants: Group[GrantReads] = Group("grants:GrantReads")
    leases: Group[LeaseReads] = Group("leases:LeaseReads")
    runs: Group[RunReads] = Group("runs:RunReads")
    switches: Group[SwitchReads] = Group("switches:SwitchReads")
    configuration: Group[ConfigurationReads] = Group("configuration:ConfigurationReads")
    schedules: Group[ScheduleReads] = Group("schedules:ScheduleReads")
    flow: Group[FlowReads] = Group("flow:FlowReads")
    registry: Group[RegistryReads] = Group("registry:RegistryReads")
    replay: Group[ReplayReads] = Group("replay:ReplayReads")
    quarantine: Group[QuarantineReads] = Group("quarantine:QuarantineReads")
    retention: Group[RetentionReads] = Group("retention:RetentionReads")
    seals: Group[SealReads] = Group("seals:SealReads")
    maintenance: Group[MaintenanceReads] = Group("maintenance:MaintenanceReads")
    portable: Group[PortableReads] = Group("portable:PortableReads")

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

    jobs: Group[JobWrites] = Group("jobs:JobWrites")
    executions: Group[ExecutionWrites] = Group("executions:ExecutionWrites")
    counts: Group[CountWrites] = Group("counts:CountWrites")
    queues: Group[QueueWrites] = Group("workers:QueueWrites")
    workers: Group[WorkerWrites] = Group("workers:WorkerWrites")
    operations: Group[OperationWrites] = Group("operations:OperationWrites")
    settings: Group[SettingWrites] = Group("settings:SettingWrites")
    grants: Group[GrantWrites] = Group("grants:GrantWrites")
    leases: Group[LeaseWrites] = Group("leases:LeaseWrites")
    runs: Group[RunWrites] = Group("runs:RunWrites")
    switches: Group[SwitchWrites] = Group("switches:SwitchWrites")
    configuration: Group[ConfigurationWrites] = Group("configuration:ConfigurationWrites")
    schedules: Group[ScheduleWrites] = Group("schedules:ScheduleWrites")
    parking: Group[ParkingWrites] = Group("parking:ParkingWrites")
    flow: Group[FlowWrites] = Group("flow:FlowWrites")
    registry: Group[RegistryWrites] = Group("registry:RegistryWrites")
    replay: Group[ReplayWrites] = Group("replay:ReplayWrites")
    retention: Group[RetentionWrites] = Group("retention:RetentionWrites")
    seals: Group[SealWrites] = Group("seals:SealWrites")
    maintenance: Group[MaintenanceWrites] = Group("maintenance:MaintenanceWrites")
    portable: Group[PortableWrites] = Group("portable:PortableWrites")

    def __init__(self, store: Store[Any], connection: Any) -> None:
        super().__init__(store, connection)
        self.queues_to_announce: set[str] = set()
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
