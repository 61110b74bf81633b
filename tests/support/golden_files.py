"""The golden files of the ledger's own files: a snapshot and an archive of one small ledger, as readable lines.

Invariants: the ledger's clock does not move, so its times and the digests of payloads are kept; a random id, and a hash
that depends on one, is replaced by a number, the same number wherever it occurs.
"""

from __future__ import annotations

import gzip
import json
import re
import tempfile
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from holdfast import Execution, Ledger, Quarantine
from holdfast.store.tables import table_named
from holdfast.testing import VirtualClock, virtual_world
from tests.cli.commands import holdfast
from tests.support.golden_text import TIME

FOLDER = "tests/golden"
BEGUN = datetime(2020, 1, 1, 12, tzinfo=UTC)
ID = re.compile(r"\b[0-9a-f]{32}\b")
RANDOM = re.compile(r"\b(?:[0-9a-f]{64}|[0-9a-f]{32})\b")
CALL = '["calls",'
MOVE = "move_id"


def files() -> dict[str, str]:
    """Return the lines of a snapshot, and of the archive that retention makes of the same ledger."""
    with tempfile.TemporaryDirectory(prefix="holdfast-golden-") as name:
        folder = Path(name)
        db, archives = str(folder / "work.db"), folder / "archives"
        archives.mkdir()
        _work(db)
        holdfast("audit", "head", "--db", db)
        holdfast("snapshot", "create", str(folder / "work.snapshot"), "--db", db)
        kept = ("finished=0", "quarantined=0", "history=0", f"archive_dir={archives}")
        holdfast("gc", *(word for one in kept for word in ("--set", one)), "--db", db)
        holdfast("gc", "--db", db)
        [archive] = sorted(archives.iterdir())
        return {
            f"{FOLDER}/snapshot.jsonl": _lines(folder / "work.snapshot"),
            f"{FOLDER}/archive.jsonl": _lines(archive),
        }


def _work(db: str) -> None:
    """Make a ledger with two jobs: one is done, one is in quarantine."""
    with Ledger(db, world=virtual_world(VirtualClock(BEGUN))) as ledger:

        @ledger.operation("greet")
        def greet(run: Execution, name: str) -> str:
            if not name:
                raise Quarantine("no_name")
            run.progress(0.5, "half way")
            return f"hello {name}"

        ledger.submit(greet.call(name="ann"), client="web", key="a")
        ledger.submit(greet.call(name=""))
        ledger.run_until_idle(concurrency=1)


def _lines(path: Path) -> str:
    """Return the lines of a packed file, with placeholders."""
    numbers: dict[str, int] = {}

    def numbered(hit: re.Match[str]) -> str:
        return f"<random-{numbers.setdefault(hit[0], len(numbers) + 1)}>"

    lines = TIME.sub("<time>", gzip.decompress(path.read_bytes()).decode()).splitlines(keepends=True)
    # The digest of a call is that of its payload.
    lines = [(ID if line.startswith(CALL) else RANDOM).sub(numbered, line) for line in lines]
    moves = re.compile(
        "|".join(f'(?<="){re.escape(move)}(?=")' for line in lines for move in _move_ids(json.loads(line)))
    )
    return "".join(moves.sub(numbered, line) for line in lines)


def _move_ids(line: Any) -> list[str]:
    """Return the move id of a line, if it is a row of a table that has one."""
    if isinstance(line, dict) and "execution" in line:
        return [line["execution"][MOVE]]
    table, row = (line[0], line[1:]) if isinstance(line, list) else ("journal", line.get("journal"))
    names = table_named(table).names
    return [row[names.index(MOVE)]] if row and MOVE in names else []
