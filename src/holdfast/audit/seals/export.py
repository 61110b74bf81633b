"""The export: seals and their journal rows, as JSON Lines from which any program can recompute the chain.

It has a header; for each seal its rows as they are hashed (`{"journal": [seq, epoch, xid, …]}`, in order of seq)
and the seal itself (`{"seal": {…}, "exported_rows": n}`); and a last line with the counts, without which the export was
cut off. A seal whose rows were archived comes without rows.

Invariants: blocks are read in short transactions, a page at a time; an export to a file appears under its name whole or
not at all, and replaces nothing; rows that differ from their seal are exported as they are: the reader verifies them.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any, BinaryIO

import msgspec

from holdfast.audit.files.framed import json_line
from holdfast.audit.seals.sealer import HASHED, PAGE, genesis
from holdfast.core.errors import InputError
from holdfast.core.seals import Seal
from holdfast.store.files import new_file
from holdfast.store.store import Store
from holdfast.store.verbs.seals import BEFORE_ALL, Key

VERSION = 2
SEALS_PAGE = 500


class ExportSummary(msgspec.Struct, frozen=True):
    """The range and the size of an export."""

    from_seal: int
    to_seal: int
    seals: int
    rows: int


def export(store: Store[Any], sink: BinaryIO, *, from_seal: int = 1, to_seal: int | None = None) -> ExportSummary:
    """Write the seals of a range, and their rows, to a stream."""
    with store.reading() as reading:
        ledger_id, last = reading.settings.read()["ledger_id"], reading.seals.last()
        newest = last.seal_id if last else 0
        before = reading.seals.page(after=from_seal - 2, upto=from_seal - 1, limit=1) if from_seal > 1 else []
    upto = newest if to_seal is None else to_seal
    if from_seal < 1 or upto > newest or (to_seal is not None and to_seal < from_seal) or from_seal > newest + 1:
        raise InputError(
            f"seals {from_seal} to {upto} do not exist: the ledger has seals 1 to {newest}",
            next_step="Give --from-seal and --to-seal in that range, or seal newer rows with `holdfast audit head`.",
            context={"from_seal": from_seal, "to_seal": upto, "newest": newest},
        )
    start = before[0].end if before else BEFORE_ALL
    header = {
        "holdfast_export": VERSION,
        "ledger_id": ledger_id,
        "from_seal": from_seal,
        "to_seal": upto,
        "previous": before[0].hash if before else genesis(ledger_id),
    }
    sink.write(json_line(header))
    seals = rows = 0
    for seal in _seals(store, from_seal - 1, upto):
        written = _write_block(store, sink, start, seal)
        start = seal.end
        seals, rows = seals + 1, rows + written
    sink.write(json_line({"end": {"seals": seals, "rows": rows}}))
    return ExportSummary(from_seal, upto, seals, rows)


def export_file(store: Store[Any], path: Path, *, from_seal: int = 1, to_seal: int | None = None) -> ExportSummary:
    """Write an export to a new file; raise FileThereError if there is one."""
    with new_file(path) as sink:
        return export(store, sink, from_seal=from_seal, to_seal=to_seal)


def _seals(store: Store[Any], after: int, upto: int) -> Iterator[Seal]:
    while True:
        with store.reading() as reading:
            page = reading.seals.page(after=after, upto=upto, limit=SEALS_PAGE)
        if not page:
            return
        yield from page
        after = page[-1].seal_id


def _write_block(store: Store[Any], sink: BinaryIO, start: Key, seal: Seal) -> int:
    rows, after = 0, seal.low_seq - 1
    while True:
        with store.reading() as reading:
            page = reading.seals.journal_block(start, seal, after=after, limit=PAGE)
        if not page:
            break
        sink.write(b"".join(json_line({"journal": row}) for row in page))
        rows, after = rows + len(page), page[-1][0]
    fields = {name: getattr(seal, name) for name in (*HASHED, "hash")}
    sink.write(json_line({"seal": fields, "exported_rows": rows}))
    return rows
