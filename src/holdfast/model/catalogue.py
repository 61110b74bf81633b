"""Every run of a model, with what must come of it: how many states there are, what holds, and what a flaw breaks.

Invariants: a run passes only if it comes to exactly what stands here, so a changed rule shows as a changed figure; a
flaw that breaks nothing is an error like any other.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from holdfast.model.checker import Kept, Model, explore, kept
from holdfast.model.log import Flaw, Log
from holdfast.model.published import published


@dataclass(frozen=True, kw_only=True)
class Outcome:
    """What a run came to: states as TLC counts them, what broke and in how few steps, how far promises are kept."""

    generated: int
    distinct: int
    broken: str | None = None
    steps: int | None = None
    promises: dict[str, Kept] = field(default_factory=dict)

    @property
    def fault(self) -> str | None:
        """Return what does not hold: an invariant that broke, or a promise that nothing keeps."""
        return self.broken or next((name for name, kept in self.promises.items() if kept is Kept.NEVER), None)

    @property
    def sound(self) -> bool:
        """Tell whether everything holds."""
        return self.fault is None


@dataclass(frozen=True)
class Run:
    """One model to explore, and what must come of it. A large one takes minutes."""

    name: str
    model: Callable[[], Model[Any]]
    expected: Outcome
    large: bool = False

    def outcome(self) -> Outcome:
        """Explore the model, and tell what came of it."""
        model = self.model()
        graph = explore(model, keep_edges=bool(self.expected.promises))
        broken = graph.broken
        return Outcome(
            generated=graph.generated,
            distinct=graph.distinct,
            broken=broken.name if broken else None,
            steps=len(broken.trace) - 1 if broken else None,
            promises={name: kept(graph, name) for name in self.expected.promises} if broken is None else {},
        )


PROMISES_OF_THE_LOG = {
    # A recovery that is killed for ever never ends, whatever is built: these two need crashes to end one day.
    "EventualRecovery": Kept.IF_FAULTS_END,
    "EventualCompletion": Kept.IF_FAULTS_END,
    "ProgressUnderCrash": Kept.ALWAYS,
}


def _flawed(flaw: Flaw, broken: str, *, steps: int, generated: int, distinct: int) -> Run:
    return Run(
        f"log: {flaw}",
        lambda: Log(flaw=flaw).model(),
        Outcome(generated=generated, distinct=distinct, broken=broken, steps=steps),
    )


RUNS = (
    Run(
        "published log, 1 client",
        lambda: published(clients=1, entries=2, operations=2),
        Outcome(
            generated=70_713,
            distinct=26_856,
            promises=dict.fromkeys(
                ("EventualRecovery", "EventualCompletion", "ProgressUnderCrash", "NoStarvation of client 0"),
                Kept.ALWAYS,
            ),
        ),
    ),
    Run(
        "published log, 2 clients",
        lambda: published(clients=2, entries=2, operations=2),
        Outcome(generated=2_548_321, distinct=953_568),
        large=True,
    ),
    Run(
        "log: effects in the ledger's own database",
        lambda: Log().model(),
        Outcome(generated=211_233, distinct=62_267, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: effects elsewhere, at a target that knows keys",
        lambda: Log(keyed_target=True, payloads=1).model(),
        Outcome(generated=87_545, distinct=30_147, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: an entry whose work never succeeds",
        lambda: Log(poison=frozenset({0}), payloads=1).model(),
        Outcome(generated=33_385, distinct=11_035, promises=PROMISES_OF_THE_LOG),
    ),
    Run(
        "log: three keys",
        lambda: Log(keys=3, payloads=1, requests=1).model(),
        Outcome(generated=759_429, distinct=301_608, promises=PROMISES_OF_THE_LOG),
        large=True,
    ),
    _flawed(Flaw.KEY_NOT_LOOKED_UP, "one entry a key", steps=2, generated=27, distinct=25),
    _flawed(Flaw.CONFLICT_NOT_SEEN, "answered is recorded", steps=2, generated=29, distinct=25),
    _flawed(Flaw.ANSWER_BEFORE_WRITE, "answered is recorded", steps=2, generated=25, distinct=24),
    _flawed(Flaw.CLEANUP_DROPS_KEY, "answered is recorded", steps=4, generated=1_344, distinct=604),
    _flawed(Flaw.CLEANUP_TAKES_PENDING, "answered is recorded", steps=2, generated=35, distinct=30),
    _flawed(Flaw.MARK_APART, "one effect a key", steps=8, generated=47_920, distinct=16_791),
    Run(
        f"log: {Flaw.FAILURE_IS_FREE}",
        lambda: Log(poison=frozenset({0}), payloads=1, flaw=Flaw.FAILURE_IS_FREE).model(),
        Outcome(
            generated=10_933,
            distinct=4_443,
            promises=PROMISES_OF_THE_LOG | {"EventualRecovery": Kept.NEVER, "EventualCompletion": Kept.NEVER},
        ),
    ),
)
