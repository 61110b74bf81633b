"""Faults of repair: it changes more than its plan says, keeps no before-image, or opens a way that was closed."""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

REPAIR = "audit/repair/repair.py"
SURGEON = "audit/repair/surgeon.py"
MENDING = "audit/repair/record_diagnosis.py"
TESTS = "tests/audit/test_repair.py"
RECORDS = "tests/audit/test_repair_records.py"
LEFT = "tests/audit/test_repair_left.py"

FAULTS = (
    SeededFault(
        id="repair.stale_plan_carried_out",
        meaning="A repair does something else than the plan that was shown.",
        patches=(Patch(REPAIR, "repair", "if done.digest != expected:", "if False:"),),
        tests=(f"{TESTS}::test_a_plan_that_went_stale_is_refused",),
        databases=BOTH,
    ),
    SeededFault(
        id="repair.dry_run_written",
        meaning="The dry run of a repair is committed.",
        patches=(
            Patch(
                REPAIR,
                "plan",
                'raise _DryRunDone(_repaired(store, transaction, who="plan", why="dry run", permit=None))',
                'return _repaired(store, transaction, who="plan", why="dry run", permit=None)',
            ),
        ),
        tests=(f"{TESTS}::test_an_edited_state_is_restored_from_the_journal",),
        databases=BOTH,
    ),
    SeededFault(
        id="repair.before_image_not_kept",
        meaning="A repair does not note in the journal what was there before.",
        patches=(
            Patch(SURGEON, "Surgeon._note", "self._transaction.maintenance.note(self._door, EVENT, **note)", "pass"),
        ),
        tests=(f"{TESTS}::test_an_edited_state_is_restored_from_the_journal",),
        databases=BOTH,
    ),
    SeededFault(
        id="repair.failed_round_not_undone",
        meaning="A round of a repair that left something unmended is kept, and the next round comes on top of it.",
        patches=(Patch(REPAIR, "_repaired", "with transaction.savepoint():", "if True:"),),
        tests=(f"{LEFT}::test_damage_that_cannot_be_repaired_does_not_stop_other_repairs",),
        databases=BOTH,
    ),
    SeededFault(
        id="repair.unapproved_grant_stays_active",
        meaning="A repair leaves a grant active that no other person has approved.",
        patches=(
            Patch(
                MENDING,
                "_verdict",
                "if record.machine is GRANT and last.target == GrantState.ACTIVE else None",
                "if False else None",
            ),
        ),
        tests=(
            f"{TESTS}::test_a_corruption_is_repaired_or_its_job_quarantined[sqlite-an_active_grant_without_an_approver]",
        ),
    ),
    SeededFault(
        id="repair.switch_lifted",
        meaning="A repair turns a switch off whose history is not whole.",
        patches=(Patch(MENDING, "_state_without_journal", "else SwitchState.ON", "else SwitchState.OFF"),),
        tests=(f"{RECORDS}::test_a_switch_without_proof_that_it_was_lifted_is_switched_on",),
        databases=BOTH,
    ),
)
