"""The evidence that `check` judges: records with their histories, read as they are stored, valid or not.

Invariants: everything of one page comes from one snapshot; a column with a value that its record cannot have is named
in `unreadable`, and is no error; memory is that of one page, whatever the size of the ledger.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from datetime import datetime
from enum import Enum
from functools import cache, cached_property
from typing import Any, TypeVar, get_args, get_type_hints

import msgspec

from holdfast.core.environments import DEV
from holdfast.core.machine import Machine
from holdfast.core.machines import EXEC_IDS, EXECUTION, GRANT, JOB, PROCEDURE, REQUEST, SETTING, STEP, SWITCH, VALUE
from holdfast.core.records import Execution, Job
from holdfast.store.migrations import DOOR_OPEN, drift
from holdfast.store.statements import encoded
from holdfast.store.transaction import Reading, Transaction
from holdfast.store.verbs import histories
from holdfast.store.verbs.histories import Case, Entry, History, Read
from holdfast.store.verbs.seals import Key

GAP_MAX = 100  # ids between two jobs of a page that are read in one range
_Record = TypeVar("_Record", bound=msgspec.Struct)


class Evidence:
    """Reads for `check`, through one view of the ledger."""

    def __init__(self, reading: Reading) -> None:
        self.reading = reading
        self._store = reading.store
        self.rows_walked = 0
        self.rows_surveyed = 0
        self.executions_seen = 0

    # -- records, page by page ----------------------------------------------------------------------------------------

    def cases(self, after: int, n: int) -> list[Case]:
        """Return the next jobs by id, with everything about them."""
        return self._cases(self.reading.run("jobs_to_check", after=after, n=n))

    def cases_of(self, job_ids: Iterable[int]) -> list[Case]:
        """Return those of the given jobs that exist."""
        return self._cases(self.reading.run("these_jobs_to_check", rows=encoded(sorted(set(job_ids)))))

    def others(self, machine: Machine, after: int, n: int) -> list[History]:
        """Return the next records of a machine other than JOB and EXECUTION."""
        rows = self.reading.run(_PAGES[machine.name], after=after, n=n)
        journal = self._journal(machine, [row[0] for row in rows])
        return [self._history(machine, row[0], row[1:], journal.get(row[0], ()), ()) for row in rows]

    def journal_of(self, machine: Machine, subject: int) -> tuple[list[Entry], bool]:
        """Return the edges of one record, lowest version first, and whether all of them can be read."""
        rows = self._edges([subject])[subject] if machine is JOB else self._journal(machine, [subject]).get(subject, [])
        own = [(row, columns) for row, columns in rows if row.machine == machine.name]
        return histories.in_order(row for row, _ in own), not any(columns for _, columns in own)

    def steps_of(
        self, job_id: int, kept: Sequence[Entry], *, attempt: int, whole: bool
    ) -> dict[int, tuple[int, list[Entry]]]:
        """Return the edges of a job's attempts that count: by attempt, the first version and the edges from there on.

        `kept` are the rows of the job that count, `attempt` is its current one, and `whole` says whether these are all
        rows that it ever had.
        """
        edges_of = self._edges([job_id])
        current = {job_id: [(job_id * EXEC_IDS + attempt,)]}
        edges = (*edges_of[job_id], *self._lone_steps([job_id], edges_of, current).get(job_id, ()))
        found = {}
        for exec_id, steps in sorted(histories.kept_steps(kept, edges, whole=whole).items()):
            begins, counted = histories.since_repair(steps, whole=whole)
            found[exec_id % EXEC_IDS] = begins, histories.in_order(row for row, _ in counted)
        return found

    def committed(self, job_ids: Iterable[int]) -> set[int]:
        """Return those of the given jobs that have crossed their commit boundary."""
        ids = sorted(set(job_ids))
        return {job_id for (job_id,) in self.reading.run("parents_to_check", rows=encoded(ids))} if ids else set()

    # -- the whole ledger ---------------------------------------------------------------------------------------------

    def overdue(self, before: datetime, n: int) -> list[tuple[Any, ...]]:
        """Return open executions whose lease expired before a time: id, job, owner, end of the lease."""
        rows = self.reading.run("overdue_leases", before=self._store.stored(before), n=n)
        return [(*row[:3], self._store.moment(row[3])) for row in rows]

    def last_maintenance(self) -> int:
        """Return the number of the last journal row of a maintenance; 0 if there is none."""
        [[seq]] = self.reading.run("last_maintenance")
        return seq or 0

    def has_approvals(self) -> bool:
        """Return whether approvals can be judged: outside dev always, in dev where a grant or an approver is stored."""
        return self.meta().get("environment") != DEV or bool(self.reading.run("any_grant_or_approver"))

    def grants_named(self, ids: Iterable[int]) -> dict[int, histories.Permit]:
        """Return those of the given grants that exist."""
        rows = self.reading.run("grants_named", rows=encoded(sorted(ids)))
        return {
            grant_id: histories.Permit(action, target, event, move_id, bool(of_a_run))
            for grant_id, action, target, event, move_id, of_a_run in rows
        }

    def maintenance_named(self, ids: Iterable[int]) -> dict[int, tuple[int | None, int | None]]:
        """Return the first and the last journal row of those of the given acts of maintenance that have rows."""
        return {
            number: (first, last)
            for number, first, last in self.reading.run("maintenance_named", rows=encoded(sorted(ids)))
        }

    def meta(self) -> dict[str, str]:
        """Return the ledger's settings as they are stored, valid or not."""
        return dict(self.reading.settings.read())

    def drift(self) -> list[str]:
        """Return the names of triggers, functions, indexes and machines that differ from this version of Holdfast."""
        found = drift(self._store, self.reading.connection)
        # Inside a transaction that writes, an open door is its own.
        return [name for name in found if name != DOOR_OPEN or not isinstance(self.reading, Transaction)]

    # -- rows into records --------------------------------------------------------------------------------------------

    def _cases(self, rows: Sequence[tuple[Any, ...]]) -> list[Case]:
        ids = [row[0] for row in rows]
        if not ids:
            return []
        made: dict[int, list[tuple[Any, ...]]] = defaultdict(list)
        for row in self._of_jobs("executions_to_check", ids, 1):
            made[row[1]].append(row)
            self.executions_seen += 1
        edges_of = self._edges(ids)
        lone = self._lone_steps(ids, edges_of, made)
        checkpoints = dict(self.reading.run("checkpoints_to_check", rows=encoded(ids)))
        cases = []
        for row in rows:
            job, unreadable = _read_job(row[:-2], self._store.moment)
            stored = (job.state, job.version, row[-1], job.created_at, job.updated_at)
            edges = edges_of[job.job_id]
            own = [pair for pair in edges if pair[0].machine == JOB.name]
            history = self._history(JOB, job.job_id, stored, own, unreadable)
            steps = histories.kept_steps(history.kept, (*edges, *lone.get(job.job_id, ())), whole=history.whole)
            tried = tuple(
                sorted(
                    (self._tried(one, history, steps) for one in made[job.job_id]),
                    key=lambda one: (histories.number_or_0(one.execution.attempt), one.execution.exec_id),
                )
            )
            cases.append(
                Case(
                    job=job,
                    history=history,
                    tried=tried,
                    requests=tuple(entry for entry, _ in edges if entry.machine == REQUEST.name),
                    journalled=frozenset(exec_id % EXEC_IDS for exec_id in steps),
                    lease_token=row[-2],
                    checkpoints=checkpoints.get(job.job_id, 0),
                )
            )
        return cases

    def _tried(self, row: tuple[Any, ...], job: History, steps: dict[int, list[Read]]) -> histories.Tried:
        """Return one execution with the edges that count: since its last repair, or since its job's history begins."""
        execution, unreadable = _read_execution(row[:-4], self._store.moment)
        begins, own = histories.since_repair(steps.get(execution.exec_id, []), whole=job.whole)
        if not (own or job.whole):
            begins = histories.number_or_0(execution.version) + 1
        created_at = execution.created_at
        if own and begins == 1 and None not in (created_at, own[0][0].at) and own[0][0].at != created_at:
            created_at = histories.claimed_late(own[0][0], created_at, job)
        stored = (execution.status, execution.version, begins, created_at, execution.updated_at)
        history = self._history(EXECUTION, execution.exec_id, stored, own, unreadable)
        return histories.Tried(execution, history, histories.Signature(*row[-4:]))

    def _history(
        self,
        machine: Machine,
        subject: int,
        stored: Sequence[Any],
        rows: Sequence[Read],
        unreadable: tuple[str, ...],
    ) -> History:
        state, version, history_from, created_at, updated_at = stored
        moment = self._store.moment
        if machine.name in _PAGES:
            wrong = [
                name
                for name, value, kind in (("state", state, str), ("version", version, int))
                if not isinstance(value, kind)
            ]
            created_at, updated_at = _moment_or_none(created_at, moment), _moment_or_none(updated_at, moment)
            wrong += [name for name, value in (("created_at", created_at), ("updated_at", updated_at)) if value is None]
            unreadable = (*unreadable, *wrong)
        if not isinstance(history_from, int):
            unreadable, history_from = (*unreadable, "history_from"), 1
        torn = tuple(f"journal row {row.seq}: {', '.join(columns)}" for row, columns in rows if columns)
        return History(
            machine=machine,
            subject=subject,
            state=state,
            version=version,
            history_from=history_from,
            created_at=created_at,
            updated_at=updated_at,
            rows=tuple(histories.in_order(row for row, _ in rows)),
            unreadable=unreadable + torn,
        )

    def _journal(self, machine: Machine, subjects: Collection[int]) -> dict[int, list[Read]]:
        """Return the journal rows of records by their id; of executions, the rows of a start or a commit."""
        rows = (
            self.reading.run("journal_to_check", machine=machine.name, rows=encoded(sorted(subjects)))
            if subjects
            else []
        )
        self.rows_walked += len(rows)
        return self._read(rows)

    def _edges(self, job_ids: list[int]) -> dict[int, list[Read]]:
        """Return the edges in the rows of jobs, by job: their own, and those of the attempts that moved with them."""
        found = self._read(self._of_jobs("edges_to_check", job_ids, -1))
        self.rows_walked += sum(len({row.seq for row, _ in rows}) for rows in found.values())
        return found

    def _of_jobs(self, statement: str, job_ids: Iterable[int], column: int) -> Iterator[tuple[Any, ...]]:
        """Yield the rows of a statement that takes a range of jobs, for those jobs whose ids are given.

        A page is one range, or few: jobs are walked in the order of their ids. `column` holds the id of the job.
        """
        ids = sorted(job_ids)
        wanted, first = set(ids), 0
        for n, job_id in enumerate(ids):
            if n + 1 == len(ids) or ids[n + 1] - job_id > GAP_MAX:
                rows = self.reading.run(statement, low=ids[first], high=job_id)
                yield from (row for row in rows if row[column] in wanted)
                first = n + 1

    def _lone_steps(
        self, job_ids: list[int], edges_of: dict[int, list[Read]], made: Mapping[int, Sequence[tuple[Any, ...]]]
    ) -> dict[int, list[Read]]:
        """Return the starts and commits that no job moved with, of stored or journalled attempts, by job."""
        ids = {row[0] for job_id in job_ids for row in made.get(job_id, ())}
        ids |= {row.subject for job_id in job_ids for row, _ in edges_of[job_id] if row.machine == EXECUTION.name}
        found: dict[int, list[Read]] = defaultdict(list)
        for exec_id, rows in self._journal(EXECUTION, {one for one in ids if isinstance(one, int)}).items():
            found[exec_id // EXEC_IDS] += rows
        return found

    def _read(self, rows: Iterable[tuple[Any, ...]]) -> dict[int, list[Read]]:
        found: dict[int, list[Read]] = defaultdict(list)
        for row in rows:
            entry, unreadable = _read_entry(row, self._store.moment)
            found[entry.record].append((entry, unreadable))
        return found

    @cached_property
    def archived_until(self) -> Key | None:
        """The end of the last archive, if there is one: rows up to it may stay until their partition is dropped."""
        rows = self.reading.run("archived_until")
        return (rows[0][0], rows[0][1], rows[0][2]) if rows else None


OTHERS = (GRANT, PROCEDURE, STEP, VALUE, SWITCH, SETTING)
_PAGES = {
    GRANT.name: "grants_to_check",
    PROCEDURE.name: "procedures_to_check",
    STEP.name: "steps_to_check",
    VALUE.name: "values_to_check",
    SWITCH.name: "switches_to_check",
    SETTING.name: "settings_to_check",
}


# ---------------------------------------------------------------------------------------------------------------------
# Reading rows that may be damaged


@cache  # made when the first row is read: a command that reads none does not wait for it
def _columns(record: type[msgspec.Struct]) -> tuple[list[str], list[tuple[Any, bool]], dict[int, dict[Any, Enum]]]:
    """Return the names of the columns of a record, their types and whether they may be NULL, and the enums' members."""
    hints = get_type_hints(record)
    wanted = [
        (next(kind for kind in (*get_args(hint), hint) if kind is not type(None)), type(None) in get_args(hint))
        for hint in hints.values()
    ]
    members = {i: {m.value: m for m in kind} for i, (kind, _) in enumerate(wanted) if issubclass(kind, Enum)}
    return list(hints), wanted, members


def _reader(
    record: type[_Record],
) -> Callable[[Sequence[Any], Callable[[Any], datetime]], tuple[_Record, tuple[str, ...]]]:
    """Return a function that turns a row into a record, and names the columns whose value the record cannot have."""

    @cache  # most rows have one of a few shapes
    def plan(shape: tuple[type, ...]) -> tuple[tuple[int, ...], tuple[int, ...], tuple[str, ...]]:
        """Return which columns of such a row are times and flags, and which do not fit."""
        names, wanted, members = _columns(record)
        times, flags, wrong = [], [], []
        for i, (found, (kind, may_lack)) in enumerate(zip(shape, wanted, strict=True)):
            if found is type(None):
                wrong += [] if may_lack else [names[i]]
            elif kind is datetime:
                times.append(i)
            elif kind is bool:
                flags.append(i)
            elif not issubclass(found, (int, float) if kind is float else str if i in members else kind):
                wrong.append(names[i])
        return tuple(times), tuple(flags), tuple(wrong)

    def read(row: Sequence[Any], moment: Callable[[Any], datetime]) -> tuple[_Record, tuple[str, ...]]:
        values = list(row)
        names, _, members = _columns(record)
        times, flags, unreadable = plan(tuple(map(type, values)))
        for i in times:
            values[i] = _moment_or_none(values[i], moment)
            if values[i] is None:
                unreadable = (*unreadable, names[i])
        for i in flags:
            values[i] = bool(values[i])
        for i, known in members.items():
            values[i] = known.get(values[i], values[i])
        return record(*values), unreadable

    return read


def _moment_or_none(value: Any, moment: Callable[[Any], datetime]) -> Any:
    try:
        found = moment(value)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None  # a time without a zone cannot be compared


_read_job = _reader(Job)
_read_execution = _reader(Execution)
_read_entry = _reader(Entry)
