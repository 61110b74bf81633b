"""Faults of the committer: which tasks are written together, what is answered when, and what is written again."""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

FILE = "engine/committer.py"
ISOLATION = "engine/isolation.py"
TASKS = "engine/tasks.py"
TESTS = "tests/engine/test_committer.py"

FAULTS = (
    SeededFault(
        id="committer.answered_before_it_is_durable",
        meaning="A caller has its answer before COMMIT, so a leader that dies leaves a false success behind.",
        patches=(
            Patch(
                FILE,
                "Committer._write",
                "self._reach(tasks, DURING)",
                "[task.succeeded(one) for some, all_ in written for task, one in zip(some, all_)];"
                " self._reach(tasks, DURING)",
            ),
        ),
        tests=(f"{TESTS}::test_callers_whose_leader_dies_get_commit_unknown",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.isolated_task_committed_twice",
        meaning="A task that was isolated and committed is committed a second time.",
        patches=(
            Patch(
                ISOLATION,
                "Isolation.run",
                "self._write(remaining, body)",
                "self._write(remaining, body); self._each_alone(remaining)",
            ),
        ),
        tests=(f"{TESTS}::test_one_bad_submit_of_a_group_fails_alone",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.bad_task_fails_its_whole_group",
        meaning="One task that fails is the answer of every task in its group.",
        patches=(
            Patch(
                FILE,
                "Committer._run",
                "Isolation(self.store, self._write).run(rest, error)",
                "[task.failed(error) for task in rest]",
            ),
        ),
        tests=(f"{TESTS}::test_one_bad_submit_of_a_group_fails_alone",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.failed_task_leaves_its_writes",
        meaning="What an isolated task wrote before it failed is committed with the others.",
        patches=(Patch(ISOLATION, "Isolation._one", "with transaction.savepoint():", "if True:"),),
        tests=(f"{TESTS}::test_one_bad_effect_fails_its_own_job_and_no_other",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.unkeyed_submit_repeated",
        meaning="A submit without a key is written again when the answer of COMMIT was lost.",
        patches=(
            Patch(
                ISOLATION,
                "Isolation._without_unrepeatable",
                "if not isinstance(error, CommitUnknownError):",
                "if True:",
            ),
        ),
        tests=(f"{TESTS}::test_without_a_key_a_submit_whose_answer_was_lost_is_not_repeated",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.refused_end_applies_its_effects",
        meaning="The effects of an end that the store has refused are applied.",
        patches=(
            Patch(
                TASKS,
                "EndTask.write",
                "if (task.effects or task.followups or task.traceback) and isinstance(answer, Move)",
                "if task.effects or task.followups",
            ),
        ),
        tests=(f"{TESTS}::test_a_group_whose_answer_was_lost_repeats_its_keyed_submits",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.effects_not_applied",
        meaning="A job succeeds and its effects are not applied.",
        patches=(Patch(TASKS, "EndTask.write", "transaction.apply(staged)", "pass"),),
        tests=(f"{TESTS}::test_no_job_sees_another_half_done",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.followups_not_submitted",
        meaning="A job succeeds and the jobs that it submits at its commit are not recorded.",
        patches=(Patch(TASKS, "EndTask.write", "if leading:", "if False:"),),
        tests=("tests/engine/test_execution.py::test_follow_ups_become_jobs_of_their_own_when_the_job_commits",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.durable_work_written_again",
        meaning="What was committed is written again because a subscriber failed afterwards.",
        patches=(Patch(FILE, "Committer._write", "not_published(error)", "raise error"),),
        tests=(f"{TESTS}::test_an_error_after_the_commit_does_not_repeat_the_transaction",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.every_task_waits_for_a_dead_database",
        meaning="When no transaction can be begun, each task of the group tries to begin one.",
        patches=(Patch(FILE, "Committer._write", "if began:", "if True:"),),
        tests=(f"{TESTS}::test_if_no_transaction_can_begin_all_tasks_fail_at_once",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.answers_exchanged",
        meaning="Callers that submit together get each other's jobs as their answer.",
        patches=(
            Patch(
                TASKS, "SubmitTask.write", "for task in tasks], transaction)", "for task in tasks], transaction)[::-1]"
            ),
        ),
        tests=(f"{TESTS}::test_callers_that_share_a_transaction_get_their_own_jobs",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.leader_that_has_left_leads",
        meaning="A caller that an exception has stopped stays the leader, and every later write waits for it.",
        patches=(Patch(FILE, "Committer._leads", "not self._leader.here.locked()", "False"),),
        tests=(f"{TESTS}::test_a_leader_that_has_left_is_replaced",),
        databases=BOTH,
    ),
    SeededFault(
        id="committer.effect_that_ends_its_connection_repeated",
        meaning="The end of a job whose effect ends its own connection is written again for ever.",
        patches=(Patch(ISOLATION, "_lost_in_effects", "isinstance(error, StoreUnavailableError)", "False"),),
        tests=(f"{TESTS}::test_an_effect_that_ends_its_own_connection_fails_its_own_job",),
        databases=("postgres",),
    ),
)
