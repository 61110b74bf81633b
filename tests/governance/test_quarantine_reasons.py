"""Why a job is in quarantine: every reason is reached, by a code, by an error's code, or by words."""

from __future__ import annotations

import inspect
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from holdfast.governance.reasons import Reason, reason_of
from holdfast.nodd import headers, ingest_attempt, metadata
from holdfast.nodd.admission import SUPERSEDED
from holdfast.nodd.governance import HARD_FAIL_CODE
from holdfast.nodd.objects import ObjectAccessError, ObjectChangedError
from holdfast.nodd.provenance import FAILED_CODE

REQUIRED = {
    "parse_error", "permission_denied", "resource_exhausted", "connector_error", "timeout", "invalid_state",
    "dependency_failure", "rate_limited", "unknown",
}  # fmt: skip


@pytest.mark.req("G-21")
def test_the_reasons_are_the_required_ones_and_those_of_the_ledger() -> None:
    own = {
        "cancelled", "lease_expired", "attempts_exhausted", "governance_hard_fail", "governance_hold", "superseded",
        "deadline_passed",
    }  # fmt: skip
    assert {reason.value for reason in Reason} == REQUIRED | own


@pytest.mark.req("G-21")
@pytest.mark.parametrize("reason", Reason)
def test_a_reason_given_as_the_code_is_the_reason(reason: Reason) -> None:
    assert reason_of(reason.value, "connection_refused_error", "x") is (
        Reason.CONNECTOR_ERROR if reason is Reason.UNKNOWN else reason
    )
    assert reason_of(reason.value) is reason


@pytest.mark.req("G-21")
@pytest.mark.parametrize(
    "code, error_code, message, reason",
    [
        ("json_decode_error", None, None, "parse_error"),
        ("payload_not_json", None, None, "parse_error"),
        ("arguments_invalid", None, None, "parse_error"),
        ("validation_failed_schema_mismatch", None, None, "parse_error"),
        ("stac_validation_failed", None, None, "parse_error"),
        ("permission_error", None, None, "permission_denied"),
        ("memory_error", None, None, "resource_exhausted"),
        ("payload_too_large", None, None, "resource_exhausted"),
        ("timed_out", None, None, "timeout"),
        ("timeout_error", None, None, "timeout"),
        ("connection_refused_error", None, None, "connector_error"),
        ("integrity_missing_object", None, None, "connector_error"),
        ("io_error", None, None, "connector_error"),
        ("io_error_upstream", None, None, "dependency_failure"),
        ("import_error", None, None, "dependency_failure"),
        ("idempotency_conflict", None, None, "invalid_state"),
        ("integrity", None, None, "invalid_state"),
        ("lease_expired", "value_error", "timed out", "lease_expired"),
        ("cancelled", "timed_out", None, "cancelled"),
        ("governance_hard_fail", "permission_error", None, "governance_hard_fail"),
        # An unknown code of a user: then the code of the last error decides.
        ("poison", "timed_out", None, "timeout"),
        ("poison", "rate_limited", None, "rate_limited"),
        ("unknown", "file_not_found_error", None, "connector_error"),
        # Neither is known: then the message decides.
        ("poison", "runtime_error", "RuntimeError: 429 Too Many Requests", "rate_limited"),
        ("poison", "value_error", "ValueError: 403 Forbidden", "permission_denied"),
        ("poison", "runtime_error", "HTTP 503: service unavailable", "dependency_failure"),
        ("poison", "os_thing", "OSError: [Errno 28] No space left on device", "resource_exhausted"),
        ("poison", "runtime_error", "the thing is in no state for that", "invalid_state"),
        ("poison", "value_error", "seven", "unknown"),
        # A number is a status in a code, and anything in a message.
        ("http_404", None, None, "connector_error"),
        ("poison", "http_429", None, "rate_limited"),
        ("poison", "value_error", "ValueError: order 404 of 429, line 503, port 403", "unknown"),
        ("poison", None, None, "unknown"),
        (None, None, None, "unknown"),
        ("", "", "", "unknown"),
        ("unknown", None, None, "unknown"),
    ],
)
def test_codes_and_words_map_to_a_reason(
    code: str | None, error_code: str | None, message: str | None, reason: str
) -> None:
    assert reason_of(code, error_code, message) == reason


# What the application gives as a code, with what an operator makes of it.
NODD = {
    "superseded": "superseded",
    "governance_hard_fail": "governance_hard_fail",
    "governance_hold": "governance_hold",
    "missing_dataset": "dependency_failure",
    "io_error_upstream": "dependency_failure",
    "source_expired": "connector_error",
    "integrity_missing_object": "connector_error",
    "integrity_access_denied": "permission_denied",
    "metadata_access_denied": "permission_denied",
    "integrity_etag_mismatch": "invalid_state",
    "metadata_etag_mismatch": "invalid_state",
    "integrity_size_zero": "parse_error",
    "integrity_size_too_small": "parse_error",
    "integrity_size_too_large": "parse_error",
    "integrity_missing_required_header": "parse_error",
    "metadata_incomplete_product_metadata": "parse_error",
    "metadata_missing_geolocation": "parse_error",
    "metadata_invalid_time_range": "parse_error",
    "metadata_time_mismatch": "parse_error",
    "metadata_station_mismatch": "parse_error",
    "metadata_lead_mismatch": "parse_error",
    "metadata_product_mismatch": "parse_error",
    "metadata_platform_mismatch": "parse_error",
    "metadata_region_mismatch": "parse_error",
    "integrity_size_mismatch": "parse_error",
    "stac_validation_failed": "parse_error",
    "provenance_failed": "parse_error",
}


@pytest.mark.req("G-21")
@pytest.mark.parametrize("code, reason", NODD.items())
def test_the_codes_of_the_application_map_to_their_own_reasons(code: str, reason: str) -> None:
    """Whatever the last error said: its words would lead elsewhere."""
    assert reason_of(code, code, "Quarantine: 503, no such file, out of memory") == reason


@pytest.mark.req("G-21")
def test_no_code_of_the_application_is_missing_here() -> None:
    """Its codes, from its own source: each that quarantines, and each issue of the operators that becomes one."""
    by_name, of_metadata = (inspect.getsource(module) for module in (ingest_attempt, metadata))
    written = set(re.findall(r'(?:Quarantine|OperatorError)\(\s*"([a-z_]+)"', by_name))
    issues = set(re.findall(r'issues\.append\("([a-z_]+)"', of_metadata))
    issues |= {kind.issue for kind in (ObjectAccessError, ObjectChangedError)} | {metadata.MISSING}
    issues |= {getattr(module, name) for module in (headers, metadata) for name in vars(module) if "_MISMATCH" in name}
    named = {SUPERSEDED, HARD_FAIL_CODE, FAILED_CODE, "governance_hold", "integrity_missing_object"}
    hopeless = {f"integrity_{issue}" for issue in ingest_attempt.PERMANENT_ISSUES}
    assert written | named | hopeless | {f"metadata_{issue}" for issue in issues} == set(NODD)


@given(st.none() | st.text(), st.none() | st.text(), st.none() | st.text())
def test_any_stored_code_and_message_map_to_one_reason(
    code: str | None, error_code: str | None, message: str | None
) -> None:
    assert isinstance(reason_of(code, error_code, message), Reason)
