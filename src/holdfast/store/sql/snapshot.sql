-- Statements of snapshots: what a ledger has given out, whether it is empty, and what a restore makes room for.

-- name: occupied_tables
SELECT 'jobs' WHERE EXISTS (SELECT 1 FROM holdfast_jobs)
UNION ALL SELECT 'calls' WHERE EXISTS (SELECT 1 FROM holdfast_calls)
UNION ALL SELECT 'aborted' WHERE EXISTS (SELECT 1 FROM holdfast_aborted)
UNION ALL SELECT 'slots' WHERE EXISTS (SELECT 1 FROM holdfast_slots)
UNION ALL SELECT 'checkpoints' WHERE EXISTS (SELECT 1 FROM holdfast_checkpoints)
UNION ALL SELECT 'erased' WHERE EXISTS (SELECT 1 FROM holdfast_erased)
UNION ALL SELECT 'tracebacks' WHERE EXISTS (SELECT 1 FROM holdfast_tracebacks)
UNION ALL SELECT 'traces' WHERE EXISTS (SELECT 1 FROM holdfast_traces)
UNION ALL SELECT 'grants' WHERE EXISTS (SELECT 1 FROM holdfast_grants)
UNION ALL SELECT 'procedures' WHERE EXISTS (SELECT 1 FROM holdfast_procedures)
UNION ALL SELECT 'steps' WHERE EXISTS (SELECT 1 FROM holdfast_steps)
UNION ALL SELECT 'collections' WHERE EXISTS (SELECT 1 FROM holdfast_collections)
UNION ALL SELECT 'values' WHERE EXISTS (SELECT 1 FROM holdfast_values)
UNION ALL SELECT 'evidence' WHERE EXISTS (SELECT 1 FROM holdfast_evidence)
UNION ALL SELECT 'switches' WHERE EXISTS (SELECT 1 FROM holdfast_switches)
UNION ALL SELECT 'settings' WHERE EXISTS (SELECT 1 FROM holdfast_settings)
UNION ALL SELECT 'ticks' WHERE EXISTS (SELECT 1 FROM holdfast_ticks)
UNION ALL SELECT 'unique' WHERE EXISTS (SELECT 1 FROM holdfast_unique)
UNION ALL SELECT 'waits' WHERE EXISTS (SELECT 1 FROM holdfast_waits)
UNION ALL SELECT 'after' WHERE EXISTS (SELECT 1 FROM holdfast_after)
UNION ALL SELECT 'approvers' WHERE EXISTS (SELECT 1 FROM holdfast_approvers)
UNION ALL SELECT 'seals' WHERE EXISTS (SELECT 1 FROM holdfast_seals)
UNION ALL SELECT 'archives' WHERE EXISTS (SELECT 1 FROM holdfast_archives)
UNION ALL SELECT 'journal' WHERE EXISTS (SELECT 1 FROM holdfast_journal);

-- name: orphaned_tables
-- Tables with a row whose job does not exist, or with a job without its call: no foreign key refers to a job.
SELECT 'jobs' WHERE EXISTS (SELECT 1 FROM holdfast_jobs j LEFT JOIN holdfast_calls c ON c.job_id = j.job_id
                             WHERE c.job_id IS NULL)
UNION ALL SELECT 'aborted' WHERE EXISTS (SELECT 1 FROM holdfast_aborted a LEFT JOIN holdfast_jobs j ON j.job_id = a.job_id
                                          WHERE j.job_id IS NULL);

-- name: make_room
DELETE FROM holdfast_meta WHERE :table = 'meta' AND name IN (SELECT value FROM {each}(:names));
DELETE FROM holdfast_operations WHERE :table = 'operations' AND operation IN (SELECT value FROM {each}(:names));
DELETE FROM holdfast_queues WHERE :table = 'queues' AND queue IN (SELECT value FROM {each}(:names));
