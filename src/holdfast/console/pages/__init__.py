"""The pages of the console: PAGES, controllers that the application mounts, and FORMS, those of acts with their pages.

A controller declares its permission, leaves the schema, reads its view from `console/views` and returns a template.
"""

from __future__ import annotations

from litestar import Controller

from holdfast.console.pages.confirming import FORMS
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
]

__all__ = ["FORMS", "PAGES"]
