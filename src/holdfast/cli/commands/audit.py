"""`holdfast audit`: prove that history is what it was when it was sealed.

Invariants: `verify` and `export` write nothing to the ledger; `head` seals what can be sealed first; `verify` exits
with 1 when it found anything; no file is overwritten.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec
import typer

from holdfast.audit.seals import heads, keys
from holdfast.audit.seals.export import ExportSummary, export_file
from holdfast.audit.seals.export import export as export_stream
from holdfast.audit.seals.problems import SealProblem
from holdfast.audit.seals.sealer import Head
from holdfast.audit.seals.sealer import head as current_head
from holdfast.audit.seals.verify import VerifyReport
from holdfast.audit.seals.verify import verify as recompute
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.options import Json
from holdfast.cli.output import Column
from holdfast.core.errors import InputError

audit = group("Prove that history is what it was: verify, head, export.", "audit")


# ---------------------------------------------------------------------------------------------------------------------
# verify


@audit.command()
@command(Location.unopened)
def verify(
    location: Location,
    *,
    head: Annotated[
        Path | None, typer.Option("--head", metavar="FILE", help="A head that was kept, or several, one a line.")
    ] = None,
    public_key: Annotated[
        Path | None, typer.Option("--public-key", metavar="FILE", help="The key that must have signed each of them.")
    ] = None,
    archives: Annotated[
        Path | None, typer.Option("--archives", metavar="DIR", help="Where the archives' files are: verify them too.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Recompute every seal from the journal, and say where history differs.

    Exit code 1 if anything does. It reads in short transactions: the ledger may be in use.
    """
    if public_key is not None and head is None:
        raise InputError("--public-key is for a head that was kept", next_step="Give --head FILE too.")
    if archives is not None and not archives.is_dir():
        raise InputError(f"{archives} is no directory", context={"archives": str(archives)})
    kept = heads.read_heads(head, public_key=public_key) if head else []
    with location.open() as store, output.progress(as_json=as_json) as show:
        on_progress = (lambda reached, last: show("verifying", reached, last)) if show else None
        report = recompute(store, head=[one.head for one in kept], archives=archives, on_progress=on_progress)
    return Answer(msgspec.to_builtins(report), lambda: _print_report(report, kept), 0 if report.ok else 1)


def _print_report(report: VerifyReport, kept: Sequence[heads.SignedHead]) -> None:
    counts = [f"{_rows(report.sealed)} sealed", f"{report.unsealed:,} not sealed yet"]
    if report.archived:
        counts.append(f"{report.archived:,} archived")
    output.line(f"{'ok' if report.ok else 'NOT OK'}: {', '.join(counts)}")
    output.line(f"head: seal {report.head.seal} {report.head.hash}")
    if kept and report.ok:
        output.line(_contained(kept))
    if report.problems:
        columns = [Column("PROBLEM"), Column("SEAL", right=True), Column("ROWS"), Column("FROM"), Column("TO")]
        rows = [[p.kind, p.seal or "", _numbers(p), p.at or "", p.to_at or "", p.detail] for p in report.problems]
        output.table([*columns, Column("DETAIL", folds=True)], rows)


def _contained(kept: Sequence[heads.SignedHead]) -> str:
    newest = max(kept, key=lambda head: head.seal)
    keys = sorted({head.public_key or "" for head in kept})
    by = "not signed" if keys == [""] else f"signed by {' and '.join(key or 'nobody' for key in keys)}"
    if len(kept) == 1:
        return f"kept: seal {newest.seal}, which the chain contains, {by}"
    return f"kept: {len(kept)} heads, the newest of seal {newest.seal}, which the chain contains, {by}"


def _numbers(problem: SealProblem) -> str:
    if problem.seq is None:
        return ""
    return str(problem.seq) if problem.to_seq in (None, problem.seq) else f"{problem.seq} to {problem.to_seq}"


# ---------------------------------------------------------------------------------------------------------------------
# head, keygen


@audit.command()
@command(Location.unopened)
def head(
    location: Location,
    *,
    sign: Annotated[
        Path | None, typer.Option("--sign", metavar="KEY", help="Sign it with this private key (see keygen).")
    ] = None,
) -> Answer:
    """Seal what can be sealed, then print where the chain ends: what to keep elsewhere.

    `holdfast audit head --json > head.json` is a file that `verify --head` takes.
    """
    private = keys.private_key(sign) if sign else None
    with location.open() as store:
        found: Head = current_head(store)
    if private is not None:
        found = heads.sign(found, private)
    value: dict[str, Any] = msgspec.to_builtins(found)
    return Answer(value, lambda: output.fields((name, "none" if v is None else str(v)) for name, v in value.items()))


@audit.command()
@command()
def keygen(
    *,
    path: Annotated[
        Path, typer.Argument(metavar="PATH", help="Where the private key goes; PATH.pub is the public one.")
    ],
) -> Answer:
    """Make a pair of Ed25519 keys: one to sign heads with, one to verify them."""
    private, public = keys.make_keys(path)
    value = {"private_key": str(private), "public_key": str(public)}
    return Answer(value, f"{private} signs: keep it to yourself\n{public} verifies: give it away")


# ---------------------------------------------------------------------------------------------------------------------
# export


@audit.command()
@command(Location.unopened)
def export(
    location: Location,
    *,
    out: Annotated[Path | None, typer.Option("--out", metavar="FILE", help="A new file; without it, print.")] = None,
    from_seal: Annotated[int, typer.Option("--from-seal", metavar="N", min=1, help="The first seal.")] = 1,
    to_seal: Annotated[
        int | None, typer.Option("--to-seal", metavar="N", min=1, help="The last seal; without it, the newest.")
    ] = None,
    as_json: Json = False,
) -> Answer | None:
    """Write seals and the rows that they close as JSON Lines, from which anybody can recompute the chain."""
    if out is None and as_json:
        raise InputError("--json tells of a file that was written", next_step="Give --out FILE, or leave --json out.")
    with location.open() as store:
        if out is None:
            with _printed() as sink:
                export_stream(store, sink, from_seal=from_seal, to_seal=to_seal)
            return None
        exported = export_file(store, out, from_seal=from_seal, to_seal=to_seal)
    return Answer({"file": str(out), **msgspec.to_builtins(exported)}, _said(out, exported))


@contextmanager
def _printed() -> Iterator[BinaryIO]:
    """Yield standard output as bytes; what is written to a closed one is dropped."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        yield stream
        return
    with Path(os.devnull).open("wb") as nothing:
        yield nothing


def _said(out: Path, exported: ExportSummary) -> str:
    return f"{out}: seals {exported.from_seal} to {exported.to_seal}, {_rows(exported.rows)}"


def _rows(n: int) -> str:
    return "1 row" if n == 1 else f"{n:,} rows"
