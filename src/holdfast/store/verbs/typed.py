"""The classes of all groups of verbs, for type checkers; nothing imports this at run time."""

# mypy: implicit-reexport
# ruff: noqa: F401 - others import them from here

from holdfast.store.verbs.configuration import ConfigurationReads, ConfigurationWrites
from holdfast.store.verbs.counts import CountReads, CountWrites
from holdfast.store.verbs.executions import ExecutionReads, ExecutionWrites
from holdfast.store.verbs.fair import FairWrites
from holdfast.store.verbs.flow import FlowReads, FlowWrites
from holdfast.store.verbs.grants import GrantReads, GrantWrites
from holdfast.store.verbs.jobs import JobReads, JobWrites
from holdfast.store.verbs.journal import JournalReads
from holdfast.store.verbs.leases import LeaseReads, LeaseWrites
from holdfast.store.verbs.limits import LimitReads, LimitWrites
from holdfast.store.verbs.lists import ListReads
from holdfast.store.verbs.maintenance import MaintenanceReads, MaintenanceWrites
from holdfast.store.verbs.notes import NoteReads, NoteWrites
from holdfast.store.verbs.operations import OperationReads, OperationWrites
from holdfast.store.verbs.parking import ParkingWrites
from holdfast.store.verbs.portable import PortableReads, PortableWrites
from holdfast.store.verbs.quarantine import QuarantineReads
from holdfast.store.verbs.queues import QueueReads, QueueWrites
from holdfast.store.verbs.recovery import RecoveryWrites
from holdfast.store.verbs.registry import RegistryReads, RegistryWrites
from holdfast.store.verbs.replay import ReplayReads, ReplayWrites
from holdfast.store.verbs.retention import RetentionReads, RetentionWrites
from holdfast.store.verbs.rulings import RulingWrites
from holdfast.store.verbs.runs import RunReads, RunWrites
from holdfast.store.verbs.schedules import ScheduleReads, ScheduleWrites
from holdfast.store.verbs.seals import SealReads, SealWrites
from holdfast.store.verbs.settings import SettingReads, SettingWrites
from holdfast.store.verbs.slots import SlotReads, SlotWrites
from holdfast.store.verbs.switches import SwitchReads, SwitchWrites
from holdfast.store.verbs.turns import TurnWrites
from holdfast.store.verbs.workers import WorkerWrites
