"""The chain of seals: whether each follows the one before, and whether the chain ends where it should.

Invariants: seals are read in pages, first to last, without those added after the chain was opened; a seal that was
changed is not trusted, and so the start of the next block is not known; every given head is compared with the chain.
"""

from collections import defaultdict
from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

from holdfast.audit.seals.horizons import Horizons, floor_flaw, floor_of
from holdfast.audit.seals.problems import SealProblem, SealProblems
from holdfast.audit.seals.sealer import ROW_FORMAT, Head, genesis, head_of, seal_hash
from holdfast.core.seals import Seal
from holdfast.store.store import Store
from holdfast.store.verbs.seals import BEFORE_ALL, SEQ_MIN, Key

PAGE = 500


class ChainLink(NamedTuple):
    """A seal that can be trusted, the key after which its rows begin, and whether a seal before it is missing."""

    start: Key
    seal: Seal
    after_gap: bool


class SealChain:
    """The seals of a ledger at one moment, read once from first to last."""

    def __init__(self, store: Store[Any], problems: SealProblems, heads: Sequence[Head]) -> None:
        self._store, self._problems = store, problems
        self._heads: dict[int, list[Head]] = defaultdict(list)  # by seal number, each head once
        for head in sorted(set(heads), key=lambda head: head.seal):
            self._heads[head.seal].append(head)
        with store.reading() as reading:
            self.meta = reading.settings.read()
            self._newest = reading.seals.last()
            early = reading.seals.page(after=SEQ_MIN, upto=0, limit=PAGE)
            self._horizons = Horizons(reading.seals, self.meta, one_writer=store.one_writer)
            self.floor_flaw = floor_flaw(reading.seals, self.meta)
            self.floor = floor_of(reading.seals, self.meta, self._newest)  # rows up to here are never sealed any more
        self._upto = max(self._newest.seal_id, 0) if self._newest else 0
        self._read = 0  # the number of the last seal that was read
        self._previous = genesis(self.meta["ledger_id"])
        self._gap = False
        self.end: Key = BEFORE_ALL  # the key of the last trusted seal
        self.rows = 0  # closed by the seals that were read
        for seal in early:
            self._add("seal_order", seal.seal_id, f"seal {seal.seal_id} was inserted: the first seal is number 1")
        for head in self._heads.get(0, ()):
            self._compare_head(head, self._previous, None)

    @property
    def is_read(self) -> bool:
        return self._read >= self._upto

    @property
    def head(self) -> Head:
        """Where the chain ends, once it is read."""
        return head_of(self.meta, self._newest, self.rows)

    def next_links(self) -> list[ChainLink]:
        """Read a page of seals, verify them, and return those that can be trusted."""
        with self._store.reading() as reading:
            page = reading.seals.page(after=self._read, upto=self._upto, limit=PAGE)
        if not page:  # seals were removed during the verification
            self._add(
                "seal_missing",
                self._read + 1,
                f"{_seals(self._read + 1, self._upto)} missing: removed during the verification",
            )
            self._read = self._upto
        return [link for seal in page for link in self._judged(seal)]

    def judge_end(self) -> None:
        """Compare the last seal with the setting seal_head, and with the given heads."""
        found = self._newest.mark if self._newest else None
        noted = self.meta.get("seal_head")
        if noted != found:
            number = (noted or "").split(" ")[0]
            if number.isdecimal() and int(number) > self._upto:
                cut = _seals(self._upto + 1, int(number))
                self._add(
                    "seal_missing",
                    self._upto + 1,
                    f"{cut} missing: the setting seal_head names seal {number} as the last",
                )
            else:
                self._add(
                    "head_differs",
                    self._upto or None,
                    f"the setting seal_head is {noted!r}, but the last seal is {found!r}",
                )
        for named in self._heads:
            if named > self._upto:
                self._add(
                    "head_differs", named, f"the head names seal {named}, but the chain ends at seal {self._upto}"
                )

    def _judged(self, seal: Seal) -> Iterator[ChainLink]:
        if seal.seal_id != self._read + 1:
            self._add("seal_missing", self._read + 1, f"{_seals(self._read + 1, seal.seal_id - 1)} missing")
            self._miss_head(seal.seal_id)
            self._gap = True
        elif seal.previous != self._previous:
            self._add("seal_order", seal.seal_id, f"seal {seal.seal_id} does not contain the hash of seal {self._read}")
        self._read, self._previous = seal.seal_id, seal.hash
        self.rows += seal.rows
        for head in self._heads.get(seal.seal_id, ()):
            self._compare_head(head, seal.hash, seal)
        if seal_hash(seal) != seal.hash:
            self._add("seal_changed", seal.seal_id, f"the fields of seal {seal.seal_id} do not have its hash")
            self._gap = True
        elif seal.format != ROW_FORMAT:
            self._add(
                "seal_format",
                seal.seal_id,
                f"seal {seal.seal_id} has row format {seal.format}; this Holdfast knows format {ROW_FORMAT}",
            )
            self._gap = True
        elif seal.end <= self.end:
            self._add("seal_order", seal.seal_id, f"seal {seal.seal_id} ends before the end of the seal before it")
            self._gap = True
        else:
            for number, why in self._horizons.flaws(seal):
                self._add("seal_changed", number, why)
            yield ChainLink(self.end, seal, self._gap)
            self.end, self._gap = seal.end, False

    def _compare_head(self, head: Head, found: str, seal: Seal | None) -> None:
        if head.hash != found:
            self._add("head_differs", head.seal or None, f"seal {head.seal} does not have the hash of the head")
        elif seal and (head.epoch, head.sealed_at, head.rows) != (seal.epoch, seal.sealed_at, self.rows):
            self._add("head_differs", head.seal, f"epoch, time or rows of seal {head.seal} differ from the head")

    def _miss_head(self, next_seal: int) -> None:
        for number in self._heads:
            if self._read < number < next_seal:
                self._add("head_differs", number, f"the head names seal {number}, which is missing")

    def _add(self, kind: str, seal: int | None, detail: str) -> None:
        self._problems.add(SealProblem(kind=kind, seal=seal, detail=detail))


def _seals(first: int, last: int) -> str:
    return f"seal {first} is" if first == last else f"seals {first} to {last} are"
