"""The placeholders of statements for the columns of records that no job needs: see `store.statements`."""

MORE_COLUMNS = {
    "journal_columns": ("journal:JournalRow", "g"),
    "seal_columns": ("seals:Seal", "s"),
    "archive_columns": ("seals:Archive", "a"),
    "grant_columns": ("governed:Grant", "g"),
    "lease_columns": ("governed:NamedLease", "l"),
    "run_columns": ("governed:ProcedureRun", "p"),
    "step_columns": ("governed:PerformedStep", "t"),
    "switch_columns": ("governed:Switch", "w"),
    "setting_columns": ("governed:Setting", "s"),
    "approver_columns": ("governed:Approver", "a"),
    "evidence_columns": ("governed:Evidence", "v"),
    "collection_columns": ("governed:Collection", "c"),
    "value_columns": ("governed:RegistryValue", "v"),
}
