"""Faults of what both databases enforce: the conditions derived from the table, the triggers, and their journal.

A fault here changes the triggers that a new ledger is made with; the store and `decide` stay as they are.
"""

from __future__ import annotations

from tests.faults.seeded import BOTH, Patch, SeededFault

RULES = "store/enforcement.py"
JOINT = "store/joint.py"
ON_SQLITE = "store/sqlite/triggers.py"
ON_POSTGRES = "store/postgres/functions.py"
DOOR = "tests/enforcement/test_door.py"
DRIFT = "tests/enforcement/test_drift.py"
IN_FORCE = "tests/enforcement/test_in_force.py"
GUARDIANS = "tests/enforcement/test_guardians.py"
JOURNAL = "tests/enforcement/test_journal.py"
REFUSALS = "tests/enforcement/test_refusals.py"

# ---------------------------------------------------------------------------------------------------------------------
# What a trigger refuses

REFUSED = (
    SeededFault(
        id="enforcement.unlisted_edge_accepted",
        meaning="The database accepts a move that the transition table does not list.",
        patches=(
            Patch(RULES, "move_violations", "(({moved} AND NOT ({legal})) OR ({still}))", "({still})"),
            Patch(JOINT, "job_violations", "({changed} AND NOT ({_legal(old, new)})) OR ", ""),
        ),
        tests=(
            f"{REFUSALS}::test_a_job_that_succeeded_never_moves_again",
            f"{REFUSALS}::test_a_used_grant_is_never_active_again",
        ),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.version_grows_without_a_move",
        meaning="The database accepts a new version of a record that has not moved.",
        patches=(
            Patch(
                RULES, "move_violations", "(({moved} AND NOT ({legal})) OR ({still}))", "({moved} AND NOT ({legal}))"
            ),
            Patch(JOINT, "job_violations", " OR (NOT {changed} AND {new}.version <> {old}.version)", ""),
        ),
        tests=(f"{REFUSALS}::test_a_version_does_not_grow_without_a_move",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.version_in_force_not_required",
        meaning="In a governed ledger the database accepts new work of a version that is not in force.",
        patches=(
            Patch(ON_SQLITE, "governed_triggers", " AND NOT {usable} AND", " AND NOT {usable} AND 1 = 0 AND"),
            Patch(ON_POSTGRES, "_job_in_force", "IF NOT FOUND AND", "IF false AND"),
        ),
        tests=(f"{IN_FORCE}::test_a_retired_or_superseded_version_is_refused",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.any_birth_accepted",
        meaning="The database accepts a record that begins in any state.",
        patches=(Patch(RULES, "birth_violations", "(NOT (({legal}){born})) AND {no_door}", "1 = 0 AND {no_door}"),),
        tests=(f"{REFUSALS}::test_a_job_is_inserted_only_as_pending",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.write_once_column_changed",
        meaning="The database accepts a change of a grant's scope, a value's meaning or another write-once column.",
        patches=(Patch(RULES, "write_once_violation", "({changed}) AND {no_door}", "1 = 0 AND {no_door}"),),
        tests=(f"{REFUSALS}::test_a_write_once_column_never_changes",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.number_made_smaller",
        meaning="The database accepts a smaller version or fewer attempts than a record has.",
        patches=(
            Patch(RULES, "move_violations", "({shrinks}) AND {no_door}", "1 = 0 AND {no_door}"),
            Patch(JOINT, "job_violations", "({shrinks}) AND {no_door}", "1 = 0 AND {no_door}"),
        ),
        tests=(f"{REFUSALS}::test_a_number_that_only_grows_is_never_made_smaller",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.move_id_reused",
        meaning="The database accepts a move under the move id of the record's last move.",
        patches=(
            Patch(RULES, "move_violations", "{new}.move_id = {old}.move_id OR ", ""),
            Patch(JOINT, "job_violations", "{new}.move_id = {old}.move_id OR ", ""),
        ),
        tests=(f"{REFUSALS}::test_a_move_needs_a_move_id_of_its_own",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.governed_move_needs_no_grant",
        meaning="The database accepts a release, a retirement or the lifting of a switch without a grant.",
        patches=(
            Patch(RULES, "move_violations", 'f"({ends}) AND NOT ({own})"', 'f"1 = 0 AND ({ends}) AND NOT ({own})"'),
            Patch(JOINT, "job_violations", "{released} AND NOT ({own})", "1 = 0 AND NOT ({own})"),
        ),
        tests=(f"{REFUSALS}::test_a_release_needs_a_grant_consumed_by_that_very_move",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.grant_of_another_move_accepted",
        meaning="The database accepts a governed move under a grant that another move has consumed.",
        patches=(
            Patch(RULES, "_granted", 'own = f"g.move_id = {new}.move_id"', 'own = "1 = 1"'),
            Patch(RULES, "granted_by_move", 'f"g.move_id = {new}.move_id"', '"1 = 1"'),
        ),
        tests=(f"{REFUSALS}::test_a_release_needs_a_grant_consumed_by_that_very_move",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.grant_in_any_state_accepted",
        meaning="The database accepts a governed move under a grant that was never consumed.",
        patches=(Patch(RULES, "_consumed", "AND g.state = {consumed} ", ""),),
        tests=(f"{REFUSALS}::test_a_release_needs_a_grant_consumed_by_that_very_move",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.emptied_job_released",
        meaning="The database accepts the release of a job whose payload retention has removed.",
        patches=(Patch(JOINT, "job_violations", "AND c.payload IS NULL)", "AND 1 = 0)"),),
        tests=(f"{GUARDIANS}::test_a_slimmed_job_is_never_released_not_even_with_a_grant",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.result_changed_after_the_end",
        meaning="The database accepts another result for a job that has one.",
        patches=(Patch(JOINT, "_rewritten", "({changed} AND {result})", "(1 = 0)"),),
        tests=(f"{GUARDIANS}::test_a_result_is_written_once_at_the_commit_boundary",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.record_deleted",
        meaning="The database lets any client delete a record.",
        patches=(
            Patch(
                ON_SQLITE,
                "_never_deleted",
                "[Violation(Refusal.NEVER_DELETED, NO_DOOR)]",
                '[Violation(Refusal.NEVER_DELETED, "0")]',
            ),
            Patch(
                ON_POSTGRES,
                "functions",
                '_unless_door(schema, Refusal.NEVER_DELETED, "OLD")',
                '"BEGIN\\n  RETURN OLD;\\nEND"',
            ),
        ),
        tests=(f"{REFUSALS}::test_a_record_is_never_deleted",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.lease_token_given_again",
        meaning="The database accepts an older token of a named lease.",
        patches=(Patch(RULES, "lease_violation", " OR {new}.token < {old}.token", ""),),
        tests=(f"{GUARDIANS}::test_the_token_of_a_lease_only_grows",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.evidence_changed",
        meaning="The database accepts a change of evidence that was not declared void.",
        patches=(
            Patch(
                RULES, "evidence_violation", "{old}.voided_at IS NOT NULL OR {changed}", "{old}.voided_at IS NOT NULL"
            ),
        ),
        tests=(f"{GUARDIANS}::test_a_piece_of_evidence_is_declared_void_once_and_stays",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.seal_follows_nothing",
        meaning="The database accepts a seal that does not follow the last one.",
        patches=(
            Patch(
                ON_SQLITE,
                "_history_triggers",
                '(("holdfast_seals", follows), ("holdfast_archives", again))',
                '(("holdfast_seals", "0"), ("holdfast_archives", again))',
            ),
            Patch(ON_POSTGRES, "_follow", "IF {wrong} THEN", "IF false AND ({wrong}) THEN"),
        ),
        tests=(f"{GUARDIANS}::test_a_seal_follows_the_last_one_and_stays",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.door_of_another_transaction_opens",
        meaning="On PostgreSQL the maintenance door of one transaction is open for all others.",
        patches=(Patch(ON_POSTGRES, "_no_door", " WHERE m.xid = {XID}", ""),),
        tests=(f"{DOOR}::test_the_door_of_another_transaction_opens_nothing",),
    ),
    SeededFault(
        id="enforcement.altered_trigger_not_noticed",
        meaning="Opening a ledger compares the names of the triggers and functions, not their text.",
        patches=(
            Patch(
                "store/sqlite/store.py",
                "SqliteStore.enforcement_drift",
                "if found.get(name) != expected.get(name)",
                "if (name in found) != (name in expected)",
            ),
            Patch(
                "store/postgres/schema.py",
                "PostgresSchema.enforcement_drift",
                "if bodies.get(name) != expected_bodies.get(name)",
                "if (name in bodies) != (name in expected_bodies)",
            ),
        ),
        tests=(
            f"{DRIFT}::test_a_tampered_trigger_is_named_and_repaired_on_sqlite",
            f"{DRIFT}::test_a_tampered_trigger_or_function_is_named_and_repaired_on_postgres",
        ),
        databases=BOTH,
    ),
)

# ---------------------------------------------------------------------------------------------------------------------
# What a trigger writes

WRITTEN = (
    SeededFault(
        id="enforcement.journal_edited",
        meaning="The database lets any client change a journal row, except its number.",
        patches=(
            Patch(
                ON_SQLITE,
                "_journal_triggers",
                '"BEFORE UPDATE ON holdfast_journal"',
                '"BEFORE UPDATE OF seq ON holdfast_journal"',
            ),
            Patch(
                "store/postgres/triggers.py",
                "triggers",
                'f"BEFORE {act.upper()}"',
                "f\"BEFORE {act.upper()}{' OF seq' * (name == 'holdfast_journal_update')}\"",
            ),
        ),
        tests=(f"{REFUSALS}::test_the_journal_is_append_only",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.journal_written_by_hand",
        meaning="The database lets any client write a journal row.",
        patches=(
            Patch(ON_SQLITE, "_journal_triggers", "{again} OR (NOT ({known}) AND {NO_DOOR})", "{again}"),
            Patch(ON_POSTGRES, "_by_hand", "(pg_trigger_depth() = 1 OR {not_moved})", "(1 = 0)"),
        ),
        tests=(f"{REFUSALS}::test_a_journal_row_is_not_written_by_hand",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.set_based_update_journals_one_row",
        meaning="On PostgreSQL the journal is written for one row of a set-based update, not for each.",
        patches=(
            Patch(
                ON_POSTGRES,
                "_job_moved",
                "ELSE {joint.moved('o', 'n')} END;",
                "ELSE {joint.moved('o', 'n')} END LIMIT 1;",
            ),
        ),
        tests=(f"{REFUSALS}::test_a_legal_set_is_journalled_row_by_row",),
        databases=("postgres",),
    ),
    SeededFault(
        id="enforcement.middle_edge_not_journalled",
        meaning="The view of edges shows the last edge alone of a move along several edges.",
        patches=(
            Patch(
                JOINT,
                "_backwards",
                "for number, edge in enumerate(path.edges, start=1):",
                "for number, edge in list(enumerate(path.edges, start=1))[-1:]:",
            ),
        ),
        tests=("tests/enforcement/test_triples.py::test_one_write_along_several_edges_is_journalled_edge_by_edge",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.grant_not_journalled",
        meaning="The journal does not name the grant of a governed move.",
        patches=(Patch(RULES, "granted", "THEN {new}.grant_id END", "THEN NULL END"),),
        tests=(f"{JOURNAL}::test_every_edge_of_every_machine_is_journalled_with_what_its_move_said",),
        databases=BOTH,
    ),
    SeededFault(
        id="enforcement.moves_not_counted",
        meaning="The counts of jobs by state are not kept when a job moves.",
        patches=(
            Patch(ON_SQLITE, "_job_triggers", 'moved + _delta("OLD")', "moved"),
            Patch(ON_POSTGRES, "_job_moved", "{aborted}{counts}", "{aborted}"),
        ),
        tests=(f"{JOURNAL}::test_counts_follow_every_move",),
        databases=BOTH,
    ),
)

FAULTS = (*REFUSED, *WRITTEN)
