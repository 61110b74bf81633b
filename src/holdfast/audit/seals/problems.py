"""The problems that a verification finds, each with its seal and rows.

Invariants: `kind` is one of KINDS, which scripts match on; at most LISTED_MAX problems are listed, the rest counted.
"""

import msgspec

KINDS = (
    "row_changed",  # a row that cannot be read
    "row_missing",  # a block has fewer rows than were sealed
    "row_inserted",  # a block has more rows than were sealed, or rows with impossible numbers
    "block_differs",  # as many rows as were sealed, but not the same ones
    "seal_changed",  # a seal whose fields do not have its hash
    "seal_format",  # a seal whose rows have a format that this Holdfast does not know
    "seal_missing",
    "seal_order",  # a seal that does not follow the one before it
    "head_differs",  # the chain does not contain a head, or does not end at the seal in seal_head
    "floor_differs",  # the floor below which all rows are sealed is false, or hides rows
    "archive_missing",
    "archive_changed",  # a file that cannot be read, or has another SHA-256
    "archive_differs",  # an archive whose seals differ from the ledger's
    "archive_unnoted",  # the journal has no row about the archive
    "more",  # the number of problems that are not listed
)
LISTED_MAX = 1000


class SealProblem(msgspec.Struct, frozen=True, kw_only=True):
    """One problem: its seal, its first and last row with their times, and a sentence."""

    kind: str
    seal: int | None = None
    seq: int | None = None
    to_seq: int | None = None
    at: str | None = None
    to_at: str | None = None
    detail: str


class SealProblems:
    """A list of problems of limited size."""

    def __init__(self) -> None:
        self._listed: list[SealProblem] = []
        self.found = 0

    @property
    def is_full(self) -> bool:
        """Whether further problems are only counted."""
        return len(self._listed) >= LISTED_MAX

    def add(self, problem: SealProblem) -> None:
        self.found += 1
        if not self.is_full:
            self._listed.append(problem)

    def listed(self) -> tuple[SealProblem, ...]:
        """Return the problems in the order in which they were found, with the number of those not listed."""
        left_out = self.found - len(self._listed)
        more = [SealProblem(kind="more", detail=f"{left_out} more problems are not listed")] if left_out else []
        return (*self._listed, *more)
