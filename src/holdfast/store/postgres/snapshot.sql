-- Statements of snapshots: what a ledger has given out, whether it is empty, and what a restore makes room for.

-- name: read_sequences
-- By table: the greatest number given out, also if its row is gone.
SELECT t.relname::text, coalesce(pg_sequence_last_value(s.oid::regclass), 0)
  FROM pg_class s
  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i')
  JOIN pg_class t ON d.refclassid = 'pg_class'::regclass AND t.oid = d.refobjid
 WHERE s.relkind = 'S' AND t.relnamespace = to_regnamespace(quote_ident(current_schema())) AND starts_with(t.relname, 'holdfast')
 ORDER BY 1;

-- name: advance_sequence
SELECT setval(s.oid::regclass, greatest(coalesce(pg_sequence_last_value(s.oid::regclass), 1), :value))
  FROM pg_class s
  JOIN pg_depend d ON d.classid = 'pg_class'::regclass AND d.objid = s.oid AND d.deptype IN ('a', 'i')
  JOIN pg_class t ON d.refclassid = 'pg_class'::regclass AND t.oid = d.refobjid
 WHERE s.relkind = 'S' AND t.relnamespace = to_regnamespace(quote_ident(current_schema())) AND t.relname = :table;

-- name: end_leases
-- A heartbeat in reverse: what was held elsewhere is not held here.
UPDATE holdfast_jobs SET lease_expires_at = least(lease_expires_at, coalesce(:now, statement_timestamp()))
 WHERE lease_expires_at IS NOT NULL
RETURNING job_id;

-- name: tables_beside
-- In any schema: an effect may have been written to each of them. Tables of an extension are left out.
SELECT n.nspname || '.' || c.relname FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace
 WHERE c.relkind IN ('r', 'p', 'f') AND NOT c.relispartition AND c.relpersistence <> 't'
   AND n.nspname <> 'information_schema' AND NOT starts_with(n.nspname, 'pg_')
   AND NOT starts_with(c.relname, 'holdfast_')
   AND NOT EXISTS (SELECT 1 FROM pg_depend d
                    WHERE d.classid = 'pg_class'::regclass AND d.objid = c.oid AND d.deptype = 'e')
 ORDER BY 1;
