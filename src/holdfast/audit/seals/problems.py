"""What a verification finds, each finding with its place.

Invariants: `kind` is one of KINDS, which scripts match on; the list has an end, however broken the ledger is, and what
was left out is counted.
"""

import msgspec

KINDS = (
    "row_changed",  # a row that cannot be read
    "row_missing",  # a block has fewer rows than were sealed
    "row_inserted",  # it has more, or rows lie where none was sealed
    "block_differs",  # as many rows as were sealed, but not the same
    "seal_changed",  # a seal that does not have its own hash
    "seal_missing",
    "seal_order",  # a seal that does not follow the one before it
    "head_differs",  # the chain does not contain the head, or does not end where the ledger has noted
    "floor_differs",  # the number up to which all rows are said to be sealed is not one, or hides rows
    "archive_missing",
    "archive_changed",  # a file with another SHA-256, or that cannot be read
    "archive_differs",  # its seals are not the ledger's
    "archive_unnoted",  # the journal does not tell of it
    "more",  # how many others there are
)
LISTED_MAX = 1000


class SealProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One finding: which seal, from which row to which, from when to when, and in words."""

    kind: str
    seal: int | None = None
    seq: int | None = None
    to_seq: int | None = None
    at: str | None = None
    to_at: str | None = None
    detail: str


class SealProblems:
    """A list of problems that does not outgrow memory."""

    def __init__(self) -> None:
        self._listed: list[SealProblem] = []
        self.found = 0

    @property
    def is_full(self) -> bool:
        """Whether what is added now is counted only."""
        return len(self._listed) >= LISTED_MAX

    def add(self, problem: SealProblem) -> None:
        self.found += 1
        if not self.is_full:
            self._listed.append(problem)

    def listed(self) -> tuple[SealProblem, ...]:
        """Return the problems, in the order in which they were found."""
        left_out = self.found - len(self._listed)
        more = [SealProblem(kind="more", detail=f"{left_out} more problems are not listed")] if left_out else []
        return (*self._listed, *more)
