"""`holdfast explain`: why is this job not running, and what to type next. Nothing here writes."""

from typing import Annotated, Any

import typer

from holdfast.cli import output
from holdfast.cli.command import Answer, Location, command
from holdfast.cli.options import ID_MAX
from holdfast.explain.explain import explain as explained
from holdfast.explain.explanation import Explanation, JobVerdict
from holdfast.store import Store

SAYS = {
    JobVerdict.FINISHED: "it is over",
    JobVerdict.RUNNING: "somebody works on it",
    JobVerdict.WAITING: "it will run by itself",
    JobVerdict.BLOCKED: "it will not run by itself",
}


@command(Location.open)
def explain(
    store: Store[Any],
    *,
    job_id: Annotated[int, typer.Argument(metavar="ID", min=1, max=ID_MAX, help="The job's id.")],
) -> Answer:
    """Say why a job is not running, and what to type next.

    Reasons come most decisive first, each with what was seen (in the JSON) and a command.
    """
    with store.reading() as reading:
        explanation = explained(reading, job_id, store.now())
    value = {
        "job_id": explanation.job_id,
        "state": explanation.state,
        "verdict": explanation.verdict,
        "findings": [
            {"code": found.code, "message": found.message, "evidence": found.evidence, "next": found.next}
            for found in explanation.findings
        ],
    }
    return Answer(value, lambda: _print(explanation))


def _print(explanation: Explanation) -> None:
    terminal = output.console()
    head = output.styled(f"job {explanation.job_id} ", "bold").append_text(output.state(explanation.state))
    terminal.print(head.append(f": {SAYS[explanation.verdict]}", ""))
    for found in explanation.findings:
        terminal.print(output.styled("- " + found.message.replace("\n", " ")))
        terminal.print(output.styled("  next: ", "dim"), output.styled(output.pasteable(found.next), "bold"), sep="")
