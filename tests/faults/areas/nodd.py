"""Faults of the ingest of NOAA's objects: admission, the operators, the record, the feed and what is reported."""

from __future__ import annotations

from tests.faults.seeded import Patch, plain

ADMISSION, ATTEMPT, DRAIN = "nodd/admission.py", "nodd/ingest_attempt.py", "nodd/drain.py"
RECORDS, REPORTER, PROVENANCE = "nodd/records.py", "nodd/reporter.py", "nodd/provenance.py"
TESTS = "tests/nodd"

RECORD = (
    plain(
        "nodd.identity_without_its_time",
        "The id of a record does not depend on the start of its time range.",
        Patch("nodd/notices.py", "wal_id", "|{time_range_start}", ""),
        f"{TESTS}/test_golden.py::test_a_golden_message_parses_to_its_golden_answer",
    ),
    plain(
        "nodd.any_field_accepted",
        "A record may have a field that is not declared, and any status.",
        Patch(RECORDS, "", "kw_only=True, forbid_unknown_fields=True", "kw_only=True"),
        f"{TESTS}/test_records.py::test_the_schema_refuses_what_is_not_declared_and_asks_for_what_is_required",
    ),
    plain(
        "nodd.status_of_any_word",
        "The status of the catalogue write is any text.",
        Patch(
            RECORDS,
            "",
            'WriteStatus = Literal["unknown", "created", "updated", "no-op", "failed"]',
            "WriteStatus = str",
        ),
        f"{TESTS}/test_records.py::test_the_schema_refuses_what_is_not_declared_and_asks_for_what_is_required",
    ),
    plain(
        "nodd.failed_write_a_success",
        "A record that succeeded may have a catalogue write that failed.",
        Patch(RECORDS, "broken_rules", 'record["stac_status"] != "failed" or failed', "True or failed"),
        f"{TESTS}/test_records.py::test_a_record_that_breaks_a_rule_is_reported",
    ),
    plain(
        "nodd.failed_provenance_a_success",
        "A unit whose provenance failed succeeds without a policy that allows it.",
        Patch(
            ATTEMPT,
            "IngestAttempt._emit_failed",
            "if verdict.status == provenance.FAILED and not dataset.spec.policy.provenance_may_fail:",
            "if False:",
        ),
        f"{TESTS}/test_policies.py::test_provenance_that_fails_is_no_success",
    ),
    plain(
        "nodd.overwrite_the_same_unit",
        "A later write of an object is not a generation of its own.",
        Patch("nodd/notices.py", "is_later", "return int(one.sequencer, 16) > int(sequencer, 16)", "return False"),
        f"{TESTS}/test_admission.py::test_a_later_write_is_a_generation_of_its_own_and_fences_the_earlier",
    ),
)

FEED = (
    plain(
        "nodd.failed_record_not_retried",
        "A message whose record has failed does not make it pending again.",
        Patch(ADMISSION, "_Admission._seen", "if job.state == JobState.FAILED:", "if False:"),
        f"{TESTS}/test_admission.py::test_a_notice_of_a_failed_unit_makes_it_pending_again",
    ),
    plain(
        "nodd.message_deleted_before_its_work_ends",
        "A message is deleted although its record has failed, so no dead letter stands for it.",
        Patch("nodd/feed.py", "Feed.poll_and_process", "if found <= ENDS]", "if found <= RESTS]"),
        f"{TESTS}/test_feed.py::test_a_message_whose_work_fails_reaches_the_dead_letter_queue_and_its_record_names_the_error",
    ),
    plain(
        "nodd.dead_letter_not_matched_with_its_record",
        "A drain replays whatever record a dead letter names, in any state.",
        Patch(DRAIN, "Drain._sorted", "if job.state != JobState.FAILED:", "if False:"),
        f"{TESTS}/test_operating.py::test_a_drain_records_messages_first_and_replays_only_failed_units",
    ),
    plain(
        "nodd.dead_letter_of_an_earlier_write",
        "A dead letter is taken for the first write of its object, not for the last.",
        Patch(
            DRAIN,
            "Drain._known",
            "(row[3], row[6]) for row in rows}",
            "(row[3], row[6]) for row in reversed(rows)}",
        ),
        f"{TESTS}/test_replay_modes.py::test_a_dead_letter_is_about_the_last_write_of_its_object",
    ),
    plain(
        "nodd.visibility_too_short",
        "A queue is made with a visibility of half a minute.",
        Patch("nodd/subscription.py", "", "VISIBILITY_S = 300", "VISIBILITY_S = 30"),
        f"{TESTS}/test_policies.py::test_a_queue_is_made_with_these_defaults",
    ),
    plain(
        "nodd.visibility_not_compared_with_the_work",
        "The doctor does not compare the visibility with how long the work takes.",
        Patch("nodd/doctor.py", "look_at_visibility", "if visibility_s >= p99_s + BUFFER_S:", "if True:"),
        f"{TESTS}/test_policies.py::test_the_doctor_compares_the_visibility_timeout_with_the_duration_of_the_work",
    ),
    plain(
        "nodd.damaged_object_retried",
        "An object that no attempt can mend is retried, not quarantined.",
        Patch(ATTEMPT, "IngestAttempt._integrity_failed", "if issue in PERMANENT_ISSUES or (", "if False or ("),
        f"{TESTS}/test_ingest.py::test_a_broken_object_is_quarantined_at_once",
    ),
    plain(
        "nodd.governance_refusal_retried",
        "A unit that governance refused is retried.",
        Patch(
            ATTEMPT,
            "IngestAttempt._governance_failed",
            "raise Quarantine(code, f",
            "raise OperatorError(code, f",
        ),
        f"{TESTS}/test_ingest.py::test_a_governance_hard_fail_is_quarantined_and_never_retried",
    ),
    plain(
        "nodd.broken_body_ignored",
        "A body that is not JSON is ignored, and not kept as rejected.",
        Patch(
            "nodd/notices.py",
            "_object",
            'raise _RejectError("not_json", f"{what} is not JSON',
            'raise _IgnoreError("not_json", f"{what} is not JSON',
        ),
        f"{TESTS}/test_notices.py::test_an_unreadable_message_is_rejected_with_a_code",
    ),
)

OPERATORS = (
    plain(
        "nodd.metadata_before_integrity",
        "An object that failed its integrity check goes to the next operator.",
        Patch(ATTEMPT, "IngestAttempt._integrity", 'if verdict.status == "failed":', "if False:"),
        f"{TESTS}/test_records.py::test_an_operator_that_refused_the_object_stops_those_after_it",
    ),
    plain(
        "nodd.catalogued_without_its_metadata",
        "An object whose metadata could not be extracted goes to the next operator.",
        Patch(ATTEMPT, "IngestAttempt._metadata", 'if verdict.status == "failed":', "if False:"),
        f"{TESTS}/test_records.py::test_an_operator_that_refused_the_object_stops_those_after_it",
    ),
    plain(
        "nodd.message_deleted_before_its_record",
        "A message is deleted before its record is written.",
        Patch(
            "nodd/feed.py",
            "Feed.poll",
            "        admitted = self._admit(received)\n",
            "        self._queue.delete(received)\n        admitted = self._admit(received)\n",
        ),
        f"{TESTS}/test_redelivery.py::test_a_poller_that_is_killed_at_any_step",
    ),
    plain(
        "nodd.message_visible_while_its_work_goes_on",
        "A message becomes visible again although its work goes on.",
        Patch("nodd/feed.py", "Feed.poll_and_process", "self._queue.keep(waiting, visibility_s)", "pass"),
        f"{TESTS}/test_feed.py::test_a_message_is_kept_invisible_for_as_long_as_the_work_takes",
    ),
    plain(
        "nodd.size_not_compared",
        "An object whose size is not that of its notice passes the integrity check.",
        Patch("nodd/integrity.py", "check", "_check_size(unit, dataset.spec.policy, head, found)", "pass"),
        f"{TESTS}/test_operators.py::test_integrity_has_a_code_for_everything",
    ),
    plain(
        "nodd.area_without_its_station",
        "The area of a radar's file is not that of its station.",
        Patch("nodd/metadata.py", "_geometry", 'if rule.kind == "station-circle":', "if False:"),
        f"{TESTS}/test_operators.py::test_the_areas_of_radar_and_satellite_files",
    ),
    plain(
        "nodd.invalid_item_promoted",
        "An item that is not valid is written to the catalogue.",
        Patch(ATTEMPT, "IngestAttempt._register", "if problems:", "if False:"),
        f"{TESTS}/test_records.py::test_an_item_that_is_not_valid_is_not_promoted_and_its_record_has_failed",
    ),
    plain(
        "nodd.same_item_written_again",
        "An item that has not changed is written again.",
        Patch(ATTEMPT, "IngestAttempt._register", "if before is not None and before[0] == content:", "if False:"),
        f"{TESTS}/test_replay_modes.py::test_a_succeeded_unit_is_replaced_by_a_later_version_in_the_same_item_and_record",
    ),
    plain(
        "nodd.provenance_not_deterministic",
        "The id of a provenance record is another one each time.",
        Patch(PROVENANCE, "_record", 'f"{kind}:{sha256(text)}"', 'f"{kind}:{id(text)}"'),
        f"{TESTS}/test_redelivery.py::test_the_same_message_after_every_step_makes_one_item_and_each_edge_once",
    ),
    plain(
        "nodd.gates_not_kept",
        "The results of the gates that a unit did not pass are not kept.",
        Patch(ATTEMPT, "IngestAttempt._stopped_at", "self._run.checkpoint(", "str("),
        f"{TESTS}/test_policies.py::test_the_gates_are_passed_in_order_and_each_result_is_kept",
    ),
)

REPORTED = (
    plain(
        "nodd.end_not_counted",
        "The end of a record is not counted.",
        Patch(
            REPORTER,
            "TelemetryReporter._ended",
            'self._sink.add("wal_records_total", dataset=dataset, status=status)',
            "pass",
        ),
        f"{TESTS}/test_telemetry.py::test_a_successful_unit_is_counted_once_and_its_duplicate_is_not",
    ),
    plain(
        "nodd.mismatch_not_counted",
        "A unit that gives another item the second time is not counted.",
        Patch(REPORTER, "TelemetryReporter._committed", "if made.diverged:", "if False:"),
        f"{TESTS}/test_telemetry.py::test_a_unit_that_gives_another_item_the_second_time_is_a_mismatch",
    ),
    plain(
        "nodd.span_without_its_record",
        "The span of an attempt does not name its record.",
        Patch(REPORTER, "TelemetryReporter.attempt", '"nodd.wal_id": unit.wal_id,', ""),
        f"{TESTS}/test_telemetry.py::test_an_attempt_is_a_span_with_its_operators_and_neither_uri_nor_wal_id_is_a_label",
    ),
    plain(
        "nodd.age_of_the_queue_not_alerted",
        "The alert on the age of the queue has another threshold than the objective.",
        Patch(
            "telemetry/alerts.yml",
            "",
            "rate(nodd_sns_queue_age_seconds_bucket[10m]))) > 90",
            "rate(nodd_sns_queue_age_seconds_bucket[10m]))) > 900",
        ),
        "tests/telemetry/test_alerts.py",
    ),
)

FAULTS = (*RECORD, *FEED, *OPERATORS, *REPORTED)
