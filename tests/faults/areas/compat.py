"""Faults of the names of the sources: the queue of jobs with its validator and detector, and the write-ahead log."""

from __future__ import annotations

from tests.faults.seeded import Patch, SeededFault, plain

STATES, VALIDATOR, QUEUE = "compat/states.py", "compat/validator.py", "compat/job_queue.py"
STALLS, WAL, MOVES = "compat/stalls.py", "compat/wal.py", "compat/wal_moves.py"
TESTS = "tests/compat"
LOG = f"{TESTS}/wal/test_wal.py"
RECOVERY = f"{TESTS}/wal/test_wal_recovery.py"

JOBS = (
    plain(
        "compat.same_status_not_allowed",
        "The table does not allow the request of the status that a job has.",
        Patch(STATES, "", "frozenset({status, *(", "frozenset({*("),
        f"{TESTS}/test_valid_transitions.py::test_table_is_that_of_g_and_one_named_edge_more",
    ),
    plain(
        "compat.every_transition_valid",
        "A transition as a value is always valid.",
        Patch(STATES, "StateTransition.is_valid", "self.to_status in VALID_TRANSITIONS[self.from_status]", "True"),
        f"{TESTS}/test_valid_transitions.py::test_a_transition_knows_whether_it_is_legal_and_whether_it_is_a_no_op",
    ),
    plain(
        "compat.illegal_transition_validated",
        "The validator accepts a transition that the table does not list.",
        Patch(VALIDATOR, "StateMachineValidator.judge", "if not transition.is_valid():", "if False:"),
        f"{TESTS}/test_invalid_transitions.py::test_the_validator_refuses_logs_it_and_records_nothing",
        f"{TESTS}/test_state_machine_exhaustive.py::test_all_pairs_through_the_validator",
    ),
    plain(
        "compat.strict_refusal_skipped",
        "A strict move that the table does not allow is skipped, not refused.",
        Patch(
            QUEUE,
            "IdempotentJobQueue._move",
            "if not idempotent:\n                    raise\n",
            "if False:\n                    raise\n",
        ),
        f"{TESTS}/test_invalid_transitions.py::test_invalid_transitions",
    ),
    plain(
        "compat.job_of_another_worker_taken",
        "A worker that marks a job as running is not refused although another worker holds the job.",
        Patch(
            QUEUE,
            "IdempotentJobQueue.mark_running",
            "if not moved and not idempotent and not self._holds(job_id):",
            "if False:",
        ),
        f"{TESTS}/test_idempotent_transitions.py::test_marking_a_running_job_as_running_does_not_make_it_yours",
        f"{TESTS}/test_optimistic_locking.py::test_of_many_workers_that_claim_one_job_one_gets_it",
    ),
    plain(
        "compat.missing_job_another_error",
        "A job that does not exist is another error than the one that callers catch.",
        Patch("compat/jobs.py", "find", "raise JobNotFoundError(", "raise InputError("),
        f"{TESTS}/test_invalid_transitions.py::test_a_job_that_is_not_there_is_an_error_in_both_modes",
    ),
    plain(
        "compat.row_with_the_time_of_its_creation",
        "A row says that its last change was its creation.",
        Patch("compat/jobs.py", "row", "updated_at=time_text(job.updated_at)", "updated_at=time_text(job.created_at)"),
        f"{TESTS}/test_valid_transitions.py::test_rows_and_counts_follow_the_states_of_a_job",
    ),
    plain(
        "compat.stalled_job_not_detected",
        "A job whose lease has expired is not stalled.",
        Patch(
            STALLS,
            "DeadlockDetector.detect_stalled_jobs",
            "execution.lease_expires_at <= now or silent_s > self._timeout_s",
            "False",
        ),
        f"{TESTS}/test_stalled_job_detection.py::test_stalled_job_detection",
    ),
    plain(
        "compat.heartbeat_not_counted",
        "Work that sends heartbeats looks stalled, because only its start counts.",
        Patch(STALLS, "DeadlockDetector.detect_stalled_jobs", "if not self._automatic:", "if False:"),
        f"{TESTS}/test_stalled_job_detection.py::test_a_heartbeat_keeps_long_work_from_looking_stalled",
        f"{TESTS}/test_deadlock_timeout_tuning.py::test_a_timeout_is_counted_from_the_latest_heartbeat",
    ),
    plain(
        "compat.recovered_without_approval",
        "A stalled job is recovered although the operator has not approved it.",
        Patch(
            STALLS,
            "DeadlockDetector.recover_stalled_jobs",
            "if approve is not None and not approve(job_id):",
            "if False:",
        ),
        f"{TESTS}/test_stalled_job_recovery.py::test_recovery_is_automatic_or_by_approval",
    ),
    plain(
        "compat.statuses_apart",
        "The statuses of the source are another enumeration than the states of a job.",
        Patch(
            STATES,
            "",
            "JobStatus = JobState",
            'JobStatus = __import__("enum").StrEnum("JobStatus", {state.name: state.value for state in JobState})',
        ),
        f"{TESTS}/test_valid_transitions.py::test_statuses_are_the_five_words_and_are_text",
    ),
    SeededFault(
        id="compat.running_job_back_to_pending",
        meaning="The table has an edge from running to pending.",
        patches=tuple(
            Patch("core/machines.py", "", f'"{event}", "running → failed → pending"', f'"{event}", "running → pending"')
            for event in ("retry", "expire", "revoke", "give_back")
        ),
        tests=(
            "tests/core/test_machine.py::test_a_machine_has_these_edges_and_no_more",
            "tests/cli/test_machines.py::test_no_drawing_has_an_edge_from_running_to_pending",
        ),
        postgres=False,
    ),
)

ENTRIES = (
    plain(
        "compat.entry_under_another_key",
        "An entry says that a key of digits is a text, not the number that was given.",
        Patch("compat/wal_entries.py", "_key", "int(text) if text is not None", "text if text is not None"),
        f"{LOG}::test_append_and_complete",
        f"{LOG}::test_an_entry_is_found_by_its_key",
    ),
    plain(
        "compat.entry_with_other_bytes",
        "The bytes of an entry lose their last one.",
        Patch(
            "compat/wal_entries.py", "payload_of", "base64.b64encode(data)", "base64.b64encode(memoryview(data)[:-1])"
        ),
        f"{LOG}::test_bytes_are_returned_exactly",
    ),
    plain(
        "compat.thousand_pending_entries_not_warned_of",
        "A log with a thousand pending entries does not warn of them.",
        Patch(WAL, "Wal.pending_count", "if pending >= PENDING_WARN and", "if pending > PENDING_WARN and"),
        f"{LOG}::test_a_thousand_pending_entries_are_warned_of_once",
    ),
    plain(
        "compat.end_of_an_entry_not_dated",
        "An entry that has ended does not say when.",
        Patch(
            "compat/wal_entries.py",
            "entry_of",
            "None if status is EntryStatus.PENDING else milliseconds(job.updated_at)",
            "None",
        ),
        f"{LOG}::test_append_and_complete",
    ),
    plain(
        "compat.failed_entry_completed",
        "An entry that has failed is completed without an error.",
        Patch(WAL, "_ended_as", "if entry.status is not wanted:", "if False:"),
        f"{LOG}::test_an_entry_ends_once",
    ),
    plain(
        "compat.entry_without_its_effects",
        "An entry is completed and its effects are not applied.",
        Patch(MOVES, "EntryMover._completed", "transaction.apply([effects])", "pass"),
        f"{LOG}::test_an_entry_and_its_effects_are_committed_together",
        f"{LOG}::test_the_storage_holds_the_effects_of_all_operations",
        f"{RECOVERY}::test_a_crash_during_a_completion_leaves_all_of_it_or_nothing",
    ),
    plain(
        "compat.append_during_a_recovery",
        "An entry is appended while another process recovers the log.",
        Patch("compat/wal_gate.py", "AppendTask._append", "require_no_recovery(transaction, self._queue)", "pass"),
        f"{RECOVERY}::test_recovery_closes_its_log_to_every_process_and_no_other_log",
    ),
    plain(
        "compat.poison_entry_blocks_recovery",
        "An entry that always fails is tried again for ever, or ends the recovery.",
        Patch(
            WAL,
            "Wal._tried",
            "self._note_failure(attempt, error, final=final or isinstance(error, Quarantine | Cancel))",
            "raise",
        ),
        f"{RECOVERY}::test_a_poison_entry_ends_failed_and_does_not_block_others",
    ),
    plain(
        "compat.entries_in_another_order",
        "Pending entries do not come in the order of their ids.",
        Patch(WAL, "Wal._pending_ids", '" ORDER BY 1"', '" ORDER BY 1 DESC"'),
        f"{LOG}::test_ids_grow_and_pending_entries_come_in_their_order",
        f"{RECOVERY}::test_recovery_replays_oldest_first_and_leaves_nothing_pending",
    ),
    plain(
        "compat.failed_job_a_failed_entry",
        "A job that failed and can be retried is shown as a failed entry.",
        Patch("core/entries.py", "", "JobState.FAILED: EntryStatus.PENDING", "JobState.FAILED: EntryStatus.FAILED"),
        "tests/core/test_machine.py::test_an_entry_is_a_view_of_a_job",
    ),
    plain(
        "compat.published_action_renamed",
        "An action of the published model of the log has another name.",
        Patch("model/published.py", "_steps", 'yield "Crash"', 'yield "PowerLoss"'),
        "tests/model/test_published.py::test_the_published_model_has_the_published_actions_and_variables",
        "tests/model/test_catalogue.py::test_a_run_has_the_outcome_of_the_catalogue",
    ),
    plain(
        "compat.published_model_counts_otherwise",
        "The published model of the log lets a process crash during its recovery, so its states are others.",
        Patch(
            "model/published.py",
            "_steps",
            'if up:\n        yield "Crash", state._replace(crashed=True)',
            'if not state.crashed:\n        yield "Crash", state._replace(crashed=True, recovering=False)',
        ),
        "tests/model/test_catalogue.py::test_a_run_has_the_outcome_of_the_catalogue",
    ),
)

FAULTS = (*JOBS, *ENTRIES)
