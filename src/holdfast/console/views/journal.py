"""The journal and what proves it: its last entries, its seals, and the checks of the ledger.

Invariants: a page of the journal looks at a bounded number of entries and says how far; nothing here seals or repairs.
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Any

import msgspec

from holdfast.audit.check.catalogue import INVARIANTS
from holdfast.audit.check.findings import CheckReport
from holdfast.audit.check.runner import check
from holdfast.console.views.jobs import filters_in, number_in, text_in
from holdfast.console.views.links import path
from holdfast.core.errors import InputError
from holdfast.core.journal import JournalRow
from holdfast.core.machines import EXEC_IDS, EXECUTION, GRANT, JOB, MACHINES, REQUEST, SWITCH
from holdfast.core.records import time_from
from holdfast.core.seals import Seal
from holdfast.engine.upkeep.checks import AT_OPEN
from holdfast.store import Store
from holdfast.store.transaction import Reading
from holdfast.store.verbs.watch import journal_tail

PAGE = 100
SEALS = 10
FILTERS = ("machine", "event", "actor", "before")
DUTIES = {
    "fold": "folds the counts",
    "seal": "seals the journal",
    "extend": "extends the journal",
    "gc": "applies retention",
    "check": "checks every invariant",
    "forget": "forgets old workers",
}


class Entry(msgspec.Struct, frozen=True):
    """An entry of the journal, where its subject can be seen, and whether a seal covers it."""

    row: JournalRow
    subject: str
    href: str | None
    sealed: bool


class JournalView(msgspec.Struct, frozen=True, kw_only=True):
    """A page of the journal, newest first."""

    now: datetime
    entries: tuple[Entry, ...]
    filters: dict[str, str]
    looked_to: int
    older: str | None


def journal_view(reading: Reading, params: Mapping[str, str], now: datetime) -> JournalView:
    """Return a page of the journal; raise InputError for a filter that is not valid."""
    given = filters_in(params, FILTERS)
    machine = given.get("machine")
    if machine is not None and machine not in {*MACHINES, "MAINTENANCE"}:
        raise InputError(f"Unknown machine; use one of {', '.join(MACHINES)}.", context={"field": "machine"})
    event, actor = (text_in(given[name], name) if name in given else None for name in ("event", "actor"))
    before = number_in(given["before"], "before") if "before" in given else None
    rows, looked_to = journal_tail(reading, machine=machine, event=event, actor=actor, before=before, limit=PAGE)
    sealed = sealed_to(reading)
    shown = {name: value for name, value in given.items() if name != "before"}
    return JournalView(
        now=now,
        entries=tuple(Entry(row, *_subject(row), row.seq <= sealed) for row in rows),
        filters=shown,
        looked_to=looked_to,
        older=path("/journal", **shown, before=looked_to) if looked_to > 1 else None,
    )


def sealed_to(reading: Reading) -> int:
    """Return the number of the last row of the journal that a seal covers."""
    seal = reading.seals.last()
    return 0 if seal is None else seal.horizon_seq


def _subject(row: JournalRow) -> tuple[str, str | None]:
    if row.machine in (JOB.name, REQUEST.name):
        return f"job {row.subject}", f"/jobs/{row.subject}"
    if row.machine == EXECUTION.name:
        job_id, attempt = divmod(row.subject, EXEC_IDS)
        return f"job {job_id}, attempt {attempt}", f"/jobs/{job_id}"
    if row.machine == GRANT.name:
        return f"grant {row.subject}", f"/grants/{row.subject}"
    return f"{row.machine.lower()} {row.subject}", "/switches" if row.machine == SWITCH.name else None


# ---------------------------------------------------------------------------------------------------------------------
# Checks


class DutyRow(msgspec.Struct, frozen=True):
    """Something that a worker does for the ledger, and when one last began it."""

    name: str
    does: str
    at: datetime | None


class InvariantRow(msgspec.Struct, frozen=True):
    """An invariant, and whether it is among the quick ones."""

    name: str
    meaning: str
    severity: str
    quick: bool


class ChecksView(msgspec.Struct, frozen=True, kw_only=True):
    """What proves the ledger: seals, duties, invariants, and the quick checks if they were run."""

    now: datetime
    seal: Seal | None
    sealed_at: datetime | None
    unsealed: int
    seals: tuple[Seal, ...]
    archives: int
    duties: tuple[DutyRow, ...]
    invariants: tuple[InvariantRow, ...]
    report: CheckReport | None


def checks_view(store: Store[Any], now: datetime, *, run: bool) -> ChecksView:
    """Return the state of seals and checks; `run` runs the quick checks first."""
    report = check(store, only=AT_OPEN, cheap=True) if run else None
    with store.reading() as reading:
        settings = reading.settings.read()
        seal = reading.seals.last()
        seals = reading.seals.page(after=max(0, seal.seal_id - SEALS), limit=SEALS) if seal else []
        return ChecksView(
            now=now,
            seal=seal,
            sealed_at=None if seal is None else time_from(seal.sealed_at),
            unsealed=max(0, reading.seals.sealing_bounds().seq - (seal.high_seq if seal else 0)),
            seals=tuple(reversed(seals)),
            archives=len(reading.seals.archives()),
            duties=tuple(
                DutyRow(name, does, time_from(at) if (at := settings.get(f"duty:{name}")) else None)
                for name, does in DUTIES.items()
            ),
            invariants=tuple(
                InvariantRow(one.name, one.meaning, str(one.severity), one.name in AT_OPEN) for one in INVARIANTS
            ),
            report=report,
        )
