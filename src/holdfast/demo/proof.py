"""The proof of the demonstration: numbers, and the result of each injected fault.

Invariants: everything here is read back from the ledger and from the files of the catalogue.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec

from holdfast import Ledger
from holdfast.audit.check.runner import check
from holdfast.audit.seals.sealer import seal
from holdfast.audit.seals.verify import verify

ANY = "any result"  # the earlier of two writes is catalogued or superseded, depending on which happens first


class InjectedFault(msgspec.Struct, frozen=True):
    """A fault that the demonstration injects: the objects that it concerns, and the expected result for each."""

    name: str
    what: str
    expected: str
    uris: tuple[str, ...] = ()
    ends: tuple[str, ...] = ()  # expected end of each unit of an object, by generation


class Fact(NamedTuple):
    """A number that was found, and the one that is expected."""

    name: str
    found: int
    expected: int

    @property
    def holds(self) -> bool:
        return self.found == self.expected


class Proof:
    """The state of the ledger at the end of the demonstration."""

    def __init__(
        self,
        ledger: Ledger,
        folder: Path,
        faults: Sequence[InjectedFault],
        fates: Counter[str],
        *,
        repeated: int,  # executions that repeated notices caused
    ) -> None:
        self._ledger, self._folder, self._faults, self._fates = ledger, folder, faults, fates
        self._repeated = repeated

    def facts(self) -> list[Fact]:
        """Seal and verify the ledger, and return every number with the one that is expected."""
        seal(self._ledger.store)
        checked, verified = check(self._ledger.store), verify(self._ledger.store)
        [[units, succeeded, items]] = self._rows(
            "SELECT (SELECT count(*) FROM nodd_units),"
            " (SELECT count(*) FROM nodd_wal_records WHERE status = 'succeeded' AND ext_superseded_by IS NULL),"
            " (SELECT count(*) FROM nodd_items)"
        )
        [[terminal]] = self._rows("SELECT count(*) FROM nodd_wal_records WHERE status IN ('succeeded', 'quarantined')")
        [[edges, distinct]] = self._rows("SELECT count(*), count(DISTINCT record_id) FROM nodd_provenance")
        [[twice]] = self._rows(
            "SELECT count(*) FROM (SELECT subject / 1000000 AS job_id FROM holdfast_edges"
            " WHERE machine = 'EXECUTION' AND target = 'COMMITTED' GROUP BY 1 HAVING count(*) > 1) t"
        )
        files = sum(1 for _ in (self._folder / "catalog").rglob("????????-*.json"))
        ended = sum(self._is_as_expected(fault) for fault in self._faults)
        facts: list[tuple[str, int, int]] = [
            ("units finished (succeeded or quarantined)", terminal, units),
            (
                "objects catalogued",
                succeeded,
                self.objects() - 2,
            ),  # all but the truncated and the forbidden one
            ("faults with the expected result", ended, len(self._faults)),
            ("catalogue items, one for each catalogued object", items, succeeded),
            ("files of the static catalogue", files, items),
            ("distinct provenance records", distinct, edges),
            ("units committed twice", twice, 0),
            ("executions caused by repeated notices", self._repeated, 0),
            ("violations found by `holdfast check`", len(checked.violations), 0),
            ("problems found by `holdfast audit verify`", len(verified.problems), 0),
        ]
        return [Fact(*one) for one in facts]

    def objects(self) -> int:
        [[n]] = self._rows("SELECT count(DISTINCT source_uri) FROM nodd_units")
        return int(n)

    def ends(self) -> list[tuple[InjectedFault, str]]:
        """Return each fault with its result."""
        return [(fault, self._ended(fault)) for fault in self._faults]

    def _ended(self, fault: InjectedFault) -> str:
        if fault.name == "garbage":
            return f"{self._fates['rejected']} rejected"
        if fault.name == "test event":
            return f"{self._fates['ignored']} ignored"
        if fault.name == "kill -9":
            [[again]] = self._rows(
                "SELECT count(DISTINCT job_id) FROM holdfast_executions WHERE error_code = 'lease_expired'"
            )
            return f"{again} units retried after lost leases"
        words = Counter(word for uri in fault.uris for word in self._unit(uri))
        return "; ".join(f"{n} {word}" for word, n in sorted(words.items()))

    def _is_as_expected(self, fault: InjectedFault) -> bool:
        if fault.uris:
            return all(_matches(self._unit(uri), fault.ends) for uri in fault.uris)
        return {"garbage": self._fates["rejected"] == 1, "test event": self._fates["ignored"] >= 1}.get(
            fault.name, True
        )

    def _unit(self, uri: str) -> list[str]:
        """Return the end of each unit of an object, by generation."""
        with self._ledger.store.reading() as reading:
            _, rows = reading.query(
                "SELECT w.status, w.ext_quarantine_code, w.integrity_status FROM nodd_wal_records w JOIN nodd_units u"
                " ON u.wal_id = w.wal_id WHERE u.source_uri = :uri ORDER BY u.generation",
                {"uri": uri},
            )
        return [
            f"{status}{f' ({code})' if code else ''}{', suspect' if integrity == 'suspect' else ''}"
            for status, code, integrity in rows
        ]

    def _rows(self, sql: str) -> list[tuple[Any, ...]]:
        with self._ledger.store.reading() as reading:
            return reading.query(sql, {})[1]


def _matches(ended: Sequence[str], expected: Sequence[str]) -> bool:
    return len(ended) == len(expected) and all(
        wanted in (ANY, found) for found, wanted in zip(ended, expected, strict=True)
    )
