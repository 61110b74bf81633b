-- Statements of snapshots: what a ledger has given out, whether it is empty, and what a restore makes room for.

-- name: read_sequences
-- By table: the greatest number given out, also if its row is gone.
SELECT name, seq FROM sqlite_sequence WHERE name GLOB 'holdfast_*' ORDER BY name;

-- name: advance_sequence
INSERT INTO sqlite_sequence (name, seq)
SELECT :table, 0 WHERE NOT EXISTS (SELECT 1 FROM sqlite_sequence WHERE name = :table);
UPDATE sqlite_sequence SET seq = max(seq, :value) WHERE name = :table;

-- name: end_leases
-- A heartbeat in reverse: what was held elsewhere is not held here.
UPDATE holdfast_jobs SET lease_expires_at = min(lease_expires_at, :now) WHERE lease_expires_at IS NOT NULL
RETURNING job_id;

-- name: tables_beside
SELECT name FROM sqlite_master
 WHERE type = 'table' AND name NOT GLOB 'holdfast_*' AND name NOT GLOB 'sqlite_*' ORDER BY name;
