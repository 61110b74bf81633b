"""The find box: what a word names, by indexed things only.

Invariants: each kind of thing is looked up by an index or among a few names; no payload is searched.
"""

from __future__ import annotations

import msgspec

from holdfast.console.views.jobs import text_in
from holdfast.console.views.links import job_list, path
from holdfast.core.errors import JobNotFoundError
from holdfast.core.machines import JobState
from holdfast.store.transaction import Reading
from holdfast.store.verbs.known_queues import known_queues
from holdfast.store.verbs.watch import ID_MAX, WINDOW, JobFilters, job_lines, keyed_clients

NAMED_MAX = 20
WINDOWS = (1_000, WINDOW)  # newest jobs among which a code is looked for; most are among few of them


class Hit(msgspec.Struct, frozen=True):
    """Something that a word names: its kind, its name, and its page."""

    kind: str
    name: str
    note: str
    href: str


def find_hits(reading: Reading, text: str) -> list[Hit]:
    """Return what a word names; an exact id comes first."""
    word = text_in(text.strip(), "q")
    if not word:
        return []
    hits: list[Hit] = []
    number = word.removeprefix("grant").strip()
    if number.isascii() and number.isdecimal() and len(number) < len(str(ID_MAX)):
        hits += _by_number(reading, int(number))
    hits += _by_key(reading, word)
    lowered = word.casefold()
    counts = reading.counts.current()
    operations = sorted({*reading.operations.declared(), *(count.operation for count in counts)})
    hits += [
        Hit("operation", name, "its jobs", job_list(operation=name))
        for name in operations
        if lowered in name.casefold()
    ]
    hits += [
        Hit("queue", name, "its page", path("/queues", name))
        for name in known_queues(reading, counts)
        if lowered in name.casefold()
    ]
    hits += [
        Hit("worker", worker.worker_id, ", ".join(worker.queues), "/workers")
        for worker in reading.lists.workers()
        if lowered in worker.worker_id.casefold()
    ][:NAMED_MAX]
    if reading.runs.get(word) is not None:
        hits.append(Hit("replay", word, "its page", path("/replays", word)))
    for state in ("failed", "quarantined"):
        with_it = JobFilters(state=JobState(state), code=word)
        if any(job_lines(reading, with_it, limit=1, window=window).lines for window in WINDOWS):
            hits.append(Hit("error code", word, f"{state} jobs with it", job_list(state=state, code=word)))
    return hits


def _by_number(reading: Reading, number: int) -> list[Hit]:
    hits = []
    try:
        job = reading.jobs.get(number)
        hits.append(Hit("job", str(number), f"{job.operation}, {job.state}", f"/jobs/{number}"))
    except JobNotFoundError:
        pass
    grant = reading.grants.get(number)
    if grant is not None:
        hits.append(Hit("grant", str(number), f"{grant.action} of {grant.target}", f"/grants/{number}"))
    return hits


def _by_key(reading: Reading, word: str) -> list[Hit]:
    pairs = [(client, word) for client in keyed_clients(reading)]
    found = reading.jobs.by_key(pairs) if pairs else {}
    return [
        Hit("key", word, f"job {job.job_id} of {client}: {job.operation}, {job.state}", f"/jobs/{job.job_id}")
        for (client, _), job in sorted(found.items())
    ][:NAMED_MAX]
