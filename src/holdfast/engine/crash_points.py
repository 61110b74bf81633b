"""The points at which a test can plan a crash."""

from holdfast.engine.world import BETWEEN

POINTS = {
    "during_submit": "the jobs are written, and not yet durable",
    "after_submit": "the jobs are durable, and the caller never gets the receipt",
    "during_claim": "the leases are written, and not yet durable",
    "after_claim": "the leases are durable, and the worker never gets them",
    "before_commit": "the completion and its effects are written, and not yet durable",
    "after_commit": "the completion is durable, and the worker never gets the answer",
    BETWEEN: "the execution is COMMITTED with its effects, and not yet DONE",
    "during_failure": "the end of a failed attempt is written, and not yet durable",
    "after_failure": "the end of a failed attempt is durable, and the worker never gets the answer",
    "during_ruling": "a ruling is written, and not yet durable",
    "after_ruling": "a ruling is durable, and its caller never gets the answer",
    "during_recovery": "attempts with expired leases are ended, and not yet durable",
    "after_recovery": "attempts with expired leases are ended, and the reaper never gets the answer",
}
