"""Work at certain times: schedules, their ticks, and what fires them.

A schedule is a setting of the ledger, so that a whole fleet follows it and the command can change it. Each worker
fires what is due; the ledger records a tick once, in the transaction that submits its job.
"""

from holdfast.scheduling.firer import Firer
from holdfast.scheduling.limits import Limits
from holdfast.scheduling.schedules import Missed, Overlap, Schedule, Schedules, declare, save_declared

__all__ = ["Firer", "Limits", "Missed", "Overlap", "Schedule", "Schedules", "declare", "save_declared"]
