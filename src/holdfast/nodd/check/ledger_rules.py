"""Rules about the application's tables as a whole: generations, counts, and rows without their unit or job.

Invariants: a rule reads from the view that it gets, writes nothing, and yields at most `n` findings; `kind` in the
evidence of a finding is a stable word.
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
    made = re.findall(r"CREATE (?:OR REPLACE )?(TABLE|VIEW) (\w+)", "\n".join(schema(reading.dialect)))
    there = {name for (name,) in run_statement(reading, "tables_there")}
    for kind, name in made:
        if name not in there:
            yield Finding(f"{kind} {name}", "is missing", evidence={"kind": "missing"})


def jobs_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield jobs whose unit does not exist, or belongs to another job that does not replace them."""
    after = found = 0
    while rows := run_statement(reading, "jobs_beside_units", operation=OPERATION, after=after, n=PAGE):
        after = rows[-1][0]
        about = {job_id: _unit_named(payload, key) for job_id, _, key, _, payload, _ in rows}
        wal_ids = sorted({wal_id for wal_id in about.values() if wal_id is not None})
        units = {row[0]: row[1:] for row in run_statement(reading, "carriers_of", rows=encoded(wal_ids))}
        for job_id, _, _, replaces, payload, committed in rows:
            wal_id = about[job_id]
            if wal_id is None and payload is None:
                continue  # retention removed the payload, and there is no key: its unit is unknown
            detail = _beside(units.get(wal_id or ""), replaces, committed=committed)
            if detail is not None:
                evidence: dict[str, Json] = {"kind": "no_unit", "job_id": job_id, "wal_id": wal_id}
                yield Finding(f"{JOB.name} {job_id}", detail, JOB.name, job_id, evidence)
                found += 1
                if found >= n:
                    return


def _unit_named(payload: str | None, key: str | None) -> str | None:
    """Return the wal_id of a job's unit: from its payload, or from its key, which starts with it."""
    if payload is None:
        return None if key is None else key.partition("#")[0]
    content = decoded(payload)
    wal_id = content.get("wal_id") if isinstance(content, dict) else None
    return wal_id if isinstance(wal_id, str) else None


def _beside(unit: tuple[Any, ...] | None, replaces: int | None, *, committed: bool) -> str | None:
    if unit is None:
        return "has no unit"
    carrier, created_before = unit
    if created_before is not None or (replaces is not None and not committed):
        return None
    if replaces is None:
        return f"its unit belongs to job {carrier}, which replaces no job"
    return f"has succeeded, but its unit still belongs to job {carrier}"


def broken_generations(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units that do not name the generation before or after them, or leave a gap in the numbers."""
    for row in run_statement(reading, "broken_generations", n=n):
        wal_id, generation, number_before, supersedes, before, superseded_by, after = row
        faults = {
            "gap": f"is generation {generation}, but the one before it is {number_before}",
            "supersedes": f"names {supersedes or 'none'} as the generation before it, which is {before or 'none'}",
            "superseded_by": f"names {superseded_by or 'none'} as the generation after it, which is {after or 'none'}",
        }
        broken = {
            "gap": generation != number_before + 1,
            "supersedes": generation > 1 and supersedes != before,
            "superseded_by": superseded_by != after,
        }
        for kind in (kind for kind, is_broken in broken.items() if is_broken):
            yield Finding(f"UNIT {wal_id}", faults[kind], evidence={"kind": kind, "generation": generation})


def sequencers_back(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield units whose sequencer is not greater than that of the generation before them."""
    for wal_id, sequencer, before in run_statement(reading, "sequencers_back", n=n):
        evidence: dict[str, Json] = {"kind": "sequencer", "sequencer": sequencer, "before": before}
        detail = f"its sequencer {sequencer} is not greater than {before} of the generation before it"
        yield Finding(f"UNIT {wal_id}", detail, evidence=evidence)


def written_before_commit(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield items, and units with provenance, whose job has not committed."""
    for kind, subject, wal_id, job_id, state in run_statement(reading, "written_before_commit", n=n):
        evidence: dict[str, Json] = {"kind": "uncommitted", "wal_id": wal_id, "job_id": job_id, "state": state}
        what = "is catalogued" if kind == "ITEM" else "has provenance"
        yield Finding(f"{kind} {subject}", f"{what}, but its job {job_id} is {state}", evidence=evidence)


def parts_without_units(reading: Reading, n: int) -> Iterator[Finding]:
    for kind, subject, missing in run_statement(reading, "parts_without_units", n=n):
        yield Finding(
            f"{kind} {subject}",
            f"refers to unit {missing}, which does not exist",
            evidence={"kind": "orphan", "wal_id": missing},
        )


def miscounted_admissions(reading: Reading, n: int) -> Iterator[Finding]:
    """Yield datasets whose count of admitted notices is not the number of their units."""
    for dataset, counted, found in run_statement(reading, "miscounted_admissions", fate=str(Fate.ADMITTED), n=n):
        yield Finding(
            f"COUNTS {dataset}/{Fate.ADMITTED}",
            f"the count is {int(counted)}, but there are {int(found)} units",
            evidence={"kind": "count", "dataset": dataset, "counted": int(counted), "found": int(found)},
        )
