"""The metrics of a ledger: one table of names, kinds, units and labels. docs/telemetry.md shows the same table.

Invariants: a metric is recorded under a name of the table, with exactly its labels; a label has few values: an
operation, a queue, a state, an event. Ids of jobs and workers, keys and clients are never labels.
"""

from holdfast.core.instruments import Instrument, InstrumentKind

PREFIX = "holdfast."
_C, _H, _G = InstrumentKind.COUNTER, InstrumentKind.HISTOGRAM, InstrumentKind.GAUGE

# What the ledger holds now: the same answer from any process.
STATE = {
    row.name: row
    for row in (
        Instrument("jobs", _G, ("operation", "queue", "state"), "{job}", "jobs in each state"),
        Instrument("queue.depth", _G, ("queue",), "{job}", "pending jobs, due now or later"),
        Instrument("queue.age", _G, ("queue",), "s", "how long the oldest due job has been due; 0 if none is due"),
        Instrument("queue.paused", _G, ("queue",), "1", "1 if the queue is paused, else 0"),
        Instrument("queue.workers", _G, ("queue",), "{worker}", "running workers that serve the queue"),
        Instrument("workers", _G, (), "{worker}", "running workers"),
        Instrument("worker.slots", _G, (), "{slot}", "handlers that the running workers can run at a time"),
        Instrument("leases", _G, ("status",), "{lease}", "leases of running jobs by status: valid, expired"),
        Instrument("seal.lag", _G, (), "s", "age of the oldest journal row without a seal; 0 if all are sealed"),
        Instrument("seal.unsealed", _G, (), "{row}", "journal rows after the last seal, at most"),
    )
}
