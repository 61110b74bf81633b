"""The error tree: every class has a stable code, an exit code, a next step, and stands in the drawing.

Invariants: the tree is read from the classes themselves, so a class that is added and not drawn fails here.
"""

from __future__ import annotations

import inspect
import json
import pickle
import re
from collections.abc import Iterator

import pytest

from holdfast.core import errors, feature_errors
from holdfast.core.errors import (
    BrokenError,
    GovernanceError,
    HoldfastError,
    InvalidStateTransitionError,
    JobNotFoundError,
    PayloadTooLargeError,
    RecordNotFoundError,
    StateTransitionRaceError,
    invariant,
)


def tree_below(parent: type[HoldfastError]) -> Iterator[type[HoldfastError]]:
    """Yield a class and all below it. A private one is its module's own signal, caught where it is raised."""
    yield parent
    for child in parent.__subclasses__():
        if not child.__name__.startswith("_"):
            yield from tree_below(child)


TREE = list(tree_below(HoldfastError))

# Scripts match on these codes: a change here breaks them.
CODES = {
    "HoldfastError": ("error", 1),
    "InputError": ("bad_input", 2),
    "ConfigurationError": ("configuration_invalid", 2),
    "BadUrlError": ("url_invalid", 2),
    "PayloadNotJsonError": ("payload_not_json", 2),
    "PayloadTooDeepError": ("payload_too_deep", 2),
    "PayloadTooLargeError": ("payload_too_large", 2),
    "UnknownOperationError": ("operation_unknown", 2),
    "QueueUnknownError": ("queue_unknown", 2),
    "IdempotencyConflictError": ("idempotency_conflict", 2),
    "ArgumentsError": ("arguments_invalid", 2),
    "EffectError": ("effect_failed", 2),
    "ConnectionUnfitError": ("connection_unfit", 2),
    "SnapshotInvalidError": ("snapshot_invalid", 2),
    "ArchiveInvalidError": ("archive_invalid", 2),
    "HeadInvalidError": ("head_invalid", 2),
    "KeyInvalidError": ("key_invalid", 2),
    "FileThereError": ("file_exists", 2),
    "SpecInvalidError": ("spec_invalid", 2),
    "ExtraMissingError": ("extra_missing", 2),
    "FlowInvalidError": ("flow_invalid", 2),
    "ScheduleInvalidError": ("schedule_invalid", 2),
    "LimitInvalidError": ("limit_invalid", 2),
    "MachineError": ("machine_invalid", 2),
    "JobNotFoundError": ("job_not_found", 1),
    "RecordNotFoundError": ("record_not_found", 1),
    "ResultExpiredError": ("result_expired", 1),
    "JobUnsuccessfulError": ("job_unsuccessful", 1),
    "QueueFullError": ("queue_full", 3),
    "SealsBrokenError": ("seals_broken", 1),
    "WaitTimeoutError": ("wait_timeout", 1),
    "RefusedError": ("refused", 3),
    "InvalidStateTransitionError": ("invalid_state_transition", 3),
    "StateTransitionRaceError": ("state_transition_race", 3),
    "LeaseLostError": ("lease_lost", 3),
    "WalRecoveringError": ("wal_recovering", 3),
    "PlanStaleError": ("plan_stale", 3),
    "RepairIncompleteError": ("repair_incomplete", 3),
    "LedgerNotEmptyError": ("ledger_not_empty", 3),
    "EffectsMayBeNewerError": ("effects_may_be_newer", 3),
    "HistoryArchivedError": ("history_archived", 3),
    "RuntimeLeaseError": ("lease_held", 3),
    "GovernanceError": ("governance_refused", 3),
    "AuthorityError": ("authority_refused", 3),
    "ApprovalError": ("approval_refused", 3),
    "RegistryError": ("registry_refused", 3),
    "ReplayGuardError": ("replay_refused", 3),
    "RefusedByDatabaseError": ("refused_by_database", 3),
    "StoreError": ("store_error", 4),
    "StoreUnavailableError": ("store_unavailable", 4),
    "CommitUnknownError": ("commit_unknown", 4),
    "StoreBusyError": ("store_busy", 4),
    "StoreReadOnlyError": ("store_read_only", 4),
    "NotALedgerError": ("not_a_ledger", 4),
    "SchemaVersionError": ("schema_version", 4),
    "EnforcementDriftError": ("enforcement_drift", 4),
    "StoreDamagedError": ("store_damaged", 4),
    "LedgerFileError": ("ledger_file_changed", 4),
    "EpochError": ("epoch_behind", 4),
    "ArchiveUnwritableError": ("archive_unwritable", 4),
    "DurabilityError": ("not_durable", 4),
    "BrokenError": ("broken", 1),
}
FAMILIES = {"InputError": 2, "RefusedError": 3, "StoreError": 4}
GOVERNANCE = list(tree_below(GovernanceError))


def drawn() -> list[tuple[str, str | None]]:
    """Return the classes of the drawing at the module's head, each with its parent."""
    found: list[tuple[str, str | None]] = []
    above: list[str] = []
    for line in inspect.cleandoc(errors.__doc__ or "").splitlines():
        match = re.match(r"^(?P<rails>[ │├└─]*)(?P<name>[A-Z]\w+Error)\b", line)
        if match:
            depth = len(match["rails"]) // 4 - 1
            del above[depth:]
            found.append((match["name"], above[-1] if above else None))
            above.append(match["name"])
    return found


def declared() -> list[tuple[str, str | None]]:
    """Return the real tree in the same form."""
    return [
        (kind.__name__, next((base.__name__ for base in kind.__bases__ if issubclass(base, HoldfastError)), None))
        for kind in TREE
    ]


def test_the_tree_is_closed() -> None:
    assert {kind.__module__ for kind in TREE} == {errors.__name__, feature_errors.__name__}


def test_the_drawing_is_the_tree() -> None:
    assert sorted(drawn(), key=str) == sorted(declared(), key=str)


def test_the_codes_are_those_that_were_published() -> None:
    found = {kind.__name__: (kind.code, kind.exit_code) for kind in TREE}
    assert found == CODES


@pytest.mark.parametrize("kind", TREE)
def test_every_error_has_a_code_of_its_own_and_says_what_to_do_next(kind: type[HoldfastError]) -> None:
    assert [other for other in TREE if other.code == kind.code] == [kind]
    assert re.fullmatch(r"[a-z]+(_[a-z]+)*", kind.code)
    assert kind.next_step.strip().endswith((".", ")"))
    assert kind.__doc__
    assert kind.__name__.endswith("Error")
    expected = next((code for name, code in FAMILIES.items() if issubclass(kind, getattr(errors, name))), 1)
    assert kind.exit_code == expected


@pytest.mark.parametrize("kind", TREE)
def test_every_error_has_the_same_machine_readable_form(kind: type[HoldfastError]) -> None:
    error = kind("what happened", context={"job_id": 7, "given": None, "kind": object()})
    assert error.hint == kind.next_step.replace(" ID`", " 7`")  # its commands name the job
    assert error.as_dict() == {
        "error_code": kind.code,
        "error_message": "what happened",
        "context": {"job_id": 7, "given": None, "kind": "<class 'object'>", "next_step": error.hint},
    }
    assert json.loads(json.dumps(error.as_dict())) == error.as_dict()
    assert str(error) == "what happened"
    assert kind("m", next_step="Do this.").as_dict()["context"] == {"next_step": "Do this."}


def test_the_context_of_an_error_is_its_own() -> None:
    context: dict[str, object] = {"bytes": 1}
    error = PayloadTooLargeError("m", context=context)
    context["bytes"] = 2
    assert error.context == {"bytes": 1}
    error.as_dict()["context"]["next_step"] = "changed"  # type: ignore[index]
    assert error.context == {"bytes": 1}


@pytest.mark.req("G-09")
def test_the_named_errors_keep_the_bases_that_callers_catch() -> None:
    assert issubclass(InvalidStateTransitionError, ValueError)
    assert issubclass(StateTransitionRaceError, RuntimeError)
    assert issubclass(JobNotFoundError, KeyError)
    assert issubclass(RecordNotFoundError, KeyError)
    # A KeyError would print the repr of its message.
    assert str(JobNotFoundError("there is no job 7")) == "there is no job 7"
    assert str(RecordNotFoundError("there is no grant 7")) == "there is no grant 7"


@pytest.mark.parametrize("kind", TREE)
def test_an_error_keeps_its_fields_when_pickled(kind: type[HoldfastError]) -> None:
    error = pickle.loads(pickle.dumps(kind("m", context={"n": 1}, next_step="Do this.")))  # noqa: S301 - our own bytes
    assert type(error) is kind
    assert error.as_dict() == kind("m", context={"n": 1}, next_step="Do this.").as_dict()


@pytest.mark.parametrize("kind", GOVERNANCE)
def test_an_error_of_governance_keeps_the_code_of_its_rule_when_pickled(
    kind: type[GovernanceError],
) -> None:
    error = kind("m", code="REJECT_AUTH_EXPIRED", context={"n": 1}, next_step="Do this.")
    expected = {
        "error_code": "REJECT_AUTH_EXPIRED",
        "error_message": "m",
        "context": {"n": 1, "next_step": "Do this."},
    }
    assert error.as_dict() == expected
    arrived = pickle.loads(pickle.dumps(error))  # noqa: S301 - our own bytes
    assert (type(arrived), arrived.code, arrived.as_dict()) == (kind, "REJECT_AUTH_EXPIRED", expected)
    # The code is the instance's: the class, and the next instance, keep theirs.
    assert kind.code == kind("m").code == CODES[kind.__name__][0]


def test_only_errors_of_governance_have_a_code_that_differs_from_their_class() -> None:
    takes_a_code = [kind for kind in TREE if "code" in inspect.signature(kind).parameters]
    assert takes_a_code == GOVERNANCE
    assert {kind.__name__ for kind in GOVERNANCE} == {
        "GovernanceError", "AuthorityError", "ApprovalError", "RegistryError", "ReplayGuardError",
    }  # fmt: skip


def test_an_invariant_raises_also_where_assert_is_compiled_away() -> None:
    invariant(True, "holds")
    invariant([0], "anything true holds")
    for broken in (False, None, 0, ""):
        with pytest.raises(BrokenError) as caught:
            invariant(broken, "the sky fell")
        assert (caught.value.exit_code, caught.value.message) == (1, "the sky fell")
