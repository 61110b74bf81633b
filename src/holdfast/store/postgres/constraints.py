"""The constraints that the migrations give the tables on PostgreSQL, by name: what an owner can drop without a trace.

Invariants: these lists are those of a new ledger (a test compares them); primary keys and unique indexes, which have a
check of their own, are not in them.
"""

from typing import Any

# By table: its CHECKs, foreign keys and UNIQUEs.
_CONSTRAINTS = """
holdfast_approvers: holdfast_approvers_grant_id_fkey holdfast_approvers_name_check
holdfast_archives: holdfast_archives_archive_id_check holdfast_archives_file_key
  holdfast_archives_first_seal_fkey holdfast_archives_last_seal_fkey
holdfast_checkpoints: holdfast_checkpoints_job_id_fkey
holdfast_collections: holdfast_collections_collection_check holdfast_collections_run_id_fkey
  holdfast_collections_standing_check
holdfast_evidence: holdfast_evidence_grant_id_fkey holdfast_evidence_run_id_fkey
holdfast_executions: holdfast_executions_attempt_check holdfast_executions_history_from_check
  holdfast_executions_job_id_fkey holdfast_executions_version_check
holdfast_grants: holdfast_grants_check holdfast_grants_history_from_check holdfast_grants_version_check
holdfast_jobs: holdfast_jobs_attempts_check holdfast_jobs_check holdfast_jobs_check1
  holdfast_jobs_history_from_check holdfast_jobs_key_check holdfast_jobs_max_attempts_check
  holdfast_jobs_replaces_fkey holdfast_jobs_replay_attempts_check holdfast_jobs_version_check
holdfast_leases: holdfast_leases_holder_check holdfast_leases_name_check holdfast_leases_token_check
holdfast_maintenance: holdfast_maintenance_who_check holdfast_maintenance_why_check
holdfast_procedures: holdfast_procedures_grant_id_fkey holdfast_procedures_history_from_check
  holdfast_procedures_idempotency_root_key holdfast_procedures_step_check holdfast_procedures_version_check
holdfast_seals: holdfast_seals_rows_check holdfast_seals_seal_id_check
holdfast_steps: holdfast_steps_history_from_check holdfast_steps_number_check holdfast_steps_run_id_fkey
  holdfast_steps_version_check
holdfast_switches: holdfast_switches_history_from_check holdfast_switches_name_check
  holdfast_switches_version_check
holdfast_values: holdfast_values_check holdfast_values_check1 holdfast_values_check2
  holdfast_values_collection_fkey holdfast_values_grant_id_fkey holdfast_values_history_from_check
  holdfast_values_operation_code_check holdfast_values_operation_code_protocol_version_key
  holdfast_values_protocol_version_check holdfast_values_run_id_fkey holdfast_values_standing_check
  holdfast_values_successor_code_successor_version_fkey holdfast_values_version_check
  holdfast_values_vocab_id_key
"""

# By table: the columns that always hold something.
_NOT_NULL = """
holdfast_approvers: name public_key added_by reason added_at
holdfast_archives: archive_id first_seal last_seal file sha256 rows executions created_at
holdfast_checkpoints: job_id name value exec_id created_at
holdfast_collections: collection schema schema_digest standing run_id created_at updated_at
holdfast_count_deltas: delta_id operation queue target n
holdfast_counts: operation queue state n
holdfast_evidence: evidence_id kind subject content digest actor created_at
holdfast_executions: exec_id job_id attempt status version lease_owner lease_token lease_expires_at excused
  created_at updated_at event actor move_id history_from
holdfast_grants: grant_id state version action target scope requested_by expires_at created_at updated_at
  event actor reason move_id history_from
holdfast_jobs: job_id operation operation_version client queue state version attempts excused max_attempts
  replay_attempts priority run_at digest created_at updated_at event actor move_id history_from
holdfast_journal: seq epoch xid machine subject version target event actor move_id at
holdfast_leases: name holder token acquired_at expires_at
holdfast_machines: machine digest
holdfast_maintenance: maintenance_id who why opened_at xid
holdfast_meta: name value
holdfast_migrations: number name digest applied_at
holdfast_operations: operation version defaults declared_at
holdfast_procedures: run_id idempotency_root procedure state version step created_at updated_at event actor
  move_id history_from params plan lease
holdfast_queues: queue
holdfast_seals: seal_id epoch last_xid last_seq low_seq high_seq rows digest previous hash sealed_at
  horizon_xid horizon_seq
holdfast_steps: step_id run_id number name state version outcome created_at updated_at event actor move_id
  history_from
holdfast_switches: switch_id name state version thrown_by created_at updated_at event actor reason move_id
  history_from
holdfast_transitions: machine event step target path rule
holdfast_values: value_id vocab_id collection operation_code protocol_version act_type semantics authority_ref
  digest standing state version created_at updated_at event actor move_id history_from
holdfast_workers: worker_id queues operations concurrency started_at seen_at
"""


def _pairs(lists: str) -> frozenset[tuple[str, str]]:
    found, table = set(), ""
    for word in lists.split():
        if word.endswith(":"):
            table = word[:-1]
        else:
            found.add((table, word))
    return frozenset(found)


CONSTRAINTS, NOT_NULL = _pairs(_CONSTRAINTS), _pairs(_NOT_NULL)


def present(connection: Any, schema: str) -> tuple[frozenset[tuple[str, str]], frozenset[tuple[str, str]]]:
    """Return the constraints of the ledger's tables, and their columns that always hold something."""
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
    """Return the constraints that are gone: a subject and the words."""
    constraints, columns = present(connection, schema)
    return [
        *((f"CONSTRAINT {name}", f"it is gone from {table}") for table, name in sorted(CONSTRAINTS - constraints)),
        *(
            (f"COLUMN {table}.{name}", "it may be empty now: NOT NULL is gone")
            for table, name in sorted(NOT_NULL - columns)
        ),
    ]
