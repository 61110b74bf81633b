"""The quarantine reasons of nodd codes whose names do not give the right reason by themselves.

Invariants: every code here is one that nodd uses. Code that looks up reasons for a ledger of nodd declares them first:
nodd itself, and `holdfast quarantine`.
"""

from holdfast.governance.reasons import Reason

REASONS = {
    "missing_dataset": Reason.DEPENDENCY_FAILURE,
    "source_expired": Reason.CONNECTOR_ERROR,
    "integrity_size_zero": Reason.PARSE_ERROR,
    "integrity_size_too_small": Reason.PARSE_ERROR,
    "integrity_size_too_large": Reason.PARSE_ERROR,
    "integrity_size_mismatch": Reason.PARSE_ERROR,
    "integrity_missing_required_header": Reason.PARSE_ERROR,
    "metadata_incomplete_product_metadata": Reason.PARSE_ERROR,
    "metadata_missing_geolocation": Reason.PARSE_ERROR,
    "metadata_invalid_time_range": Reason.PARSE_ERROR,
    "metadata_time_mismatch": Reason.PARSE_ERROR,
    "metadata_station_mismatch": Reason.PARSE_ERROR,
    "metadata_lead_mismatch": Reason.PARSE_ERROR,
    "metadata_product_mismatch": Reason.PARSE_ERROR,
    "metadata_platform_mismatch": Reason.PARSE_ERROR,
    "metadata_region_mismatch": Reason.PARSE_ERROR,
    "metadata_etag_mismatch": Reason.INVALID_STATE,
    "provenance_failed": Reason.PARSE_ERROR,
}
