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

# What a process does: each process reports its own, and the values of all processes add up.
EVENTS = {
    row.name: row
    for row in (
        Instrument(
            "job.transitions", _C, ("operation", "queue", "event", "source", "target"), "{transition}",
            "transitions of jobs that were committed",
        ),
        Instrument(
            "job.time_in_state", _H, ("operation", "state"), "s",
            "how long a job was in the state that it left; pending counts from when the job was due",
        ),
        Instrument(
            "job.attempts", _H, ("operation", "outcome"), "{attempt}",
            "attempts of a job at its end: succeeded, failed, quarantined",
        ),
        Instrument("lease.losses", _C, ("operation", "queue"), "{lease}", "leases that expired or were revoked"),
        Instrument("commit.batch", _H, (), "{task}", "writes that shared one commit"),
        Instrument(
            "commit.fsyncs", _C, (), "{fsync}", "commits that changed the ledger; each waits until the log is on disk"
        ),
        Instrument("telemetry.lost", _C, (), "{event}", "events that were lost to telemetry, never to the ledger"),
    )
}  # fmt: skip
LEDGER = {**STATE, **EVENTS}
