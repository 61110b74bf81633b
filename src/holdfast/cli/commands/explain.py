"""`holdfast explain`: explains why a job is not running, with the next command. It only reads."""

from typing import Any

import msgspec

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.job_names import JobName, KeyClient, job_id_of
from holdfast.explain.explain import explain as explained
from holdfast.explain.explanation import Explanation, JobVerdict
from holdfast.store import Store

VERDICTS = {
    JobVerdict.FINISHED: "finished",
    JobVerdict.RUNNING: "running",
    JobVerdict.WAITING: "waiting; it will run without action",
    JobVerdict.BLOCKED: "needs action",
}


@command(Location.open)
def explain(store: Store[Any], *, name: JobName, client: KeyClient = None) -> Answer:
    """Explain why a job is not running, and print the next command.

    The most important reason comes first. Each reason has a command and, in the JSON, its evidence.
    """
    with store.reading() as reading:
        explanation = explained(reading, job_id_of(reading, name, client), store.now())
    return Answer(msgspec.to_builtins(explanation), lambda: _print(explanation))


def _verdict(explanation: Explanation) -> str:
    worker = next(
        (found.evidence["lease_owner"] for found in explanation.findings if "lease_owner" in found.evidence), None
    )
    on_worker = worker is not None and explanation.verdict is JobVerdict.RUNNING
    return VERDICTS[explanation.verdict] + (f" on {worker}" if on_worker else "")


def _print(explanation: Explanation) -> None:
    head = output.styled(f"job {explanation.job_id} ", "bold") + output.state(explanation.state)
    output.show(head + output.styled(f": {_verdict(explanation)}"))
    for found in explanation.findings:
        output.show(output.styled("- " + found.message.replace("\n", " ")))
        output.show(output.styled("  next: ", "dim") + output.styled(output.pasteable(found.next), "bold"))
