"""Messages that were not admitted: rejected bodies are stored and can be parsed again; ignored records are counted.

Invariants: a body is never deleted; one that is admitted later is marked with its fate and the time; one with an
invalid signature is parsed again only if its code is given.
"""

from __future__ import annotations

from typing import Any

import msgspec

from holdfast.core.records import time_text
from holdfast.nodd.admission import Admitted, FeedMessage, admit
from holdfast.nodd.dataset import Datasets
from holdfast.nodd.notices import parse
from holdfast.nodd.signatures import UNTRUSTED
from holdfast.nodd.statements import run_statement
from holdfast.nodd.units import Fate
from holdfast.store import Store


class RejectedBody(msgspec.Struct, frozen=True):
    """A stored body that could not be parsed."""

    sha256: str
    body: str
    code: str
    message: str
    times: int
    first_at: str
    last_at: str
    replayed_at: str | None
    fate: str | None


def listed(store: Store[Any], *, code: str | None = None, limit: int = 100) -> list[RejectedBody]:
    """Return rejected bodies, newest first."""
    with store.reading() as reading:
        return [RejectedBody(*row) for row in run_statement(reading, "list_rejected", code=code, n=limit)]


class IgnoredShape(msgspec.Struct, frozen=True):
    """Ignored records with one reason, whose subjects differ only in their digits."""

    reason: str
    shape: str
    example: str  # the last one
    times: int
    first_at: str
    last_at: str


def ignored(store: Store[Any], *, reason: str | None = None, limit: int = 100) -> list[IgnoredShape]:
    """Return what was ignored, newest first."""
    with store.reading() as reading:
        return [IgnoredShape(*row) for row in run_statement(reading, "list_ignored", reason=reason, n=limit)]


def replay(
    store: Store[Any], datasets: Datasets, *, actor: str, code: str | None = None, limit: int = 100
) -> list[Admitted]:
    """Parse rejected bodies again; admit and mark those that are valid now, and return the fates of all."""
    answers: list[Admitted] = []
    for kept in listed(store, code=code, limit=limit):
        if kept.replayed_at is not None or (code is None and kept.code in UNTRUSTED):
            continue
        if still := parse(kept.body, datasets).rejected:
            # Not admitted again: that would count a second delivery.
            answers += [Admitted(fate=Fate.REJECTED, reason=f"{one.code}: {one.message}") for one in still]
            continue
        found = admit(store, [FeedMessage(kept.body)], datasets, actor=actor)
        answers += found
        fates = ",".join(sorted({str(one.fate) for one in found}))
        with store.transaction() as transaction:
            at = time_text(transaction.now())
            run_statement(transaction, "mark_rejected", sha256=kept.sha256, at=at, fate=fates)
    return answers
