"""`holdfast audit`: verifies, signs and exports the sealed history.

Invariants: `verify` and `export` write nothing to the ledger; `head` first seals the journal rows that are ready;
`verify` exits with 1 if it finds a problem; no file is overwritten.
"""

import os
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Annotated, Any, BinaryIO

import msgspec

from holdfast.audit.seals import heads, keys
from holdfast.audit.seals.export import export as export_stream
from holdfast.audit.seals.export import export_file
from holdfast.audit.seals.problems import SealProblem
from holdfast.audit.seals.sealer import Head
from holdfast.audit.seals.sealer import head as current_head
from holdfast.audit.seals.verify import VerifyReport
from holdfast.audit.seals.verify import verify as recompute
from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command, group
from holdfast.cli.declare import argument, option
from holdfast.cli.options import Json
from holdfast.cli.text import Column
from holdfast.core.errors import InputError
from holdfast.core.spans import counted

audit = group("Verify, sign and export the sealed history.", "audit")


# ---------------------------------------------------------------------------------------------------------------------
# verify


@audit.subcommand()
@command(Location.unopened)
def verify(
    location: Location,
    *,
    head: Annotated[Path | None, option("--head", metavar="FILE", help="File with saved heads, one per line.")] = None,
    public_key: Annotated[
        Path | None,
        option("--public-key", metavar="FILE", help="Public key that must have signed each saved head."),
    ] = None,
    archives: Annotated[
        Path | None, option("--archives", metavar="DIR", help="Directory of the archives; verify them too.")
    ] = None,
    as_json: Json = False,
) -> Answer:
    """Recompute all seals from the journal, and report where the history differs.

    The exit code is 1 if there is a difference. The ledger may be in use: the reads use short transactions.
    """
    if public_key is not None and head is None:
        raise InputError("--public-key needs --head.", next_step="Add --head FILE.")
    if archives is not None and not archives.is_dir():
        raise InputError(f"--archives must be a directory; {archives} is not.", context={"archives": str(archives)})
    kept = heads.read_heads(head, public_key=public_key) if head else []
    with location.open() as store, output.progress(as_json=as_json) as show:
        on_progress = (lambda reached, last: show("verifying", reached, last)) if show else None
        report = recompute(store, head=[one.head for one in kept], archives=archives, on_progress=on_progress)
    return Answer(msgspec.to_builtins(report), lambda: _print_report(report, kept), 0 if report.ok else 1)


def _print_report(report: VerifyReport, kept: Sequence[heads.SignedHead]) -> None:
    counts = [f"{counted(report.sealed, 'row')} sealed", f"{report.unsealed:,} not yet sealed"]
    if report.archived:
        counts.append(f"{report.archived:,} archived")
    output.line(f"{'ok' if report.ok else 'NOT OK'}: {', '.join(counts)}")
    output.line(f"head: seal {report.head.seal} {report.head.hash}")
    if kept and report.ok:
        output.line(_saved_heads(kept))
    if report.problems:
        columns = [Column("PROBLEM"), Column("SEAL", right=True), Column("ROWS"), Column("FROM"), Column("TO")]
        rows = [[p.kind, p.seal or "", _numbers(p), p.at or "", p.to_at or "", p.detail] for p in report.problems]
        output.table([*columns, Column("DETAIL", folds=True)], rows)


def _saved_heads(kept: Sequence[heads.SignedHead]) -> str:
    newest = max(kept, key=lambda head: head.seal)
    keys = sorted({head.public_key or "" for head in kept})
    by = "not signed" if keys == [""] else f"signed by {' and '.join(key or 'no key' for key in keys)}"
    if len(kept) == 1:
        return f"saved head: seal {newest.seal} is in the chain, {by}"
    return f"saved heads: all {len(kept)} are in the chain, the newest is seal {newest.seal}, {by}"


def _numbers(problem: SealProblem) -> str:
    if problem.seq is None:
        return ""
    return str(problem.seq) if problem.to_seq in (None, problem.seq) else f"{problem.seq} to {problem.to_seq}"


# ---------------------------------------------------------------------------------------------------------------------
# head, keygen


@audit.subcommand()
@command(Location.unopened)
def head(
    location: Location,
    *,
    sign: Annotated[
        Path | None,
        option("--sign", metavar="KEY", help="Private key to sign the head with (see `holdfast audit keygen`)."),
    ] = None,
) -> Answer:
    """Seal the journal rows that are ready, and print the head of the chain, to be saved outside the ledger.

    `holdfast audit head --json > head.json` writes a file for `holdfast audit verify --head`.
    """
    private = keys.private_key(sign) if sign else None
    with location.open() as store:
        found: Head = current_head(store)
    if private is not None:
        found = heads.sign(found, private)
    value: dict[str, Any] = msgspec.to_builtins(found)
    return Answer(value, lambda: output.fields((name, "none" if v is None else str(v)) for name, v in value.items()))


@audit.subcommand()
@command()
def keygen(
    *,
    path: Annotated[Path, argument(metavar="PATH", help="File for the private key; the public key goes to PATH.pub.")],
) -> Answer:
    """Create a pair of Ed25519 keys: a private key that signs and a public key that verifies."""
    private, public = keys.make_keys(path)
    value = {"private_key": str(private), "public_key": str(public)}
    return Answer(value, f"{private}: private key, keep it secret.\n{public}: public key, share it.")


# ---------------------------------------------------------------------------------------------------------------------
# export


@audit.subcommand()
@command(Location.unopened)
def export(
    location: Location,
    *,
    out: Annotated[Path | None, option("--out", metavar="FILE", help="New file (default: standard output).")] = None,
    from_seal: Annotated[int, option("--from-seal", metavar="N", min=1, help="Number of the first seal.")] = 1,
    to_seal: Annotated[
        int | None, option("--to-seal", metavar="N", min=1, help="Number of the last seal (default: the newest).")
    ] = None,
    as_json: Json = False,
) -> Answer | None:
    """Export seals and the journal rows that they cover as JSON Lines; the chain can be recomputed from the file."""
    if out is None and as_json:
        raise InputError("--json needs --out.", next_step="Add --out FILE, or remove --json.")
    with location.open() as store:
        if out is None:
            with _standard_output() as sink:
                export_stream(store, sink, from_seal=from_seal, to_seal=to_seal)
            return None
        exported = export_file(store, out, from_seal=from_seal, to_seal=to_seal)
    text = f"Wrote {out}: seals {exported.from_seal} to {exported.to_seal}, {counted(exported.rows, 'row')}."
    return Answer({"file": str(out), **msgspec.to_builtins(exported)}, text)


@contextmanager
def _standard_output() -> Iterator[BinaryIO]:
    """Yield standard output as a byte stream; if it is closed, output is discarded."""
    sys.stdout.flush()
    stream = getattr(sys.stdout, "buffer", None)
    if stream is not None:
        yield stream
        return
    with Path(os.devnull).open("wb") as nothing:
        yield nothing
