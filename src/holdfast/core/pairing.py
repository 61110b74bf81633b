"""Which events of a job and of its current attempt go together: the moves of the row that has both.

Invariants: every path of EXECUTION is carried by an event of JOB, or is in ALONE; checked when this is imported.
"""

from collections.abc import Iterator
from typing import NamedTuple

from holdfast.core.errors import invariant
from holdfast.core.machine import Path
from holdfast.core.machines import EXECUTION, JOB, ExecutionStatus, JobState

# What an event of JOB from or to `running` does with the attempt, in the same write. Every other event of JOB moves no
# attempt; the events of ALONE move an attempt while its job stays running.
CARRIES = {
    "claim": ("lease", "begin"),
    "succeed": ("complete", "finish"),
    "fail": ("abort",),
    "retry": ("abort",),
    "expire": ("abort",),
    "revoke": ("abort",),
    "give_back": ("abort",),
    "quarantine": ("abort",),
    "cancel": ("abort",),
}
ALONE = ("start", "commit")

DEPTH = {
    ExecutionStatus.LEASED: 1,
    ExecutionStatus.IN_PROGRESS: 2,
    ExecutionStatus.COMMITTED: 3,
    ExecutionStatus.DONE: 4,
}
"""The version of an execution in each status, because each status but ABORTED is reached by one series of edges."""


class JointMove(NamedTuple):
    """A move of the row that has a job and its current attempt: the path of each, or None for the one that stays."""

    job: Path | None
    execution: Path | None

    @property
    def event(self) -> str:
        """Return the event that the row records: that of the job if the job moves."""
        return self.job.event if self.job else self.execution.event if self.execution else ""


def joint_moves() -> Iterator[JointMove]:
    """Yield every legal move of a job with its current attempt, without the birth of a job."""
    for path in JOB.moves():
        if JobState.RUNNING not in (path.source, path.target):
            yield JointMove(path, None)
        for event in CARRIES[path.event] if JobState.RUNNING in (path.source, path.target) else ():
            for carried in EXECUTION.paths:
                if carried.event == event and (carried.source is None) == (path.target == JobState.RUNNING):
                    yield JointMove(path, carried)
    yield from (JointMove(None, path) for path in EXECUTION.moves() if path.event in ALONE)


invariant(
    {move.execution for move in joint_moves() if move.execution} == set(EXECUTION.paths),
    "a path of EXECUTION is carried by no event of JOB, and does not stand alone",
)
