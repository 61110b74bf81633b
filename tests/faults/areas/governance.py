"""Faults of governance: procedures and builds, grants, rollbacks, quarantine, and the guards of replay."""

from __future__ import annotations

from tests.faults.seeded import Patch, plain

RUNNER, BUILD, PROOF = (
    "governance/runs/procedure_runner.py",
    "governance/registry/build.py",
    "governance/registry/build_proof.py",
)
RESERVATION, PREFLIGHT = "governance/runs/reservation.py", "governance/registry/preflight.py"
DISPATCH, AUTHORITY, ROLLBACK = "governance/registry/dispatch.py", "core/authority.py", "core/rollback.py"
GUARDS, CANDIDATES, REPLAY = (
    "governance/replay/guards.py",
    "governance/replay/candidates.py",
    "governance/replay/run.py",
)
TESTS = "tests/governance"
PROCEDURES, BUILDS, STOPS = (
    f"{TESTS}/test_procedures.py",
    f"{TESTS}/test_registry_build.py",
    f"{TESTS}/test_registry_stops.py",
)
DISPATCHED, GATEWAY = f"{TESTS}/test_dispatch.py", f"{TESTS}/test_registry_gateway.py"

PROCEDURE = (
    plain(
        "governance.stop_without_its_name",
        "A run that fails stops under the name of the operator's stop, not under that of its step.",
        Patch(RUNNER, "ProcedureRunner.failed", "self._compensate(act.step.stop, ", "self._compensate(BY_OPERATOR, "),
        f"{PROCEDURES}::test_a_failure_undoes_everything_and_stops_by_name",
    ),
    plain(
        "governance.guard_before_a_step_left_out",
        "A step is performed without its guard.",
        Patch(RUNNER, "ProcedureRunner._carry_out", "if step.guard is not None:", "if False:"),
        f"{STOPS}::test_a_build_on_hold_stops_by_name_and_continues_when_the_hold_is_lifted",
    ),
    plain(
        "governance.failed_check_ignored",
        "A run begins although a check before it has failed.",
        Patch(RUNNER, "ProcedureRunner._checked", "return self._refused(step, error)", "str(error)"),
        f"{PROCEDURES}::test_an_abort_by_a_check_has_written_nothing",
        f"{STOPS}::test_a_failed_preflight_writes_nothing",
    ),
    plain(
        "governance.lease_not_taken",
        "A run begins without the lease of its target.",
        Patch(RESERVATION, "Reservation.make", "runner.acquire(transaction)", "pass"),
        f"{TESTS}/test_procedures_leases.py::test_while_one_holds_the_lease_another_is_refused_and_has_written_nothing",
        f"{BUILDS}::test_a_second_holder_gets_no_lease_and_has_written_nothing",
    ),
    plain(
        "governance.grant_not_consumed_with_the_lease",
        "A run begins without consuming a grant.",
        Patch(RESERVATION, "Reservation._consumed", "if wanted is None:", "if True:"),
        f"{TESTS}/test_procedures_leases.py::test_one_grant_permits_one_run_only",
        f"{BUILDS}::test_a_used_grant_builds_nothing_more",
    ),
    plain(
        "governance.root_used_twice",
        "Another run may use the root of an earlier one.",
        Patch(RUNNER, "ProcedureRunner._look", "self._request.require_same(run)", "pass"),
        f"{PROCEDURES}::test_a_root_belongs_to_one_run_permanently",
    ),
    plain(
        "governance.stored_steps_not_read",
        "A run that is continued does not read which of its steps were performed.",
        Patch(RUNNER, "ProcedureRunner._remember", "records_of(reading, run.run_id)", "()"),
        f"{TESTS}/test_procedures_crash.py::test_a_crash_anywhere_is_resumed_to_the_same_end",
    ),
    plain(
        "governance.compensation_not_recorded",
        "A step is undone and stays recorded as performed.",
        Patch(
            RUNNER,
            "ProcedureRunner._undo",
            "answer = transaction.runs.undo_step(record, actor=self._request.actor, reason=self._request.reason)",
            "answer = None; raise RunEnded",
        ),
        f"{PROCEDURES}::test_a_failure_undoes_everything_and_stops_by_name",
        f"{PROCEDURES}::test_an_interrupted_run_can_be_undone_instead",
    ),
    plain(
        "governance.dry_run_kept",
        "The dry run of a procedure is committed.",
        Patch(RUNNER, "ProcedureRunner.dry_run", "raise _RolledBack", "pass"),
        f"{PROCEDURES}::test_a_dry_run_is_the_default_and_leaves_nothing_at_all",
        f"{BUILDS}::test_a_dry_run_is_the_default_and_changes_nothing",
    ),
)

REGISTRY = (
    plain(
        "governance.schema_not_verified",
        "A schema that was changed during a build is not found.",
        Patch(PROOF, "verify_schema", "if set(found.values()) != {manifest.schema_digest}:", "if False:"),
        f"{STOPS}::test_a_schema_changed_during_a_build_is_found",
    ),
    plain(
        "governance.unlisted_value_put_in_force",
        "A staged value that the manifest does not list is not found.",
        Patch(PROOF, "guard_faults", "if name not in listed", "if False"),
        f"{STOPS}::test_an_unlisted_value_is_found_before_any_value_is_in_force",
    ),
    plain(
        "governance.evidence_missing",
        "A build keeps no log of its rollback.",
        Patch(PROOF, "_evidence", 'yield "rollback_log", ', "_ = "),
        f"{BUILDS}::test_the_evidence_is_complete_and_matches_the_rows",
    ),
    plain(
        "governance.withheld_values_stay_staged",
        "A build that stops leaves its values staged.",
        Patch(BUILD, "_withhold_values", "at.transaction.registry.place_values(", "(lambda *_: 0)("),
        f"{STOPS}::test_a_build_on_hold_stops_by_name_and_continues_when_the_hold_is_lifted",
    ),
    plain(
        "governance.prod_not_held",
        "A governed prod ledger is not on hold from its start.",
        Patch(PREFLIGHT, "registration_hold", 'meta["governed"] == "yes" and meta["environment"] == PROD', "False"),
        f"{GATEWAY}::test_only_a_governed_prod_ledger_begins_on_hold",
        f"{GATEWAY}::test_a_governed_prod_ledger_is_on_hold_until_a_grant_lifts_it",
    ),
    plain(
        "governance.closed_gate_passed",
        "The verdict of a preflight is GO although a gate is closed.",
        Patch(PREFLIGHT, "verdict_of", "NO_GO if NO_GO in verdicts else DRY_RUN_ONLY", "DRY_RUN_ONLY"),
        f"{TESTS}/test_registry_codes.py::test_preflight_is_go_only_if_all_gates_pass",
    ),
    plain(
        "governance.real_run_dispatched",
        "The dispatcher validates a real run.",
        Patch(DISPATCH, "_require_validating", "if mode == Mode.REAL_RUN:", "if False:"),
        f"{DISPATCHED}::test_dispatch_refuses_every_real_run",
    ),
    plain(
        "governance.later_check_reported_first",
        "Of several faults of a request the dispatcher tells the last.",
        Patch(
            DISPATCH, "dispatch", "blocker = code\n                break", "blocker = code\n                continue"
        ),
        f"{DISPATCHED}::test_of_several_faults_the_earliest_is_reported",
    ),
    plain(
        "governance.observation_kept_twice",
        "The same observation of the dispatcher is kept again.",
        Patch(DISPATCH, "_observed", "if found is None:", "if True:"),
        f"{DISPATCHED}::test_an_observation_is_kept_once",
    ),
    plain(
        "governance.collection_dismantled_under_open_jobs",
        "A collection with open jobs is dismantled.",
        Patch("governance/registry/dismantle.py", "_require_disposable", "if jobs:", "if False:"),
        f"{DISPATCHED}::test_a_collection_with_open_jobs_or_outside_dev_is_not_dismantled",
    ),
    plain(
        "governance.successors_in_a_circle",
        "Successors that lead in a circle are accepted.",
        Patch(ROLLBACK, "successor_fault", "if ValueName.of(target) in _chain(", "if None in _chain("),
        f"{TESTS}/test_rollback.py::test_each_fault_of_a_successor",
    ),
    plain(
        "governance.successors_not_verified",
        "The successors of the values of a collection are not verified.",
        Patch(ROLLBACK, "successor_faults", "return faults", "return []"),
        f"{TESTS}/test_vocabulary.py::test_faults_of_successors",
    ),
    plain(
        "governance.deleting_rollback_reviewed",
        "A rollback that deletes a value passes the review.",
        Patch(ROLLBACK, "_deletes", "contract.disposition == Disposition.DELETE", "False"),
        f"{TESTS}/test_rollback.py::test_each_code_is_reached_only_by_its_cause",
    ),
    plain(
        "governance.digest_without_its_version",
        "The digest of a value does not cover the version of the canonical form.",
        Patch("core/digest.py", "cser_digest", '{**fields, "cser": "v1"}', "{**fields}"),
        "tests/core/test_digest.py::test_the_version_of_the_form_is_part_of_what_is_digested",
    ),
    plain(
        "governance.grant_for_another_executor",
        "A grant permits the act to another executor than it names.",
        Patch(
            AUTHORITY,
            "_difference",
            "if not _equal_text(has, needs):",
            'if not _equal_text(has, needs) and what != "executor":',
        ),
        f"{TESTS}/test_authority.py::test_each_input_gives_exactly_one_code",
    ),
)

REPLAYED = (
    plain(
        "replay.job_without_a_verdict_replayed",
        "A job that has changed since it was selected is replayed.",
        Patch("governance/replay/batch.py", "_changed", "if job.version == version:", "if True:"),
        f"{TESTS}/test_replay_run.py::test_jobs_changed_since_the_selection_are_skipped_and_counted",
    ),
    plain(
        "replay.replaced_without_a_grant",
        "In stage a run replaces jobs without a grant.",
        Patch(REPLAY, "needs_grant", "environment == PROD or replaces or broad", "environment == PROD or broad"),
        f"{TESTS}/test_replay_modes.py::test_outside_dev_a_replacement_needs_a_grant",
    ),
    plain(
        "replay.global_selection_accepted",
        "A selection of everything is accepted in stage and prod.",
        Patch(GUARDS, "_scope", "if is_global(selection) and not policy.allow_global_replay:", "if False:"),
        f"{TESTS}/test_replay_guards.py::test_each_guard_refuses_by_its_own_type_and_nothing_is_written",
    ),
    plain(
        "replay.switch_ignored",
        "A run is not refused although a switch stops its operation.",
        Patch(GUARDS, "switched_off", "if name in on:", "if False:"),
        f"{TESTS}/test_replay_guards.py::test_each_guard_refuses_by_its_own_type_and_nothing_is_written",
    ),
    plain(
        "replay.same_error_goes_on",
        "A run goes on although its jobs fail with the same error again.",
        Patch(
            "governance/replay/pace.py", "ReturnedJobs.too_many", "self.same_error >= policy.same_error_min", "False"
        ),
        f"{TESTS}/test_replay_run.py::test_a_run_stops_when_the_same_error_occurs_again",
        "tests/nodd/test_operating.py::test_the_same_error_again_stops_a_drain",
    ),
    plain(
        "replay.old_queue_not_waited_for",
        "A run does not wait although the oldest due job of its queue waits for too long.",
        Patch("governance/replay/pace.py", "strain", "if age_s > policy.queue_age_s:", "if False:"),
        f"{TESTS}/test_replay_run.py::test_a_run_waits_while_its_queue_is_old_and_stops_if_it_stays_so",
    ),
    plain(
        "replay.run_without_its_candidates",
        "A run does not record which jobs it selected.",
        Patch(
            REPLAY,
            "ReplayRunner.begin",
            "candidates_text(candidates.job_ids, candidates.versions)",
            "candidates_text([], [])",
        ),
        f"{TESTS}/test_replay_run.py::test_a_replay_is_journalled_and_published",
    ),
    plain(
        "replay.same_version_replaced",
        "What has succeeded is replaced by the same version of its operation.",
        Patch(CANDIDATES, "ReplayRules._of_replacing", "same = now == job.operation_version and", "same = False and"),
        f"{TESTS}/test_replay_modes.py::test_a_succeeded_job_is_replaced_only_by_a_newer_version",
        f"{TESTS}/test_replay_candidates.py::test_one_job_has_one_verdict",
    ),
    plain(
        "replay.downgrade_accepted",
        "A job is replayed by a lower version of its operation.",
        Patch(CANDIDATES, "ReplayRules.skip", "and not self.policy.allow_downgrade:", "and False:"),
        f"{TESTS}/test_replay_candidates.py::test_one_job_has_one_verdict",
    ),
)

FAULTS = (*PROCEDURE, *REGISTRY, *REPLAYED)
