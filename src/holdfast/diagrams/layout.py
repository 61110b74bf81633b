"""The layout of a diagram: a layered drawing, from left to right.

States are on even ranks; every arrow has its label on an odd rank between them and a slot in each rank that it passes,
so no arrow crosses a state and no label covers another. Arrows that close a cycle are laid out in reverse, but drawn in
their own direction.

Invariants: the same diagram always gets the same layout; boxes and labels of one rank never overlap.
"""

from collections.abc import Sequence
from dataclasses import dataclass, field
from itertools import combinations, pairwise, product
from math import inf

from holdfast.diagrams.model import Arrow, Diagram

RANK_GAP = 26.0
SLOT_GAP = 14.0
LINE_GAP = 12.0  # beside an arrow that only passes a rank
PORT_GAP = 15.0
SWEEPS = 24

Point = tuple[float, float]
Size = tuple[float, float]


@dataclass(slots=True, eq=False)
class Slot:
    """An item of a rank: a state, the dot of a new record, a label, or an arrow that passes the rank."""

    rank: int
    width: float
    height: float
    state: bool
    x: float = 0.0  # its centre
    y: float = 0.0
    left: list["Slot"] = field(default_factory=list)
    right: list["Slot"] = field(default_factory=list)


@dataclass(slots=True)
class Wire:
    """The path of an arrow: its slots from source to target, and the slot of its label."""

    arrow: Arrow
    slots: list[Slot]
    label: Slot


@dataclass(slots=True)
class Layout:
    """A finished drawing: its size, the slot of each state (None is the dot of a new record), and its wires."""

    width: float
    height: float
    places: dict[str | None, Slot]
    wires: list[Wire]
    ranks: list[list[Slot]]

    def line(self, wire: Wire) -> list[tuple[Point, Point]]:
        """Return the level stretches of a wire, in its direction; curves join them."""
        forward = wire.slots[0].rank < wire.slots[-1].rank
        stretches: list[tuple[Point, Point]] = []
        for before, slot, after in zip(wire.slots, wire.slots[1:], wire.slots[2:], strict=False):
            half = max(other.width for other in self.ranks[slot.rank]) / 2 * (1 if forward else -1)
            stretches.append(((slot.x - half, slot.y), (slot.x + half, slot.y)))
            if before is wire.slots[0]:
                start = _port(before, slot)
                stretches.insert(0, (start, start))
            if after is wire.slots[-1]:
                end = _port(after, slot)
                stretches.append((end, end))
        return stretches


def lay_out(diagram: Diagram, sizes: dict[str | None, Size], label_sizes: Sequence[Size]) -> Layout:
    """Place a diagram whose boxes and labels have these sizes."""
    turned = _closing(diagram)
    ranks_of = _ranks(diagram, turned)
    places = {state: Slot(ranks_of[state] * 2, *sizes[state], state=True) for state in (None, *diagram.states)}
    wires = [
        _wire(arrow, places, size, turned=arrow in turned)
        for arrow, size in zip(diagram.arrows, label_sizes, strict=True)
    ]
    for slot in places.values():
        ports = max(len(slot.left), len(slot.right))
        slot.height = max(slot.height, PORT_GAP * (ports + 0.6))
    ranks = _ordered([*places.values(), *(slot for wire in wires for slot in wire.slots[1:-1])])
    width = _set_x(ranks)
    _set_y(ranks)
    _straighten(ranks, wires)
    top = min(slot.y - slot.height / 2 for rank in ranks for slot in rank)
    for rank in ranks:
        for slot in rank:
            slot.y -= top
    height = max(slot.y + slot.height / 2 for rank in ranks for slot in rank)
    return Layout(width, height, places, wires, ranks)


# ---------------------------------------------------------------------------------------------------------------------
# Ranks


def _closing(diagram: Diagram) -> set[Arrow]:
    """Return the arrows that close a cycle, found by a search from the dot in the table's order."""
    closing: set[Arrow] = set()
    done: set[str | None] = set()

    def visit(state: str | None, above: frozenset[str | None]) -> None:
        done.add(state)
        for arrow in diagram.arrows:
            if arrow.source != state:
                continue
            if arrow.target in above:
                closing.add(arrow)
            elif arrow.target not in done:
                visit(arrow.target, above | {arrow.target})

    visit(None, frozenset([None]))
    return closing


def _ranks(diagram: Diagram, turned: set[Arrow]) -> dict[str | None, int]:
    """Put every state one rank beyond the furthest state that leads to it."""
    ranks: dict[str | None, int] = dict.fromkeys((None, *diagram.states), 0)
    for _ in ranks:
        for arrow in diagram.arrows:
            if arrow not in turned:
                ranks[arrow.target] = max(ranks[arrow.target], ranks[arrow.source] + 1)
    return ranks


def _wire(arrow: Arrow, places: dict[str | None, Slot], label_size: Size, *, turned: bool) -> Wire:
    first, last = places[arrow.source], places[arrow.target]
    if turned:
        first, last = last, first
    between = range(first.rank + 1, last.rank)
    # The label is in the middle, on an odd rank: labels are only there.
    middle = between[len(between) // 2]
    middle -= 1 - middle % 2
    passing = [Slot(rank, *(label_size if rank == middle else (0.0, 0.0)), state=False) for rank in between]
    slots = [first, *passing, last]
    for one, other in pairwise(slots):
        one.right.append(other)
        other.left.append(one)
    label = passing[between.index(middle)]
    return Wire(arrow, slots[::-1] if turned else slots, label)


# ---------------------------------------------------------------------------------------------------------------------
# Order within a rank: few crossings


def _ordered(slots: list[Slot]) -> list[list[Slot]]:
    ranks: list[list[Slot]] = [[] for _ in range(max(slot.rank for slot in slots) + 1)]
    for slot in slots:
        ranks[slot.rank].append(slot)
    best = [list(rank) for rank in ranks]
    for sweep in range(SWEEPS):
        for rank in ranks if sweep % 2 == 0 else ranks[::-1]:
            _sort_by_neighbours(rank, ranks, rightward=sweep % 2 == 0, flip=sweep % 4 > 1)
        _swap_neighbours(ranks)
        if _crossings(ranks) < _crossings(best):
            best = [list(rank) for rank in ranks]
    return best


def _sort_by_neighbours(rank: list[Slot], ranks: list[list[Slot]], *, rightward: bool, flip: bool) -> None:
    """Sort a rank by the mean position of its neighbours: of the rank behind, then of the rank ahead."""
    place = {id(slot): float(position) for other in ranks for position, slot in enumerate(other)}
    means = {
        id(slot): (_mean([place[id(n)] for n in slot.left]), _mean([place[id(n)] for n in slot.right])) for slot in rank
    }
    if flip:
        rank.reverse()
    rank.sort(key=lambda slot: means[id(slot)] if rightward else means[id(slot)][::-1])


def _swap_neighbours(ranks: list[list[Slot]]) -> None:
    for rank in ranks:
        for position in range(len(rank) - 1):
            before = _crossings(ranks)
            rank[position : position + 2] = rank[position : position + 2][::-1]
            if _crossings(ranks) >= before:
                rank[position : position + 2] = rank[position : position + 2][::-1]


def _crossings(ranks: list[list[Slot]]) -> int:
    count = 0
    for one, other in pairwise(ranks):
        place = {id(slot): position for position, slot in enumerate(other)}
        for upper, lower in combinations(one, 2):
            count += sum(place[id(a)] > place[id(b)] for a, b in product(upper.right, lower.right))
    return count


def _mean(numbers: Sequence[float]) -> float:
    return sum(numbers) / len(numbers) if numbers else 0.0


# ---------------------------------------------------------------------------------------------------------------------
# Coordinates


def _set_x(ranks: list[list[Slot]]) -> float:
    x = 0.0
    for rank in ranks:
        width = max(slot.width for slot in rank)
        for slot in rank:
            slot.x = x + width / 2
        x += width + RANK_GAP
    return x - RANK_GAP


def _set_y(ranks: list[list[Slot]]) -> None:
    """Move every slot towards the middle of its neighbours, many times, as far as its rank has room."""
    for rank in ranks:
        _settle(rank, [0.0] * len(rank))
    for sweep in range(SWEEPS * 8):
        for rank in ranks if sweep % 2 == 0 else ranks[::-1]:
            _settle(rank, [_wanted(slot) for slot in rank])


def _wanted(slot: Slot) -> float:
    # Keeps long arrows straight: the slots of one arrow pull each other harder than states do.
    pulls = [(1.0 if slot.state or other.state else 8.0, other.y) for other in (*slot.left, *slot.right)]
    return sum(weight * y for weight, y in pulls) / sum(weight for weight, _ in pulls)


def _settle(rank: list[Slot], wanted: list[float]) -> None:
    """Move each slot as near to its wanted height as the order and the gaps allow (pool adjacent violators)."""
    offsets = [0.0]
    for upper, lower in pairwise(rank):
        offsets.append(offsets[-1] + _apart(upper, lower))
    pools: list[tuple[float, int]] = []
    for want, offset in zip(wanted, offsets, strict=True):
        pools.append((want - offset, 1))
        while len(pools) > 1 and pools[-2][0] > pools[-1][0]:
            (one, n), (other, m) = pools[-2:]
            pools[-2:] = [((one * n + other * m) / (n + m), n + m)]
    levels = [level for level, n in pools for _ in range(n)]
    for slot, level, offset in zip(rank, levels, offsets, strict=True):
        slot.y = level + offset


def _straighten(ranks: list[list[Slot]], wires: list[Wire]) -> None:
    """Make each arrow level between its ends, where the ranks have room."""
    for _ in range(3):
        for wire in sorted(wires, key=lambda wire: -wire.label.y):
            passing = wire.slots[1:-1]
            lowest, highest = -inf, inf
            for slot in passing:
                rank = ranks[slot.rank]
                position = rank.index(slot)
                if position > 0:
                    lowest = max(lowest, rank[position - 1].y + _apart(rank[position - 1], slot))
                if position + 1 < len(rank):
                    highest = min(highest, rank[position + 1].y - _apart(slot, rank[position + 1]))
            if lowest <= highest:
                level = min(max(_mean([slot.y for slot in passing]), lowest), highest)
                for slot in passing:
                    slot.y = level


def _apart(upper: Slot, lower: Slot) -> float:
    gap = SLOT_GAP if upper.height and lower.height else LINE_GAP
    return (upper.height + lower.height) / 2 + gap


def _port(box: Slot, neighbour: Slot) -> Point:
    """Return where a wire meets a box: the wires of a side are spread in the order of their other ends."""
    on_left = neighbour.rank < box.rank
    side = sorted(box.left if on_left else box.right, key=lambda slot: slot.y)
    position = next(i for i, slot in enumerate(side) if slot is neighbour)
    y = box.y + (position - (len(side) - 1) / 2) * PORT_GAP
    return box.x + (-box.width / 2 if on_left else box.width / 2), y
