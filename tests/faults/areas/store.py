"""Faults of the store's verbs and their statements: what is read, matched and written, on both databases."""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

RULINGS = "store/verbs/rulings.py"
AGREE = "tests/store/test_guards_agree.py"
CLAIM = "tests/store/test_claim.py"
LEASES = "tests/governance/test_leases.py"
MESSAGES = "tests/engine/test_error_messages.py"
SLIM = "tests/store/test_slim.py"
RULE = "tests/store/test_rule.py"
SUBMIT = "tests/store/test_submit.py"
WORK = "tests/store/test_work.py"


def twice(old: str, new: str) -> tuple[tuple[str, str], tuple[str, str]]:
    """Return a change that is the same in both dialects."""
    return (old, new), (old, new)


def _statement(file: str, name: str, sqlite: tuple[str, str], postgres: tuple[str, str]) -> tuple[Patch, ...]:
    """Return the patches of one statement in both dialects, each as its old text and its new one."""
    return (
        Patch(f"store/sqlite/{file}.sql", name, *sqlite),
        Patch(f"store/postgres/{file}.sql", name, *postgres),
    )


# ---------------------------------------------------------------------------------------------------------------------
# What a statement matches

MATCHED = (
    SeededFault(
        id="store.token_not_matched",
        meaning="The write of an execution's move does not compare the token.",
        patches=(
            *_statement("executions", "move_attempts", *twice(" AND j.lease_token = k.token", "")),
            *_statement(
                "executions",
                "complete_jobs",
                (" AND lease_token = r.value ->> 1", ""),
                (" AND j.lease_token = k.token", ""),
            ),
        ),
        tests=(f"{AGREE}::test_a_move_of_an_attempt_is_written_exactly_when_decide_would_make_it",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.completion_token_not_matched",
        meaning="Only the write that completes an attempt does not compare the token.",
        patches=_statement(
            "executions",
            "complete_jobs",
            (" AND lease_token = r.value ->> 1", ""),
            (" AND j.lease_token = k.token", ""),
        ),
        tests=("tests/enforcement/test_trust.py::test_a_completion_is_matched_by_owner_and_token",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.lease_not_matched",
        meaning="The write of an execution's move does not ask whether the lease has expired.",
        patches=_statement(
            "executions",
            "move_attempts",
            ("   AND (s.lease_live IS NULL OR s.lease_live = (j.lease_expires_at > :now))\n", ""),
            ("   AND (k.lease_live IS NULL OR k.lease_live = (j.lease_expires_at > k.now))\n", ""),
        ),
        tests=(f"{AGREE}::test_a_move_of_an_attempt_is_written_exactly_when_decide_would_make_it",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.status_not_matched",
        meaning="The write of an execution's move does not compare the status.",
        patches=_statement(
            "executions", "move_attempts", (" AND j.status = s.source", ""), (" AND j.status = k.source", "")
        ),
        tests=(
            f"{AGREE}::test_a_move_of_an_attempt_is_written_exactly_when_decide_would_make_it",
            f"{WORK}::test_a_record_that_moved_on_since_it_was_read_is_refused_by_the_row_count",
        ),
        databases=BOTH,
    ),
    SeededFault(
        id="store.job_version_not_matched",
        meaning="The write of a ruling does not compare the version of the job.",
        patches=_statement("jobs", "rule_jobs", *twice(" AND j.version = k.version", "")),
        tests=(f"{AGREE}::test_a_ruling_is_written_exactly_when_decide_would_make_it",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.grant_version_not_matched",
        meaning="The write of a grant's move does not compare the version of the grant.",
        patches=(Patch("store/sql/governance.sql", "move_grant", "AND version = :version", "AND :version > 0"),),
        tests=(f"{AGREE}::test_a_grant_moves_exactly_when_decide_would_move_it",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.beat_revives_an_expired_lease",
        meaning="The write of a heartbeat extends a lease that has expired.",
        patches=(
            *_statement(
                "executions",
                "extend_leases",
                ("   AND j.lease_expires_at > :now", "   AND :now IS NOT NULL"),
                ("     AND j.lease_owner = k.owner AND j.lease_expires_at > k.now", "     AND j.lease_owner = k.owner"),
            ),
            # PostgreSQL compares twice: when it looks for held rows, and again after it has locked them.
            Patch("store/postgres/executions.sql", "extend_leases", " AND j.lease_expires_at > k.now),", "),"),
        ),
        tests=(f"{AGREE}::test_heartbeats_progress_and_checkpoints_agree_with_decide",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.live_lease_recovered",
        meaning="Recovery looks at executions whose lease has not expired.",
        patches=_statement(
            "executions",
            "expired_attempts",
            ("AND j.lease_expires_at <= :now", "AND :now IS NOT NULL"),
            (
                "AND j.lease_expires_at <= coalesce(:now, statement_timestamp())",
                "AND coalesce(:now, statement_timestamp()) IS NOT NULL",
            ),
        ),
        tests=(f"{WORK}::test_a_live_lease_is_never_reclaimed",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.named_lease_taken_from_its_holder",
        meaning="A named lease is given to a second holder while the first one holds it.",
        patches=_statement(
            "governance",
            "acquire_lease",
            (" OR holdfast_leases.holder = excluded.holder", " OR true"),
            (" OR holdfast_leases.holder = excluded.holder", " OR true"),
        ),
        tests=(f"{LEASES}::test_one_holder_gets_a_lease_and_it_is_free_after_its_time_limit",),
        databases=BOTH,
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# What a statement gives out or counts

COUNTED = (
    SeededFault(
        id="store.job_given_out_before_it_is_due",
        meaning="A claim gives out jobs that are not due yet.",
        patches=_statement(
            "executions",
            "claim_jobs",
            (" AND j.due_at <= :now", ""),
            (" AND due_at <= (SELECT now FROM t)", ""),
        ),
        tests=(f"{CLAIM}::test_a_job_is_claimed_from_its_due_time_on",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.paused_queue_gives_out_work",
        meaning="A claim gives out jobs of a paused queue.",
        patches=_statement(
            "executions",
            "claim_jobs",
            ("p.queue = q.value AND p.paused_at IS NOT NULL", "p.queue = q.value AND false"),
            ("p.queue = q AND p.paused_at IS NOT NULL", "p.queue = q AND false"),
        ),
        tests=(f"{CLAIM}::test_no_job_of_a_paused_queue_is_claimed_until_it_is_resumed",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.attempt_not_counted",
        meaning="A claim does not count the attempt.",
        patches=_statement(
            "executions",
            "claim_jobs",
            ("attempts = attempts + 1", "attempts = attempts"),
            ("attempts = j.attempts + 1", "attempts = j.attempts"),
        ),
        tests=(f"{CLAIM}::test_a_winner_gets_an_execution_a_lease_and_a_token",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.excuse_not_counted",
        meaning="An attempt that a worker gives back is not counted as excused.",
        patches=_statement(
            "executions",
            "move_attempts",
            ("excused = j.excused + s.excused", "excused = j.excused"),
            ("excused = j.excused + k.excused", "excused = j.excused"),
        ),
        tests=(f"{WORK}::test_a_returned_attempt_is_excused",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.key_not_looked_up",
        meaning="A submit does not look for its key: a repeat is an error.",
        patches=(
            *_statement(
                "jobs",
                "insert_jobs",
                (
                    "c.client = s.client AND c.key = r.value ->> 3",
                    "c.client = s.client AND c.key IS NULL AND false",
                ),
                ("ON CONFLICT (client, key) WHERE key IS NOT NULL DO NOTHING\n", ""),
            ),
            *_statement(
                "jobs",
                "insert_job",
                ("c.client = :client AND c.key = :key", "c.client = :client AND c.key IS NULL AND false"),
                ("ON CONFLICT (client, key) WHERE key IS NOT NULL DO NOTHING\n", ""),
            ),
        ),
        tests=(
            f"{SUBMIT}::test_the_same_key_and_work_is_the_same_job",
            f"{SUBMIT}::test_threads_that_submit_the_same_keys_in_opposite_orders_get_one_job_each",
        ),
        databases=BOTH,
    ),
    SeededFault(
        id="store.unended_job_emptied",
        meaning="Retention removes the payload of jobs that have not ended.",
        patches=_statement(
            "jobs",
            "slim_jobs",
            (
                "AND j.state IN (SELECT value FROM json_each(:states)) AND j.updated_at < :before)",
                "AND :states IS NOT NULL)",
            ),
            ("AND j.state IN (SELECT json_array_elements_text(:states))", "AND (:states::json) IS NOT NULL"),
        ),
        tests=(f"{SLIM}::test_only_jobs_that_have_ended_are_emptied",),
        databases=BOTH,
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# What a verb makes of its answers

ANSWERED = (
    SeededFault(
        id="store.other_work_under_a_used_key",
        meaning="Other work under a key that a stored job has is answered as if it were the same work.",
        patches=(
            Patch(
                "store/verbs/repeats.py",
                "existing_admission",
                "if job.digest != digest:",
                "if False:",
            ),
        ),
        tests=(f"{SUBMIT}::test_a_used_key_with_other_work_is_a_conflict_and_nothing_is_written",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.lost_ruling_reported_as_done",
        meaning="A ruling that matched no row is answered as done.",
        patches=(Patch(RULINGS, "RulingWrites.rule", "if i in lost else answer", "if False else answer"),),
        tests=(f"{RULE}::test_a_job_that_changed_since_it_was_read_is_a_race_and_leaves_no_trace",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.owner_not_matched",
        meaning="The write of a completion does not compare the owner of the lease.",
        patches=_statement(
            "executions",
            "complete_jobs",
            (" AND lease_owner = :actor", ""),
            (" AND j.lease_owner = :actor", ""),
        ),
        tests=(f"{WORK}::test_a_completion_shows_the_owner_of_the_lease",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.result_of_a_commit_lost",
        meaning="The result of an execution that commits without finishing is not stored.",
        patches=_statement(
            "executions", "move_attempts", *twice("result = coalesce(k.result, j.result)", "result = j.result")
        ),
        tests=(f"{WORK}::test_commit_keeps_the_result_and_leaves_the_job_running",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.committed_execution_expired",
        meaning="Recovery tries to put back what has committed, and never finishes it.",
        patches=(
            Patch(
                "store/verbs/recovery.py",
                "RecoveryWrites.recover",
                "Finish() if attempt.execution.status == ExecutionStatus.COMMITTED else Expire(retry_at or now)",
                "Expire(retry_at or now)",
            ),
        ),
        tests=(f"{WORK}::test_recovery_finishes_what_committed_and_expires_the_rest",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.secret_written_with_an_error",
        meaning="The message of an error is written without being redacted.",
        patches=(
            Patch(
                "store/verbs/base.py", "redacted_move", "known[message] = redacted(message)", "known[message] = message"
            ),
        ),
        tests=(f"{MESSAGES}::test_an_error_is_redacted_and_short_on_every_path",),
        databases=BOTH,
    ),
    SeededFault(
        id="store.commit_answer_not_awaited",
        meaning="A submit on PostgreSQL is acknowledged by its row, before the answer to its COMMIT.",
        patches=(
            Patch(
                "store/postgres/connection.py",
                "LedgerConnection._answer",
                "found = after if found.status in ANSWERED else found",
                "continue",
            ),
        ),
        tests=(
            "tests/store/test_alone.py::test_a_submit_whose_commit_fails_after_its_row_was_sent_is_not_acknowledged",
        ),
    ),
)

FAULTS = (*MATCHED, *COUNTED, *ANSWERED)
