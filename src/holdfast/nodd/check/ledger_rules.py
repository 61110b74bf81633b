"""Rules about all of the application's tables at once: generations, counts, and rows without their unit or job.

Invariants: a rule reads in the view that it is given, writes nothing, and reports at most as many findings as asked
for; `kind` in the evidence of a finding is a stable word.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import TYPE_CHECKING, Any

from holdfast.audit.check.findings import Finding
from holdfast.core.digest import Json
from holdfast.core.machines import JOB
from holdfast.nodd.check.rows import decoded
from holdfast.nodd.statements import run_statement, schema
from holdfast.nodd.units import OPERATION, Fate
from holdfast.store.statements import encoded

if TYPE_CHECKING:
    from holdfast.store.transaction import Reading

PAGE = 500


def missing_tables(reading: Reading, _n: int) -> Iterator[Finding]:
    """Yield tables and views of the application that are not there."""
    made = re.findall(r"CREATE (?:OR REPLACE )?(TABLE|VIEW) (\w+)", "\n".join(schema(reading.dialect)))
    there = {name for (name,) in run_statement(reading, "tables_there")}
    for kind, name in made:
        if name not in there:
            yield Finding(f"{kind} {name}", "it is not there", evidence={"kind": "missing"})


def jobs_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield jobs that are about no unit, and those that carry none though they are no part of a replacement."""
    after = found = 0
    while rows := run_statement(reading, "jobs_beside_units", operation=OPERATION, after=after, n=PAGE):
        after = rows[-1][0]
        about = {job_id: _unit_named(payload, key) for job_id, _, key, _, payload, _ in rows}
        wal_ids = sorted({wal_id for wal_id in about.values() if wal_id is not None})
        units = {row[0]: row[1:] for row in run_statement(reading, "carriers_of", rows=encoded(wal_ids))}
        for job_id, _, _, replaces, payload, committed in rows:
            wal_id = about[job_id]
            if wal_id is None and payload is None:
                continue  # slimmed, and submitted without a key: nothing tells any more
            detail = _beside(units.get(wal_id or ""), replaces, committed=committed)
            if detail is not None:
                told: dict[str, Json] = {"kind": "no_unit", "job_id": job_id, "wal_id": wal_id}
                yield Finding(f"{JOB.name} {job_id}", detail, JOB.name, job_id, told)
                found += 1
                if found >= n:
                    return


def _unit_named(payload: str | None, key: str | None) -> str | None:
    """Return the unit that a job is about: by its payload, or by its key, which a replacement's begins with."""
    if payload is None:
        return None if key is None else key.partition("#")[0]
    said = decoded(payload)
    wal_id = said.get("wal_id") if isinstance(said, dict) else None
    return wal_id if isinstance(wal_id, str) else None


def _beside(unit: tuple[Any, ...] | None, replaces: int | None, *, committed: bool) -> str | None:
    if unit is None:
        return "it is about no unit"
    carrier, created_before = unit
    if created_before is not None or (replaces is not None and not committed):
        return None
    if replaces is None:
        return f"its unit is carried out by job {carrier}, which replaces none"
    return f"it has succeeded, and its unit is carried out by job {carrier} still"


def broken_generations(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units that do not follow the generation before them, or are not followed by the one after."""
    for row in run_statement(reading, "broken_generations", n=n):
        wal_id, generation, number_before, supersedes, before, superseded_by, after = row
        faults = {
            "gap": f"it is generation {generation}, and the one before it is {number_before}",
            "supersedes": f"it supersedes {supersedes or 'nothing'}, and before it came {before or 'none'}",
            "superseded_by": f"it is superseded by {superseded_by or 'nothing'}, and after it came {after or 'none'}",
        }
        broken = {
            "gap": generation != number_before + 1,
            "supersedes": generation > 1 and supersedes != before,
            "superseded_by": superseded_by != after,
        }
        for kind in (kind for kind, is_broken in broken.items() if is_broken):
            yield Finding(f"UNIT {wal_id}", faults[kind], evidence={"kind": kind, "generation": generation})


def sequencers_back(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units whose write came before that of the generation before them."""
    for wal_id, sequencer, before in run_statement(reading, "sequencers_back", n=n):
        told: dict[str, Json] = {"kind": "sequencer", "sequencer": sequencer, "before": before}
        yield Finding(f"UNIT {wal_id}", f"its sequencer {sequencer} does not follow {before}", evidence=told)


def written_before_commit(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield items and provenance of units that have not succeeded."""
    for kind, subject, wal_id, job_id, state in run_statement(reading, "written_before_commit", n=n):
        told: dict[str, Json] = {"kind": "uncommitted", "wal_id": wal_id, "job_id": job_id, "state": state}
        what = "it is catalogued" if kind == "ITEM" else "it has provenance"
        yield Finding(f"{kind} {subject}", f"{what}, and its job {job_id} is {state}", evidence=told)


def parts_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield what belongs to a unit that is not there."""
    for kind, subject, missing in run_statement(reading, "parts_without_units", n=n):
        yield Finding(
            f"{kind} {subject}", f"there is no unit {missing}", evidence={"kind": "orphan", "wal_id": missing}
        )


def miscounted_admissions(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield datasets of which another number was counted as admitted than there are units."""
    for dataset, told, found in run_statement(reading, "miscounted_admissions", fate=str(Fate.ADMITTED), n=n):
        yield Finding(
            f"COUNTS {dataset}/{Fate.ADMITTED}",
            f"{int(told)} are counted, and there are {int(found)}",
            evidence={"kind": "count", "dataset": dataset, "told": int(told), "found": int(found)},
        )
