"""The constraints that the migrations give the tables on PostgreSQL, by name: what an owner can drop without a trace.

Invariants: these lists are those of a new ledger (a test compares them); primary keys and unique indexes, which have a
check of their own, are not in them.
"""

from typing import Any

from holdfast.store.tables import ALL

# By table: its CHECKs, foreign keys and UNIQUEs.
_CONSTRAINTS = """
holdfast_after: holdfast_after_parent_id_fkey holdfast_after_wait_id_fkey
holdfast_aborted: holdfast_aborted_attempt_check holdfast_aborted_version_check
holdfast_approvers: holdfast_approvers_grant_id_fkey holdfast_approvers_name_check
holdfast_archives: holdfast_archives_archive_id_check holdfast_archives_file_key
  holdfast_archives_first_seal_fkey holdfast_archives_last_seal_fkey
holdfast_buckets: holdfast_buckets_bucket_check holdfast_buckets_tokens_check
holdfast_calls: holdfast_calls_job_id_check holdfast_calls_key_check holdfast_calls_max_attempts_check
  holdfast_calls_replaces_fkey holdfast_calls_replay_attempts_check
holdfast_checkpoints: holdfast_checkpoints_job_id_fkey
holdfast_collections: holdfast_collections_collection_check holdfast_collections_run_id_fkey
  holdfast_collections_status_check
holdfast_erased: holdfast_erased_actor_check holdfast_erased_grant_id_fkey holdfast_erased_job_id_fkey
  holdfast_erased_key_hash_check holdfast_erased_reason_check
holdfast_evidence: holdfast_evidence_grant_id_fkey holdfast_evidence_run_id_fkey
holdfast_grants: holdfast_grants_check holdfast_grants_history_from_check holdfast_grants_version_check
holdfast_jobs: holdfast_jobs_attempts_check holdfast_jobs_check holdfast_jobs_due_check
  holdfast_jobs_history_from_check holdfast_jobs_lease_check holdfast_jobs_limit_key_check
  holdfast_jobs_parked_check holdfast_jobs_resting_check holdfast_jobs_status_check holdfast_jobs_version_check
holdfast_leases: holdfast_leases_holder_check holdfast_leases_name_check holdfast_leases_token_check
holdfast_maintenance: holdfast_maintenance_who_check holdfast_maintenance_why_check
holdfast_procedures: holdfast_procedures_grant_id_fkey holdfast_procedures_history_from_check
  holdfast_procedures_idempotency_root_key holdfast_procedures_step_check holdfast_procedures_version_check
holdfast_queues: holdfast_queues_depth_max_check
holdfast_seals: holdfast_seals_rows_check holdfast_seals_seal_id_check
holdfast_settings: holdfast_settings_history_from_check holdfast_settings_kind_check holdfast_settings_name_check
  holdfast_settings_version_check
holdfast_slots: holdfast_slots_bucket_check holdfast_slots_job_id_fkey holdfast_slots_slot_check
holdfast_steps: holdfast_steps_history_from_check holdfast_steps_number_check holdfast_steps_run_id_fkey
  holdfast_steps_version_check
holdfast_switches: holdfast_switches_history_from_check holdfast_switches_name_check
  holdfast_switches_version_check
holdfast_ticks: holdfast_ticks_check holdfast_ticks_outcome_check
holdfast_tracebacks: holdfast_tracebacks_attempt_check holdfast_tracebacks_job_id_fkey
  holdfast_tracebacks_text_check
holdfast_unique: holdfast_unique_job_id_fkey holdfast_unique_scope_check
holdfast_traces: holdfast_traces_job_id_fkey holdfast_traces_traceparent_check holdfast_traces_tracestate_check
holdfast_values: holdfast_values_check holdfast_values_check1 holdfast_values_check2
  holdfast_values_collection_fkey holdfast_values_grant_id_fkey holdfast_values_history_from_check
  holdfast_values_operation_code_check holdfast_values_operation_code_protocol_version_key
  holdfast_values_protocol_version_check holdfast_values_run_id_fkey holdfast_values_status_check
  holdfast_values_successor_code_successor_version_fkey holdfast_values_version_check
  holdfast_values_vocab_id_key
holdfast_waits: holdfast_waits_job_id_fkey holdfast_waits_kind_check holdfast_waits_parents_check
  holdfast_waits_policy_check
"""


def _pairs(lists: str) -> frozenset[tuple[str, str]]:
    found, table = set(), ""
    for word in lists.split():
        if word.endswith(":"):
            table = word[:-1]
        else:
            found.add((table, word))
    return frozenset(found)


CONSTRAINTS = _pairs(_CONSTRAINTS)
NOT_NULL = frozenset({
    ("holdfast_maintenance", "xid"),
    *((table.full_name, column.name) for table in ALL for column in table.columns if not column.nullable),
})  # fmt: skip


def present(connection: Any, schema: str) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """Return the constraints of the ledger's tables, and their NOT NULL columns."""
    where = " WHERE c.relnamespace = to_regnamespace(quote_ident(%s)) AND c.relname LIKE 'holdfast\\_%%'"
    constraints = connection.execute(
        "SELECT c.relname::text, k.conname::text FROM pg_constraint k JOIN pg_class c ON c.oid = k.conrelid"
        f"{where} AND NOT c.relispartition AND k.contype IN ('c', 'f', 'u')",
        (schema,),
    )
    columns = connection.execute(
        "SELECT c.relname::text, a.attname::text FROM pg_attribute a JOIN pg_class c ON c.oid = a.attrelid"
        f"{where} AND NOT c.relispartition AND c.relkind IN ('r', 'p') AND a.attnum > 0 AND a.attnotnull",
        (schema,),
    )
    return frozenset(constraints.fetchall()), frozenset(columns.fetchall())


def lost(connection: Any, schema: str) -> list[tuple[str, str]]:
    """Return (subject, description) of each missing constraint."""
    constraints, columns = present(connection, schema)
    return [
        *((f"CONSTRAINT {name}", f"it is missing on {table}") for table, name in sorted(CONSTRAINTS - constraints)),
        *((f"COLUMN {table}.{name}", "its NOT NULL is missing") for table, name in sorted(NOT_NULL - columns)),
    ]
