"""Faults of the engine and of scheduling: files, projection, recovery, retries, fairness and events."""

from __future__ import annotations

from tests.faults.seeded import Patch, SeededFault, plain

SQLITE = "store/sqlite/executions.sql"
UNDURABLE = "tests/engine/test_undurable_claims.py"
CRASHED = "tests/crash/test_undurable_claims.py"
FM_001 = "tests/engine/test_fm_001.py"
FM_002 = (
    "tests/engine/test_failure_modes.py::test_fm_002_a_crash_leaves_all_of_a_write_or_nothing_and_recovery_ends_it_once"
)

FAULTS = (
    SeededFault(
        id="engine.file_without_a_write_ahead_log",
        meaning="A SQLite ledger keeps SQLite's default journal, and does not refuse it.",
        patches=(
            Patch(
                "store/sqlite/store.py",
                "SqliteStore._switched_to_wal",
                "PRAGMA journal_mode = WAL",
                "PRAGMA journal_mode",
            ),
            Patch(
                "store/sqlite/store.py",
                "SqliteStore._assert_durable",
                'if mode != "wal" or synchronous',
                "if synchronous",
            ),
        ),
        tests=("tests/store/test_concurrency.py::test_a_ledgers_file_has_a_write_ahead_log",),
        postgres=False,
    ),
    plain(
        "engine.restored_over_other_work",
        "A snapshot is restored into a ledger that has work.",
        Patch("audit/files/restore.py", "_write_ledger", "_require_empty(transaction)", "pass"),
        "tests/audit/test_snapshot_restore.py::test_a_ledger_with_work_or_history_is_refused",
    ),
    plain(
        "engine.committed_job_not_recovered",
        "An attempt that has committed and not finished is never found by recovery.",
        Patch(
            SQLITE,
            "expired_attempts",
            "AND j.lease_expires_at <= :now",
            "AND j.lease_expires_at <= :now AND j.status <> 'COMMITTED'",
        ),
        f"{FM_001}::test_a_crash_between_commit_and_finish_recovers_to_done_with_one_effect",
    ),
    plain(
        "engine.effects_after_the_commit",
        "The end of an attempt is committed before its effects are applied.",
        Patch(
            "engine/tasks.py",
            "EndTask.write",
            "            transaction.apply(staged)",
            "            store, connection = transaction.store, transaction.connection\n"
            "            store._commit(connection), store._begin(connection)\n"
            "            transaction.apply(staged)",
        ),
        FM_002,
    ),
    plain(
        "engine.effects_applied_twice",
        "The effects of a job are applied twice at its commit.",
        Patch("engine/tasks.py", "EndTask.write", "transaction.apply(staged)", "transaction.apply([*staged, *staged])"),
        f"{FM_001}::test_without_a_fault_there_is_one_effect_one_commit_and_no_retry",
    ),
    plain(
        "engine.lease_of_a_success_kept",
        "A job that has succeeded keeps its lease.",
        Patch(SQLITE, "complete_jobs", "lease_expires_at = NULL, ", ""),
        f"{FM_001}::test_without_a_fault_there_is_one_effect_one_commit_and_no_retry",
    ),
    plain(
        "engine.state_not_projected",
        "The state of a job does not follow from the rulings on its last attempt.",
        Patch("core/project.py", "project", "if ruling.attempt == attempt:", "if False:"),
        "tests/core/test_project.py::test_a_history_projects_to_a_state",
        "tests/store/test_projection.py::test_every_history_leaves_the_projected_states_and_the_real_counts",
    ),
    plain(
        "engine.every_job_given_out",
        "A job is claimed by its id in any state.",
        Patch(SQLITE, "claim_these", "WHERE j.due_at <= :now AND j.parked IS NULL\n", "WHERE j.parked IS NULL\n"),
        "tests/store/test_claim.py",
        "tests/store/test_guards_agree.py::test_a_claim_is_made_exactly_when_decide_would_make_it",
    ),
    plain(
        "engine.delay_does_not_grow",
        "The delay between attempts does not grow.",
        Patch("engine/worker/retry_delays.py", "_grown", "policy.multiplier ** min(spent - 1, 64)", "1"),
        "tests/engine/test_retry.py::test_each_strategy_has_its_delays",
    ),
    plain(
        "engine.permanent_failure_retried",
        "A permanent failure is retried.",
        Patch("engine/failures.py", "classify", "return kind_of(error)", "return FailureKind.TRANSIENT"),
        "tests/engine/test_retry.py::test_a_permanent_failure_goes_straight_to_quarantine",
    ),
    plain(
        "engine.low_priorities_starve",
        "A job of a low priority waits for as long as a higher one is due.",
        Patch("store/verbs/fair.py", "FairWrites._first", "step=STEP_S", "step=1e6"),
        "tests/scheduling/test_fair.py::test_no_priority_starves_under_overload_and_few_jobs_overtake_higher_ones",
    ),
    plain(
        "engine.events_in_another_order",
        "The edges of one move are published in the reverse order.",
        Patch(
            "engine/events.py",
            "Subscription.put",
            "self._waiting.extend(events[:room])",
            "self._waiting.extend(events[:room][::-1])",
        ),
        "tests/engine/test_events.py::test_every_transition_is_published_in_the_order_of_the_journal",
    ),
    plain(
        "engine.purged_payload_kept",
        "A purge of quarantined jobs drops nothing.",
        Patch("governance/quarantine.py", "purge", "dry_run=not apply", "dry_run=True"),
        "tests/governance/test_quarantine.py::test_a_purge_drops_payload_and_result_and_keeps_the_record",
    ),
    plain(
        "engine.token_of_a_claim_that_is_not_durable",
        "A handler gets the token of a claim that a crash of the database can take back.",
        Patch("engine/worker/attempt.py", "HeldAttempt.token", "if not self.durable:", "if False:"),
        f"{UNDURABLE}::test_a_token_that_is_read_makes_its_claim_durable_first",
        f"{CRASHED}::test_a_token_reaches_a_handler_only_once_its_claim_is_durable",
    ),
    plain(
        "engine.repeated_attempt_may_be_forgotten",
        "A repeated attempt starts although a crash of the database can take its claim back, and with it the count.",
        Patch("engine/worker/turn.py", "Turn.settled", "if durable or all(", "if True or all("),
        f"{UNDURABLE}::test_the_claim_of_a_repeated_attempt_is_made_durable",
        f"{CRASHED}::test_an_attempt_that_is_not_the_first_starts_only_once_its_claim_is_durable",
    ),
    SeededFault(
        id="engine.end_not_synced_beside_a_claim",
        meaning="On PostgreSQL the ends of a turn are not synced, because the claim beside them need not be.",
        patches=(Patch("store/verbs/turns.py", "TurnWrites.turn", "durable=True", "durable=lease.durable"),),
        tests=(f"{CRASHED}::test_what_is_written_in_one_transaction_with_a_claim_is_synced",),
    ),
    SeededFault(
        id="engine.group_not_synced_beside_a_claim",
        meaning="On PostgreSQL a group of writes is not synced, because a claim in it need not be.",
        patches=(
            Patch(
                "store/verbs/executions.py",
                "ExecutionWrites.claim",
                "lease.durable or not self._session.alone",
                "lease.durable",
            ),
        ),
        tests=(f"{CRASHED}::test_what_is_written_in_one_transaction_with_a_claim_is_synced",),
    ),
    SeededFault(
        id="engine.group_not_synced_in_a_file",
        meaning="In a SQLite ledger a group of writes is not synced, because a claim in it need not be.",
        patches=(Patch("engine/committer.py", "Committer._run", "claims = all(", "claims = any("),),
        tests=(f"{UNDURABLE}::test_a_lone_claim_on_sqlite_is_not_synced_and_every_other_transaction_is",),
        postgres=False,
    ),
    plain(
        "engine.connection_left_unsynced",
        "A connection on which a claim was not synced syncs nothing from then on.",
        Patch(
            "store/sqlite/store.py",
            "SqliteStore._begin",
            "        connection.execute(f",
            "        if synchronous:\n            connection.execute(f",
        ),
        f"{UNDURABLE}::test_a_lone_claim_on_sqlite_is_not_synced_and_every_other_transaction_is",
        f"{UNDURABLE}::test_what_follows_a_claim_that_failed_is_synced",
    ),
)
