-- Statements of snapshots: what a ledger has given out, whether it is empty, and what a restore makes room for.

-- name: read_sequences
-- By table: the greatest number given out, also if its row is gone.
SELECT name, seq FROM sqlite_sequence WHERE name GLOB 'holdfast_*' ORDER BY name;

-- name: advance_sequence
INSERT INTO sqlite_sequence (name, seq)
SELECT :table, 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :table);
UPDATE sqlite_sequence SET seq = max(seq, :value) WHERE name = :table;

-- name: occupied_tables
SELECT 'jobs' WHERE EXISTS (SELECT 1 FROM holdfast_jobs)
UNION ALL SELECT 'executions' WHERE EXISTS (SELECT 1 FROM holdfast_executions)
UNION ALL SELECT 'checkpoints' WHERE EXISTS (SELECT 1 FROM holdfast_checkpoints)
UNION ALL SELECT 'grants' WHERE EXISTS (SELECT 1 FROM holdfast_grants)
UNION ALL SELECT 'procedures' WHERE EXISTS (SELECT 1 FROM holdfast_procedures)
UNION ALL SELECT 'steps' WHERE EXISTS (SELECT 1 FROM holdfast_steps)
UNION ALL SELECT 'collections' WHERE EXISTS (SELECT 1 FROM holdfast_collections)
UNION ALL SELECT 'values' WHERE EXISTS (SELECT 1 FROM holdfast_values)
UNION ALL SELECT 'evidence' WHERE EXISTS (SELECT 1 FROM holdfast_evidence)
UNION ALL SELECT 'switches' WHERE EXISTS (SELECT 1 FROM holdfast_switches)
UNION ALL SELECT 'approvers' WHERE EXISTS (SELECT 1 FROM holdfast_approvers)
UNION ALL SELECT 'seals' WHERE EXISTS (SELECT 1 FROM holdfast_seals)
UNION ALL SELECT 'archives' WHERE EXISTS (SELECT 1 FROM holdfast_archives)
UNION ALL SELECT 'journal' WHERE EXISTS (SELECT 1 FROM holdfast_journal);

-- name: make_room
DELETE FROM holdfast_meta WHERE :table = 'meta' AND name IN (SELECT value FROM json_each(:names));
DELETE FROM holdfast_operations WHERE :table = 'operations' AND operation IN (SELECT value FROM json_each(:names));
DELETE FROM holdfast_queues WHERE :table = 'queues' AND queue IN (SELECT value FROM json_each(:names));

-- name: end_leases
-- A heartbeat in reverse: what was held elsewhere is not held here.
UPDATE holdfast_executions SET lease_expires_at = min(lease_expires_at, :now)
 WHERE status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED')
RETURNING exec_id;

-- name: tables_beside
SELECT name FROM sqlite_master
 WHERE type = 'table' AND name NOT GLOB 'holdfast_*' AND name NOT GLOB 'sqlite_*' ORDER BY name;
