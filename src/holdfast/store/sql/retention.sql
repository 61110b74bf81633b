-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: slimmable_among
SELECT j.job_id FROM {each}(:rows) r {ordered} JOIN holdfast_jobs j ON j.job_id = r.{number}
  {ordered} JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.state IN (SELECT value FROM {each}(:states)) AND j.updated_at < :before AND c.payload IS NOT NULL
 ORDER BY j.job_id;

-- name: not_slimmed
-- The jobs of a range that have their payload, or are young: for the mark below which jobs are slimmed.
SELECT c.job_id, c.created_at >= :settled FROM holdfast_calls c
 WHERE c.job_id BETWEEN :first AND :upto AND (c.payload IS NOT NULL OR c.created_at >= :settled)
 ORDER BY c.job_id LIMIT :n;

-- name: last_call_below
SELECT max(c.job_id) FROM holdfast_calls c WHERE c.job_id >= :first AND c.job_id < :stop;

-- name: block_age
-- How many of its rows are from a time or later, and how many of them tell of something else than maintenance.
SELECT count(CASE WHEN g.at >= :before THEN 1 END), count(CASE WHEN g.machine <> 'MAINTENANCE' THEN 1 END)
  FROM holdfast_journal g
 WHERE g.seq BETWEEN :low_seq AND :high_seq
   AND (g.epoch, g.xid, g.seq) > (:after_epoch, :after_xid, :after_seq)
   AND (g.epoch, g.xid, g.seq) <= (:epoch, :last_xid, :last_seq);

-- name: add_archive
INSERT INTO holdfast_archives (archive_id, first_seal, last_seal, file, sha256, rows, executions, created_at)
VALUES (:archive_id, :first_seal, :last_seal, :file, :hashed, :rows, :executions, :at);

-- name: add_erasure
INSERT INTO holdfast_erased (job_id, client, key_hash, erased_at, actor, reason, grant_id, move_id)
VALUES (:job_id, :client, :key_hash, {now}, :actor, :reason, :grant_id, :move_id);

-- name: erase_job
UPDATE holdfast_calls SET payload = NULL, key = NULL WHERE job_id = :job_id;
UPDATE holdfast_jobs SET result = NULL, last_error_message = NULL, excuse_message = NULL, progress_note = NULL
 WHERE job_id = :job_id;
DELETE FROM holdfast_checkpoints WHERE job_id = :job_id;
DELETE FROM holdfast_tracebacks WHERE job_id = :job_id;
DELETE FROM holdfast_traces WHERE job_id = :job_id;

-- name: erasure_of
SELECT e.erased_at, e.actor, e.reason, e.grant_id FROM holdfast_erased e WHERE e.job_id = :job_id;
