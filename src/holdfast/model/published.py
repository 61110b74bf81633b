"""The published model of the write-ahead log, unchanged: for its counts, and to show which errors it does not find.

Clients append entries under keys from a counter, entries are completed or failed, the system crashes and replays what
is pending, and finished entries are cleaned up.

Invariants: the actions, the variables and the bounds are the published ones, so the counts must be equal too. Its
weaknesses (a key is never used twice, an entry is applied and marked in one action, recovery does not crash) are kept,
and a test shows them. Holdfast follows the model in `log.py`.
"""

from collections.abc import Iterator
from functools import partial
from itertools import permutations
from typing import NamedTuple

from holdfast.core.entries import EntryStatus
from holdfast.model.checker import Model, Promise

OPERATIONS = ("Create", "Update", "Delete", "SendMessage")
FAIR = frozenset({"CompleteOperation", "FailOperation", "StartRecovery", "RecoverEntry", "CompleteRecovery"})


class Entry(NamedTuple):
    """One entry of the log."""

    id: int
    client: int
    operation: str
    key: int
    status: EntryStatus
    data: int


class Client(NamedTuple):
    """The open entries of a client, and its next key."""

    pending: frozenset[int]
    next_key: int


class State(NamedTuple):
    """The six variables of the published model."""

    wal: tuple[Entry, ...]
    storage: tuple[int, ...]
    clients: tuple[Client, ...]
    crashed: bool
    recovering: bool
    next_entry: int

    @property
    def idle(self) -> bool:
        return not any(entry.status is EntryStatus.PENDING for entry in self.wal)


def published(
    *, clients: int, entries: int, operations: int, symmetric: bool = True, starved: int | None = None
) -> Model[State]:
    """Return the published model with these bounds.

    States that differ only in the order of clients count once, unless `symmetric` is False: promises to one client can
    be checked only then. `starved` is a client whose entries are never ended: a flaw that NoStarvation must show.
    """
    orders = tuple(permutations(range(clients))) if symmetric else (tuple(range(clients)),)
    return Model(
        initial=State((), (0,) * (entries + 1), (Client(frozenset(), 1),) * clients, False, False, 1),
        steps=partial(_steps, entries, operations, starved),
        invariants={
            "TypeOK": partial(_type_ok, entries),
            "Durability": _durability,
            "Idempotency": lambda state: len({(entry.client, entry.key) for entry in state.wal}) == len(state.wal),
            "AtomicVisibility": _atomic_visibility,
        },
        promises={
            "EventualRecovery": Promise(
                lambda state: state.crashed,
                lambda state: not state.crashed and not state.recovering and state.idle,
            ),
            "EventualCompletion": Promise(lambda state: not state.idle, lambda state: state.idle),
            "ProgressUnderCrash": Promise(lambda state: state.crashed, lambda state: not state.crashed),
            **{
                f"NoStarvation of client {number}": Promise(partial(_waits, number), partial(_does_not_wait, number))
                for number in range(clients)
            },
        },
        fair=FAIR,
        faults=frozenset({"Crash"}),
        bound=partial(_bound, entries * clients * 2 + 1, operations * 2 + 1),
        canonical=partial(_canonical, orders),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Actions


def _steps(entries: int, operations: int, starved: int | None, state: State) -> Iterator[tuple[str, State]]:
    up = not state.crashed and not state.recovering
    if up:
        yield from _appended(entries, operations, state)
    for index, entry in enumerate(state.wal):
        if entry.status is not EntryStatus.PENDING:
            if up:
                yield "Cleanup", state._replace(wal=state.wal[:index] + state.wal[index + 1 :])
            continue
        if not state.crashed and entry.client != starved:
            yield "CompleteOperation", _completed(state, index)
            yield "FailOperation", _ended(state, index, EntryStatus.FAILED)
        if state.recovering:
            yield "RecoverEntry", _completed(state, index)
    if up:
        yield "Crash", state._replace(crashed=True)
    if state.crashed and not state.recovering:
        yield "StartRecovery", state._replace(crashed=False, recovering=True)
    if state.recovering and state.idle:
        yield "CompleteRecovery", state._replace(recovering=False)


def _appended(entries: int, operations: int, state: State) -> Iterator[tuple[str, State]]:
    if len(state.wal) >= entries:
        return
    for number, client in enumerate(state.clients):
        own = [entry for entry in state.wal if entry.client == number]
        if len(own) >= operations:
            continue
        known = any(entry.key == client.next_key for entry in own)
        after = Client(client.pending | {state.next_entry}, client.next_key + 1)
        clients = (*state.clients[:number], after, *state.clients[number + 1 :])
        for operation in OPERATIONS:
            for data in range(1, entries + 1):
                if known:
                    yield "AppendToWal of a known key", state
                    continue
                entry = Entry(state.next_entry, number, operation, client.next_key, EntryStatus.PENDING, data)
                yield (
                    "AppendToWal",
                    state._replace(wal=(*state.wal, entry), clients=clients, next_entry=state.next_entry + 1),
                )


def _completed(state: State, index: int) -> State:
    data = state.wal[index].data
    storage = (*state.storage[:data], data, *state.storage[data + 1 :])
    return _ended(state, index, EntryStatus.COMPLETED)._replace(storage=storage)


def _ended(state: State, index: int, status: EntryStatus) -> State:
    entry = state.wal[index]
    client = state.clients[entry.client]
    after = client._replace(pending=client.pending - {entry.id})
    return state._replace(
        wal=(*state.wal[:index], entry._replace(status=status), *state.wal[index + 1 :]),
        clients=(*state.clients[: entry.client], after, *state.clients[entry.client + 1 :]),
    )


# ---------------------------------------------------------------------------------------------------------------------
# Invariants and promises


def _type_ok(entries: int, state: State) -> bool:
    return (
        len(state.wal) <= entries
        and all(entry.id > 0 and entry.key > 0 and 1 <= entry.data <= entries for entry in state.wal)
        and len(state.storage) == entries + 1
        and all(0 <= value <= entries for value in state.storage)
        and all(client.next_key > 0 and min(client.pending, default=1) > 0 for client in state.clients)
        and state.next_entry > 0
    )


def _durability(state: State) -> bool:
    return all(state.storage[entry.data] == entry.data for entry in state.wal if entry.status is EntryStatus.COMPLETED)


def _atomic_visibility(state: State) -> bool:
    return all(state.storage[entry.data] != 0 for entry in state.wal if entry.status is EntryStatus.COMPLETED)


def _waits(number: int, state: State) -> bool:
    return bool(state.clients[number].pending)


def _does_not_wait(number: int, state: State) -> bool:
    return not _waits(number, state)


def _bound(last_entry: int, last_key: int, state: State) -> bool:
    return state.next_entry <= last_entry and all(client.next_key <= last_key for client in state.clients)


def _canonical(orders: tuple[tuple[int, ...], ...], state: State) -> State:
    """Return one state for all states that differ only in the order of clients."""
    if len(orders) == 1:
        return state
    return min((_renamed(state, order) for order in orders), key=_sort_key)


def _renamed(state: State, order: tuple[int, ...]) -> State:
    """Return the state with client `order[n]` renamed to `n`."""
    name = {client: number for number, client in enumerate(order)}
    return state._replace(
        wal=tuple(entry._replace(client=name[entry.client]) for entry in state.wal),
        clients=tuple(state.clients[client] for client in order),
    )


def _sort_key(state: State) -> tuple[object, ...]:
    """Return a key that sorts states; sets have no order, so their sorted members are compared."""
    return state.wal, tuple((sorted(client.pending), client.next_key) for client in state.clients)
