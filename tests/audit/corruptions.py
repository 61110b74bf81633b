"""The listed logical corruptions: each is written past the ledger's triggers and names what a check must find.

Invariants: a corruption names every violation it causes, as (invariant, subject), on both databases; whatever else a
check reports of that ledger is a false alarm.
"""

from __future__ import annotations

from collections.abc import Callable

from tests.audit.knife import LONG_AGO, Knife, unguarded
from tests.audit.rich import Rich

Found = set[tuple[str, str]]
Plant = Callable[[Knife], Found]
CORRUPTIONS: dict[str, Plant] = {}


def corrupt(url: str, rich: Rich, name: str) -> Found:
    """Plant a corruption in a rich ledger, and return what a check must find: no less and no more."""
    with unguarded(url, rich) as knife:
        return CORRUPTIONS[name](knife)


def job(job_id: int, *invariants: str) -> Found:
    return {(invariant, f"JOB {job_id}") for invariant in invariants}


def execution(exec_id: int, *invariants: str) -> Found:
    return {(invariant, f"EXECUTION {exec_id}") for invariant in invariants}


def on_sqlite(knife: Knife, subject: str) -> Found:
    """Return what SQLite's own checks say too; PostgreSQL checks rows only when they are written."""
    return {("database", subject)} if knife.dialect == "sqlite" else set()


def listed(plant: Plant) -> Plant:
    CORRUPTIONS[plant.__name__] = plant
    return plant


# ---------------------------------------------------------------------------------------------------------------------
# States


@listed
def a_state_that_is_none(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, state="lost")
    return job(k.rich.waiting, "one_state", "journal_continuous")


@listed
def a_status_that_is_none(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.running)
    k.set("JOB", k.rich.running, status="GONE")
    broken = execution(exec_id, "one_state", "journal_continuous")
    return broken | job(k.rich.running, "state_is_projected", "fields_valid") | on_sqlite(k, "LEDGER")


@listed
def a_grant_in_a_state_that_is_none(k: Knife) -> Found:
    k.set("GRANT", k.rich.draft_grant, state="lent")
    subject = f"GRANT {k.rich.draft_grant}"
    return {("one_state", subject), ("journal_continuous", subject)}


@listed
def a_waiting_job_called_failed(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, state="failed")
    return job(k.rich.waiting, "state_is_projected", "journal_continuous", "fields_valid")


@listed
def a_failed_job_called_pending(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, state="pending")
    return job(k.rich.failed, "state_is_projected", "journal_continuous")


@listed
def a_quarantined_job_let_out(k: Knife) -> Found:
    k.set("JOB", k.rich.poisoned, state="pending")
    return job(k.rich.poisoned, "state_is_projected", "journal_continuous", "fields_valid")


@listed
def a_draft_grant_called_active(k: Knife) -> Found:
    k.set("GRANT", k.rich.draft_grant, state="active")
    subject = f"GRANT {k.rich.draft_grant}"
    return {("journal_continuous", subject), ("grants_authentic", subject)}


@listed
def a_step_undone_by_hand(k: Knife) -> Found:
    k.set("STEP", k.rich.step, state="undone")
    return {("journal_continuous", f"STEP {k.rich.step}")}


@listed
def a_switch_switched_off_by_hand(k: Knife) -> Found:
    k.set("SWITCH", k.rich.switch, state="off")
    return {("journal_continuous", f"SWITCH {k.rich.switch}")}


@listed
def a_switch_lifted_without_a_grant(k: Knife) -> Found:
    k.set_row(k.row("SWITCH", k.rich.lifted_switch, "lift"), grant_id=None)
    return {("journal_legal", f"SWITCH {k.rich.lifted_switch}")}


@listed
def a_superseded_value_called_active(k: Knife) -> Found:
    k.set("VALUE", k.rich.superseded, state="active")
    return {("journal_continuous", f"VALUE {k.rich.superseded}")} | on_sqlite(k, "LEDGER")


# ---------------------------------------------------------------------------------------------------------------------
# Governance


@listed
def a_consumed_grant_without_a_consumer(k: Knife) -> Found:
    k.set("GRANT", k.rich.released_grant, consumed_by=None)
    return {("grants_authentic", f"GRANT {k.rich.released_grant}")} | on_sqlite(k, "LEDGER")


@listed
def an_active_grant_without_an_approver(k: Knife) -> Found:
    k.set("GRANT", k.rich.active_grant, approved_by=None)
    return {("grants_authentic", f"GRANT {k.rich.active_grant}")}


@listed
def a_step_of_no_run(k: Knife) -> Found:
    k.set("STEP", k.rich.step, run_id=7777)
    return {("governance_whole", f"STEP {k.rich.step}")} | on_sqlite(k, f"STEP {k.rich.step}")


@listed
def a_value_of_no_collection(k: Knife) -> Found:
    k.set("VALUE", k.rich.value, collection="nowhere")
    return {("governance_whole", f"VALUE {k.rich.value}")} | on_sqlite(k, f"VALUE {k.rich.value}")


@listed
def evidence_of_no_run(k: Knife) -> Found:
    k.run("UPDATE holdfast_evidence SET run_id = 7777")
    return {("governance_whole", f"EVIDENCE {k.rich.evidence}")} | on_sqlite(k, "TABLE holdfast_evidence")


@listed
def evidence_that_was_edited(k: Knife) -> Found:
    k.run("UPDATE holdfast_evidence SET content = '{\"values\":3}'")
    return {("governance_whole", f"EVIDENCE {k.rich.evidence}")}


# ---------------------------------------------------------------------------------------------------------------------
# Leases


@listed
def a_waiting_job_called_running(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, state="running")
    [exec_id] = k.executions(k.rich.waiting)  # attempt 0
    return job(k.rich.waiting, "attempts_monotonic", "journal_continuous") | execution(exec_id, "journal_continuous")


@listed
def a_running_job_called_pending(k: Knife) -> Found:
    k.set("JOB", k.rich.running, state="pending")
    return job(k.rich.running, "attempts_monotonic", "journal_continuous")


@listed
def an_attempt_that_has_ended_and_runs(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.running)
    k.invent_aborted(k.rich.running, 1)
    both = execution(exec_id, "journal_continuous", "attempts_monotonic", "fields_valid")
    return both | job(k.rich.running, "attempts_monotonic", "fields_valid")


@listed
def a_lease_that_ran_out_long_ago(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.running)
    k.set("JOB", k.rich.running, lease_expires_at=LONG_AGO)
    return execution(exec_id, "lease_overdue")


# ---------------------------------------------------------------------------------------------------------------------
# Commits


@listed
def a_success_without_a_commit(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, state="succeeded", result="1")
    [exec_id] = k.executions(k.rich.waiting)  # attempt 0
    return job(k.rich.waiting, "attempts_monotonic", "journal_continuous") | execution(exec_id, "journal_continuous")


@listed
def a_success_that_is_moved_on(k: Knife) -> Found:
    k.forge("JOB", k.rich.done, source="succeeded", target="pending", event="retry")
    k.set("JOB", k.rich.done, state="pending", version=int(str(k.get("JOB", k.rich.done, "version"))) + 1)
    moved = job(k.rich.done, "succeeded_immutable", "journal_legal", "attempts_monotonic", "results_present")
    return moved | job(k.rich.followup, "commits_equal_effects")


@listed
def a_commit_that_is_undone(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.done)
    k.set("JOB", k.rich.done, state="failed", result=None, last_error_code="io_error")
    k.invent_aborted(k.rich.done, 1)
    undone = execution(exec_id, "journal_continuous", "commits_equal_effects", "fields_valid")
    return undone | job(k.rich.done, "journal_continuous") | job(k.rich.followup, "commits_equal_effects")


@listed
def a_second_commit(k: Knife) -> Found:
    """Let the journal say that an attempt before the one that succeeded has committed too."""
    exec_id = k.executions(k.rich.done_late)[0]
    k.set_row(k.row("JOB", k.rich.done_late, "retry"), status_to="DONE")
    return execution(exec_id, "journal_continuous", "commits_equal_effects")


@listed
def a_commit_of_a_job_that_is_said_to_have_failed(k: Knife) -> Found:
    k.set("JOB", k.rich.done, state="failed", last_error_code="io_error")
    failed = job(k.rich.done, "attempts_monotonic", "journal_continuous", "results_present", "state_is_projected")
    return failed | job(k.rich.followup, "commits_equal_effects")


@listed
def a_commit_that_the_journal_does_not_know(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.running)
    k.set("JOB", k.rich.running, status="COMMITTED")
    return execution(exec_id, "journal_continuous", "commits_equal_effects")


@listed
def a_missing_end(k: Knife) -> Found:
    """Set the job back to before its end, but not its journal."""
    exec_id = k.executions(k.rich.done_late)[-1]
    version = int(str(k.get("JOB", k.rich.done_late, "version")))
    k.set("JOB", k.rich.done_late, state="running", status="COMMITTED", version=version - 1)
    return execution(exec_id, "journal_continuous") | job(k.rich.done_late, "journal_continuous")


@listed
def a_followup_of_a_job_that_never_committed(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, client="holdfast", key=f"{k.rich.failed}/1")
    return job(k.rich.waiting, "commits_equal_effects")


# ---------------------------------------------------------------------------------------------------------------------
# Attempts


@listed
def attempts_that_shrank(k: Knife) -> Found:
    *_, third, fourth = k.executions(k.rich.done_late)
    k.set("JOB", k.rich.done_late, attempts=3)
    third_twice = execution(third, "attempts_monotonic", "commits_equal_effects", "fields_valid", "journal_continuous")
    return job(k.rich.done_late, "attempts_monotonic") | third_twice | execution(fourth, "no_orphans")


@listed
def attempts_without_an_execution(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, attempts=4)
    return job(k.rich.failed, "attempts_monotonic")


@listed
def excuses_without_a_lost_lease(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, excused=1)
    return job(k.rich.failed, "attempts_monotonic")


@listed
def attempts_below_zero(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, attempts=-1)
    return job(k.rich.waiting, "attempts_monotonic", "fields_valid") | on_sqlite(k, "LEDGER")


@listed
def attempts_that_shrink_in_the_journal(k: Knife) -> Found:
    k.run(
        "UPDATE holdfast_journal SET attempt = 0 WHERE machine = 'JOB' AND subject = ? AND event = 'succeed'",
        k.rich.done_late,
    )
    exec_id = k.executions(k.rich.done_late)[-1]
    return job(k.rich.done_late, "attempts_monotonic") | execution(exec_id, "journal_continuous")


@listed
def an_attempt_that_is_lost(k: Knife) -> Found:
    k.forget_aborted(k.executions(k.rich.done_late)[0])
    return job(k.rich.done_late, "attempts_monotonic")


@listed
def an_attempt_that_never_was(k: Knife) -> Found:
    k.invent_aborted(k.rich.waiting, 3)
    [exec_id] = k.executions(k.rich.waiting)
    never = job(k.rich.waiting, "attempts_monotonic", "state_is_projected", "fields_valid")
    return never | execution(exec_id, "journal_continuous")


@listed
def an_attempt_of_another_number(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, attempt=7)
    return job(k.rich.failed, "attempts_monotonic") | execution(exec_id + 6, "journal_continuous")


@listed
def an_attempt_that_another_move_ended(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, move_id="by hand", event="give_back")
    return execution(exec_id, "fields_valid")


@listed
def an_attempt_that_was_excused_by_hand(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, excused=True)
    return job(k.rich.failed, "attempts_monotonic", "fields_valid")


@listed
def an_attempt_of_another_version(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, version=2)
    return execution(exec_id, "journal_continuous")


@listed
def a_token_that_was_lowered(k: Knife) -> Found:
    exec_id = k.executions(k.rich.done_late)[-1]
    k.set("JOB", k.rich.done_late, lease_token=5)
    return execution(exec_id, "attempts_monotonic")


@listed
def a_token_of_a_waiting_job_that_was_lowered(k: Knife) -> Found:
    k.set("JOB", k.rich.retried, lease_token=5)
    return job(k.rich.retried, "attempts_monotonic")


@listed
def a_token_of_an_ended_attempt_that_was_raised(k: Knife) -> Found:
    second = k.executions(k.rich.done_late)[1]
    k.set_aborted(k.executions(k.rich.done_late)[0], lease_token=1 << 60)
    return execution(second, "attempts_monotonic")


# ---------------------------------------------------------------------------------------------------------------------
# The journal


@listed
def a_journal_row_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE seq = ?", k.row("JOB", k.rich.done_late, "claim"))
    first = k.executions(k.rich.done_late)[0]
    return job(k.rich.done_late, "journal_continuous", "attempts_monotonic") | execution(first, "journal_continuous")


@listed
def a_history_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", k.rich.waiting)
    return job(k.rich.waiting, "journal_continuous")


@listed
def a_last_row_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE seq = ?", k.row("JOB", k.rich.failed, "fail"))
    [exec_id] = k.executions(k.rich.failed)
    return job(k.rich.failed, "journal_continuous") | execution(exec_id, "journal_continuous")


@listed
def a_journal_row_twice(k: Knife) -> Found:
    index = "holdfast_journal_subject" if k.dialect == "sqlite" else "holdfast_journal_p0_subject"
    k.run(f"DROP INDEX {index}")
    k.forge("JOB", k.rich.waiting, version=1, source=None, target="pending", event="submit")
    return job(k.rich.waiting, "journal_continuous") | {("enforcement", f"INDEX {index}")}


@listed
def a_journal_row_too_many(k: Knife) -> Found:
    k.forge("JOB", k.rich.failed, source="failed", target="pending", event="retry")
    return job(k.rich.failed, "journal_continuous", "state_is_projected")


@listed
def a_source_that_was_edited(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.failed, "claim"), source="failed")
    return job(k.rich.failed, "journal_continuous", "journal_legal")


@listed
def a_target_that_was_edited(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.waiting, "submit"), target="failed")
    return job(k.rich.waiting, "journal_continuous", "journal_legal")


@listed
def an_event_that_was_edited(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.failed, "fail"), event="give_back")
    [exec_id] = k.executions(k.rich.failed)
    return job(k.rich.failed, "journal_legal") | execution(exec_id, "fields_valid")


@listed
def a_status_that_was_edited_in_the_journal(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_row(k.row("JOB", k.rich.failed, "fail"), status_to="COMMITTED")
    return execution(exec_id, "journal_continuous", "commits_equal_effects")


@listed
def a_commit_whose_row_is_gone(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.committed)
    k.run("DELETE FROM holdfast_journal WHERE seq = ?", k.row("EXECUTION", exec_id, "commit"))
    return execution(exec_id, "journal_continuous", "commits_equal_effects")


@listed
def half_of_a_path(k: Knife) -> Found:
    """Let a retry end at its first edge: no event of the table takes that one alone."""
    k.set_row(k.row("JOB", k.rich.retried, "retry"), target="failed")
    return job(k.rich.retried, "journal_continuous", "journal_legal", "state_is_projected")


@listed
def a_time_that_goes_back(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.failed, "fail"), at=LONG_AGO)
    [exec_id] = k.executions(k.rich.failed)
    return job(k.rich.failed, "journal_legal") | execution(exec_id, "journal_legal")


@listed
def a_time_that_is_none(k: Knife) -> Found:
    """On SQLite a text that is no time; on PostgreSQL, where a column of times holds only times, one to come."""
    [exec_id] = k.executions(k.rich.failed)
    k.set_row(k.row("JOB", k.rich.failed, "fail"), at="yesterday" if k.dialect == "sqlite" else "2999-01-01Z")
    return job(k.rich.failed, "fields_valid") | execution(exec_id, "fields_valid")


@listed
def a_release_without_a_grant(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.released, "release"), grant_id=None)
    return job(k.rich.released, "journal_legal")


@listed
def a_version_too_many(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, version=9)
    return job(k.rich.failed, "journal_continuous")


@listed
def a_history_cut_by_hand(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, history_from=2)
    return job(k.rich.failed, "journal_continuous")


@listed
def a_history_that_is_gone_and_cut(k: Knife) -> Found:
    """Let a job out of quarantine, and remove its history as if that had been archived."""
    k.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ?", k.rich.poisoned)
    version = int(str(k.get("JOB", k.rich.poisoned, "version")))
    k.set("JOB", k.rich.poisoned, state="pending", quarantine_code=None, history_from=version + 1)
    return job(k.rich.poisoned, "journal_continuous")


@listed
def the_beginning_of_a_history_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE machine = 'JOB' AND subject = ? AND version < 3", k.rich.failed)
    k.set("JOB", k.rich.failed, history_from=3)
    return job(k.rich.failed, "journal_continuous")


@listed
def a_grant_whose_history_is_gone_and_cut(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE machine = 'GRANT' AND subject = ?", k.rich.draft_grant)
    k.set("GRANT", k.rich.draft_grant, history_from=2)
    return {("journal_continuous", f"GRANT {k.rich.draft_grant}")}


@listed
def a_release_under_a_grant_that_never_was(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.released, "release"), grant_id=999)
    return job(k.rich.released, "journal_legal")


@listed
def a_release_under_a_grant_for_another_act(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.released, "release"), grant_id=k.rich.active_grant)
    return job(k.rich.released, "journal_legal")


@listed
def a_release_that_did_not_use_its_grant_up(k: Knife) -> Found:
    k.forge(
        "JOB", k.rich.poisoned, source="quarantined", target="pending", event="release", grant_id=k.rich.draft_grant
    )
    version = int(str(k.get("JOB", k.rich.poisoned, "version")))
    k.set("JOB", k.rich.poisoned, state="pending", version=version + 1, quarantine_code=None)
    return job(k.rich.poisoned, "journal_legal")


@listed
def a_switch_lifted_under_the_grant_of_another(k: Knife) -> Found:
    k.set_row(k.row("SWITCH", k.rich.lifted_switch, "lift"), grant_id=k.rich.released_grant)
    return {("journal_legal", f"SWITCH {k.rich.lifted_switch}")}


@listed
def a_value_under_a_grant_that_never_was(k: Knife) -> Found:
    k.set_row(k.row("VALUE", k.rich.value, "admit"), grant_id=999)
    return {("journal_legal", f"VALUE {k.rich.value}")}


@listed
def a_way_out_under_maintenance_that_never_was(k: Knife) -> Found:
    k.forge("JOB", k.rich.poisoned, source="quarantined", target="pending", event="whatever", maintenance_id=4242)
    version = int(str(k.get("JOB", k.rich.poisoned, "version")))
    k.set("JOB", k.rich.poisoned, state="pending", version=version + 1, quarantine_code=None)
    return job(k.rich.poisoned, "journal_legal")


@listed
def a_move_under_maintenance_of_another_time(k: Knife) -> Found:
    k.set_row(k.row("JOB", k.rich.failed, "fail"), maintenance_id=k.rich.maintenance)
    [exec_id] = k.executions(k.rich.failed)
    return job(k.rich.failed, "journal_legal") | execution(exec_id, "journal_legal")


@listed
def two_rows_that_changed_places(k: Knife) -> Found:
    first, second = (k.row("JOB", k.rich.failed, event) for event in ("claim", "fail"))
    for seq, becomes in ((first, 900_000), (second, first), (900_000, second)):
        k.set_row(seq, seq=becomes)
    [exec_id] = k.executions(k.rich.failed)
    return job(k.rich.failed, "journal_continuous") | execution(exec_id, "journal_continuous")


@listed
def a_maintenance_that_never_ended(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_journal WHERE machine = 'MAINTENANCE' AND target = 'shut'")
    return {("journal_continuous", f"MAINTENANCE {k.rich.maintenance}")}


@listed
def a_maintenance_with_a_gap(k: Knife) -> Found:
    """Remove a row from the middle of a record's journal."""
    k.run("DELETE FROM holdfast_journal WHERE machine = 'MAINTENANCE' AND version = 2")
    return {("journal_continuous", f"MAINTENANCE {k.rich.maintenance}")}


# ---------------------------------------------------------------------------------------------------------------------
# Counts


@listed
def a_count_too_high(k: Knife) -> Found:
    k.keep_counts = False
    k.run("UPDATE holdfast_counts SET n = n + 1 WHERE operation = 'echo' AND state = 'succeeded'")
    return {("counts_true", "COUNTS echo/default/succeeded")}


@listed
def a_delta_too_many(k: Knife) -> Found:
    k.keep_counts = False
    k.run(
        "INSERT INTO holdfast_count_deltas (operation, queue, source, target, n)"
        " VALUES ('echo', 'default', 'pending', 'failed', 2)"
    )
    return {("counts_true", "COUNTS echo/default/failed"), ("counts_true", "COUNTS echo/default/pending")}


@listed
def counts_of_nothing(k: Knife) -> Found:
    k.keep_counts = False
    k.run("INSERT INTO holdfast_counts (operation, queue, state, n) VALUES ('ghost', 'attic', 'pending', 3)")
    return {("counts_true", "COUNTS ghost/attic/pending")}


@listed
def a_slot_of_a_job_that_has_ended(k: Knife) -> Found:
    k.run(f"INSERT INTO holdfast_slots (bucket, slot, job_id) VALUES ('queue:default', 1, {k.rich.done})")
    return {("slots_true", "SLOT queue:default/1")}


# ---------------------------------------------------------------------------------------------------------------------
# Orphans and keys


@listed
def a_job_that_is_gone(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.run("DELETE FROM holdfast_jobs WHERE job_id = ?", k.rich.failed)
    return job(k.rich.failed, "no_orphans") | execution(exec_id, "no_orphans")


@listed
def a_job_without_its_call(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_calls WHERE job_id = ?", k.rich.failed)
    return job(k.rich.failed, "no_orphans", "fields_valid")


@listed
def a_call_of_nothing(k: Knife) -> Found:
    k.run(
        "INSERT INTO holdfast_calls (job_id, operation_version, client, payload, digest, max_attempts, replay_attempts,"
        " created_at) VALUES (8888, '1', 'raw', '{}', 'none', 1, 0, ?)",
        LONG_AGO,
    )
    k.run(k.going_on_after("holdfast_calls", "job_id", 8888))
    return job(8888, "no_orphans")


@listed
def an_execution_that_is_gone(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.forget_aborted(exec_id)
    return job(k.rich.failed, "attempts_monotonic", "state_is_projected")


@listed
def an_execution_of_a_job_that_never_was(k: Knife) -> Found:
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, job_id=7777)
    lost = job(k.rich.failed, "attempts_monotonic", "state_is_projected")
    return lost | execution(7777000001, "no_orphans")


@listed
def a_checkpoint_of_nothing(k: Knife) -> Found:
    k.run(
        "INSERT INTO holdfast_checkpoints (job_id, name, value, exec_id, created_at) VALUES (7777, 'page', '1', 1, ?)",
        LONG_AGO,
    )
    return {("no_orphans", "CHECKPOINT 7777/page")} | on_sqlite(k, "TABLE holdfast_checkpoints")


@listed
def a_job_that_replaces_nothing(k: Knife) -> Found:
    k.set("JOB", k.rich.replacing, replaces=7777)
    return job(k.rich.replacing, "no_orphans") | on_sqlite(k, "TABLE holdfast_calls")


@listed
def a_journal_of_nothing(k: Knife) -> Found:
    k.forge("JOB", k.rich.waiting, machine="ENTRY", subject=5, version=1, source=None, target="Pending", event="append")
    return {("no_orphans", "ENTRY 5")}


@listed
def a_key_twice(k: Knife) -> Found:
    k.run("DROP INDEX holdfast_calls_key")
    k.set("JOB", k.rich.waiting, client="web", key="failed")
    return job(k.rich.waiting, "keys_unique") | {("enforcement", "INDEX holdfast_calls_key")}


# ---------------------------------------------------------------------------------------------------------------------
# Results and columns


@listed
def a_result_that_is_gone(k: Knife) -> Found:
    k.set("JOB", k.rich.done, result=None)
    return job(k.rich.done, "results_present")


@listed
def a_result_that_is_not_json(k: Knife) -> Found:
    k.set("JOB", k.rich.done, result="{")
    return job(k.rich.done, "results_present")


@listed
def a_result_before_its_commit(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, result="1")
    return job(k.rich.waiting, "results_present")


@listed
def a_payload_that_is_gone(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, payload=None)
    return job(k.rich.failed, "results_present")


@listed
def a_slimmed_job_with_a_result(k: Knife) -> Found:
    k.set("JOB", k.rich.slimmed, result="1")
    return job(k.rich.slimmed, "results_present")


@listed
def a_slimmed_job_with_a_checkpoint(k: Knife) -> Found:
    k.run(
        "INSERT INTO holdfast_checkpoints (job_id, name, value, exec_id, created_at) VALUES (?, 'page', '1', 1, ?)",
        k.rich.slimmed,
        LONG_AGO,
    )
    return job(k.rich.slimmed, "results_present")


@listed
def an_erased_job_with_its_payload(k: Knife) -> Found:
    k.run(
        "INSERT INTO holdfast_erased (job_id, client, key_hash, erased_at, actor, reason, grant_id, move_id)"
        " SELECT ?, 'web', NULL, ?, 'ann', 'a test', max(grant_id), 'm' FROM holdfast_grants",
        k.rich.done,
        LONG_AGO,
    )
    return job(k.rich.done, "erasures_hold")


@listed
def a_payload_that_was_edited(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, payload='{"of":"somebody else"}')
    return job(k.rich.waiting, "fields_valid")


@listed
def a_digest_that_was_edited(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, digest="0" * 64)
    return job(k.rich.waiting, "fields_valid")


@listed
def a_birthday_that_was_edited(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, created_at=LONG_AGO)
    return job(k.rich.waiting, "fields_valid")


@listed
def a_last_change_before_the_last_move(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, updated_at=k.get("JOB", k.rich.failed, "run_at"))
    return job(k.rich.failed, "fields_valid")


@listed
def a_change_before_the_birth(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, updated_at=LONG_AGO)
    return job(k.rich.waiting, "fields_valid")


@listed
def an_error_that_is_gone(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, last_error_code=None, last_error_message=None)
    return job(k.rich.failed, "fields_valid")


@listed
def an_error_that_never_was(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, last_error_code="io_error")
    return job(k.rich.waiting, "fields_valid")


@listed
def a_stack_trace(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, last_error_message="Traceback (most recent call last):\n  File …")
    return job(k.rich.failed, "fields_valid")


@listed
def a_message_without_end(k: Knife) -> Found:
    k.set("JOB", k.rich.failed, last_error_message="x" * 100_000)
    return job(k.rich.failed, "fields_valid")


@listed
def a_quarantine_code_on_a_waiting_job(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, quarantine_code="poison")
    return job(k.rich.waiting, "fields_valid")


@listed
def a_quarantine_without_a_code(k: Knife) -> Found:
    k.set("JOB", k.rich.quarantined, quarantine_code=None)
    return job(k.rich.quarantined, "fields_valid")


@listed
def an_attempt_without_its_end(k: Knife) -> Found:
    """Let an attempt end before its last move; the column cannot be empty."""
    [exec_id] = k.executions(k.rich.failed)
    k.set_aborted(exec_id, finished_at=k.get("JOB", k.rich.failed, "last_attempt_at"))
    return execution(exec_id, "fields_valid")


@listed
def a_limit_that_no_submit_would_take(k: Knife) -> Found:
    k.set("JOB", k.rich.waiting, max_attempts=0)
    return job(k.rich.waiting, "fields_valid") | on_sqlite(k, "LEDGER")


# ---------------------------------------------------------------------------------------------------------------------
# What guards


@listed
def a_machine_of_another_table(k: Knife) -> Found:
    k.after = ["UPDATE holdfast_machines SET digest = 'of another table' WHERE machine = 'JOB'"]
    return {("enforcement", "MACHINE JOB")}


@listed
def a_trigger_that_is_gone(k: Knife) -> Found:
    sqlite = k.dialect == "sqlite"
    k.after = ["DROP TRIGGER holdfast_jobs_move" if sqlite else "DROP TRIGGER holdfast_jobs_moved ON holdfast_jobs"]
    return {("enforcement", "TRIGGER holdfast_jobs_move" + ("" if sqlite else "d"))}


@listed
def an_index_that_is_gone(k: Knife) -> Found:
    k.run("DROP INDEX holdfast_switches_on")
    return {("enforcement", "INDEX holdfast_switches_on")}


@listed
def a_foreign_trigger(k: Knife) -> Found:
    """Discard writes of the ledger without an error."""
    if k.dialect == "sqlite":
        k.after = [
            "CREATE TRIGGER mine BEFORE INSERT ON holdfast_count_deltas BEGIN SELECT RAISE(IGNORE); END",
        ]
    else:
        k.after = [
            "CREATE FUNCTION mine() RETURNS trigger LANGUAGE plpgsql AS 'BEGIN RETURN NULL; END'",
            "CREATE TRIGGER mine BEFORE INSERT ON holdfast_count_deltas FOR EACH ROW EXECUTE FUNCTION mine()",
        ]
    return {("enforcement", "TRIGGER mine")}


@listed
def a_foreign_rule(k: Knife) -> Found:
    """The same by a rule, which SQLite does not have: there, a trigger with a name that must be quoted."""
    if k.dialect == "sqlite":
        k.after = ['CREATE TRIGGER "My ""own""" AFTER UPDATE ON HOLDFAST_JOBS BEGIN SELECT 1; END']
        return {("enforcement", 'TRIGGER My "own"')}
    k.after = ["CREATE RULE mine AS ON INSERT TO holdfast_count_deltas DO INSTEAD NOTHING"]
    return {("enforcement", "RULE mine")}


@listed
def ids_of_jobs_that_begin_anew(k: Knife) -> Found:
    k.after = [k.going_on_after("holdfast_calls", "job_id", 1)]
    return {("enforcement", "SEQUENCE holdfast_calls")}


@listed
def numbers_of_grants_that_begin_anew(k: Knife) -> Found:
    k.after = [k.going_on_after("holdfast_grants", "grant_id", 1)]
    return {("enforcement", "SEQUENCE holdfast_grants")}


@listed
def an_environment_that_is_none(k: Knife) -> Found:
    k.run("UPDATE holdfast_meta SET value = 'production' WHERE name = 'environment'")
    return {("settings_readable", "SETTING environment")}


@listed
def a_setting_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_meta WHERE name = 'governed'")
    return {("settings_readable", "SETTING governed")}


@listed
def defaults_that_are_not_json(k: Knife) -> Found:
    k.run("UPDATE holdfast_operations SET defaults = '{' WHERE operation = 'echo'")
    return {("settings_readable", "OPERATION echo")}


@listed
def a_door_that_stands_open(k: Knife) -> Found:
    opened = f"INSERT INTO holdfast_maintenance (who, why, opened_at) VALUES ('nobody', 'by hand', '{LONG_AGO}')"
    guard = "ALTER TABLE holdfast_maintenance {} TRIGGER holdfast_maintenance_still_open"
    refused = k.dialect == "postgres"  # on SQLite a foreign key refuses this, and a session can switch foreign keys off
    k.after = [guard.format("DISABLE"), opened, guard.format("ENABLE ALWAYS")] if refused else [opened]
    return {("enforcement", "DOOR")}


@listed
def a_seal_that_was_edited(k: Knife) -> Found:
    k.run("UPDATE holdfast_seals SET rows = rows + 1 WHERE seal_id = 1")
    return {("seals_chained", "SEAL 1")}


@listed
def a_seal_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_seals WHERE seal_id = 1")
    return {("seals_chained", "SEAL 2")}


@listed
def a_last_seal_that_is_gone(k: Knife) -> Found:
    k.run("DELETE FROM holdfast_seals WHERE seal_id = 2")
    return {("seals_chained", "LEDGER")}


@listed
def a_last_seal_that_was_edited(k: Knife) -> Found:
    k.run("UPDATE holdfast_seals SET sealed_at = ? WHERE seal_id = 2", LONG_AGO)
    return {("seals_chained", "SEAL 2")}
