"""The page before an act on several jobs: how many, which, what will happen, and what it takes.

Invariants: the form carries exactly the jobs that the page counts, each with its version.
"""

from __future__ import annotations

import msgspec

from holdfast.console.context import Visit
from holdfast.console.many import ManyAct, ManyPlan, plan
from holdfast.console.selections import JobSelection
from holdfast.console.views.confirm import open_grants
from holdfast.console.views.grants import WORDS
from holdfast.core.authority import Act
from holdfast.core.environments import DEV, PROD
from holdfast.core.governed import Grant
from holdfast.core.machines import GrantState
from holdfast.core.spans import counted
from holdfast.governance.releases import MANY_MAX

SAYS = {
    ManyAct.RETRY: "They become pending and run as soon as a worker is free. Their effects still take place once each.",
    ManyAct.CANCEL: "Those that wait go to quarantine; only a release brings them back. Running ones are requested to"
    " stop.",
    ManyAct.RELEASE: "They become pending and run again, all of them or none.",
}


class ManyView(msgspec.Struct, frozen=True, kw_only=True):
    """Everything that the page shows."""

    plan: ManyPlan
    says: str
    most: int
    typed: bool  # in prod the number of jobs is typed
    environment: str
    back: str
    grant: Grant | None  # an open grant for exactly these jobs
    needs_grant: bool

    @property
    def moved(self) -> str:
        """Return what becomes of a job that moves before the act is confirmed."""
        if self.plan.act is ManyAct.RELEASE:
            return "If one of them moves before you confirm, none is released."
        return "A job that moves before you confirm is passed over, not overwritten."

    @property
    def grant_words(self) -> str:
        return "" if self.grant is None else WORDS[self.grant.state]

    @property
    def title(self) -> str:
        return f"{self.plan.act.value.capitalize()} {counted(self.plan.total, 'job')}"

    @property
    def jobs(self) -> str:
        """Return the jobs as the form carries them."""
        return ",".join(f"{job.job_id}:{job.version}" for job in self.plan.jobs)

    @property
    def ids(self) -> str:
        """Return the ids of the jobs, as the request of a grant carries them."""
        return ",".join(str(job.job_id) for job in self.plan.jobs)


def many_view(here: Visit, act: ManyAct, selection: JobSelection, *, back: str) -> ManyView:
    """Return the page before an act on a selection; nothing is written."""
    made = plan(here, act, selection)
    grant = None
    if made.grant_target is not None:
        with here.store.reading() as reading:
            found = open_grants(reading, Act.RELEASE_MANY, made.grant_target)
        grant = max(found, key=lambda one: one.state is GrantState.ACTIVE, default=None)
    return ManyView(
        plan=made,
        says=SAYS[act],
        most=MANY_MAX,
        typed=here.console.environment == PROD,
        environment=here.console.environment,
        back=back,
        grant=grant,
        needs_grant=act is ManyAct.RELEASE and here.console.environment != DEV,
    )
