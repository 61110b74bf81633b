"""The pages of the console, and the forms of acts: PAGES, the controllers that the application mounts.

A controller declares its permission, leaves the schema, reads its view from `console/views` and returns a template.
"""

from __future__ import annotations

from litestar import Controller

from holdfast.console.pages.acts import GrantActs, JobActs, QueueActs, ScheduleActs, SwitchActs
from holdfast.console.pages.ledger_acts import LedgerActs
from holdfast.console.pages.proving import (
    ByCommandPages,
    GrantPages,
    ProofPages,
    QuarantinePages,
    ReplayPages,
    SwitchPages,
)
from holdfast.console.pages.watching import FailurePages, JobPages, OverviewPage, QueuePages, SchedulePages, WorkerPages

PAGES: list[type[Controller]] = [
    OverviewPage,
    JobPages,
    FailurePages,
    QueuePages,
    SchedulePages,
    WorkerPages,
    QuarantinePages,
    ReplayPages,
    GrantPages,
    SwitchPages,
    ProofPages,
    ByCommandPages,
    JobActs,
    QueueActs,
    SwitchActs,
    ScheduleActs,
    GrantActs,
    LedgerActs,
]
