"""Faults of the check: an invariant that is not judged, or records that are not looked at."""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

RUNNER = "audit/check/walker.py"
JOBS = "audit/check/job_rules.py"
LEDGER = "audit/check/ledger_rules.py"
HISTORIES = "audit/check/record_rules.py"
TESTS = "tests/audit/test_check.py"


def _planted(*corruptions: str) -> tuple[str, ...]:
    """Return the tests that plant these corruptions, and expect them to be found."""
    return tuple(
        f"{TESTS}::test_a_corruption_is_found_where_it_is_and_nowhere_else[sqlite-{name}]" for name in corruptions
    )


FAULTS = (
    SeededFault(
        id="check.state_not_projected",
        meaning="A job whose state its executions do not add up to is not found.",
        patches=(Patch(JOBS, "projected", "if expected != job.state:", "if False:"),),
        tests=_planted("a_waiting_job_called_failed", "a_failed_job_called_pending", "a_quarantined_job_let_out"),
    ),
    SeededFault(
        id="check.second_commit_not_found",
        meaning="A commit that the journal has of an attempt that ended without success is not found.",
        patches=(
            Patch(
                JOBS,
                "commits_equal_effects",
                "if commits is not None and commits != (execution.status in COMMITTED):",
                "if False:",
            ),
        ),
        tests=_planted("a_second_commit", "a_commit_whose_row_is_gone"),
    ),
    SeededFault(
        id="check.lost_attempt_not_found",
        meaning="An attempt that is not stored, or that the job never made, is not found.",
        patches=(Patch(JOBS, "_each_once", "if named:", "if False:"),),
        tests=_planted("an_attempt_that_is_lost", "a_running_job_called_pending"),
    ),
    SeededFault(
        id="check.lowered_token_not_found",
        meaning="A fencing token that is lower than that of an earlier attempt is not found.",
        patches=(Patch(JOBS, "attempts", "yield from _tokens(case)", "pass"),),
        tests=_planted("a_token_that_was_lowered", "a_token_of_a_waiting_job_that_was_lowered"),
    ),
    SeededFault(
        id="check.call_without_its_job_not_found",
        meaning="A call without its job is not found.",
        patches=(Patch(LEDGER, "orphans", 'in ask("orphan_calls", n=n):', "in ():"),),
        tests=_planted("a_call_of_nothing", "a_job_without_its_call"),
    ),
    SeededFault(
        id="check.payload_digest_not_compared",
        meaning="A job whose payload was changed is not found.",
        patches=(Patch(JOBS, "fields", "if job.payload is not None and digest_of(", "if False and digest_of("),),
        tests=_planted("a_payload_that_was_edited"),
    ),
    SeededFault(
        id="check.gap_in_the_journal_not_found",
        meaning="A version that is missing from the journal is not found.",
        patches=(Patch(HISTORIES, "_versions", "if missing:", "if False:"),),
        tests=_planted("a_journal_row_that_is_gone", "a_history_that_is_gone", "a_last_row_that_is_gone"),
    ),
    SeededFault(
        id="check.unlisted_edge_not_found",
        meaning="A journalled edge that the transition table does not list is not found.",
        patches=(
            Patch(
                HISTORIES,
                "legal",
                "if not (index == 1 and not history.whole and _ends_a_path(history.machine, row)):",
                "if False:",
            ),
        ),
        tests=_planted("a_target_that_was_edited", "an_event_that_was_edited", "half_of_a_path"),
    ),
    SeededFault(
        id="check.governed_edge_without_a_grant_not_found",
        meaning="A journalled release without a grant of its own is not found.",
        patches=(Patch(HISTORIES, "legal", "if path.governed and (wrong := ", "if False and (wrong := "),),
        tests=_planted("a_release_without_a_grant", "a_release_that_did_not_use_its_grant_up"),
    ),
    SeededFault(
        id="check.only_the_first_page_looked_at",
        meaning="Only the first page of jobs is checked.",
        patches=(Patch(RUNNER, "Walker.walk", "n, key = step(reading, key)", "n, key = step(reading, key)[0], None"),),
        tests=(f"{TESTS}::test_pages_of_any_size_find_the_same",),
        databases=BOTH,
    ),
    SeededFault(
        id="check.rule_that_fails_passes",
        meaning="A rule that raises an error on damaged data counts as satisfied.",
        patches=(Patch(RUNNER, "Walker.apply", "self.violations.append(invariant.violation(Finding(", "id((Finding("),),
        tests=(f"{TESTS}::test_a_rule_that_fails_is_a_violation",),
        databases=BOTH,
    ),
)
