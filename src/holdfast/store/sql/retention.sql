-- Statements for retention: which sealed blocks may leave the journal, and their leaving.
-- A block is given by where it ends, and by where the one before it ended.

-- name: add_archive
INSERT INTO holdfast_archives (archive_id, first_seal, last_seal, file, sha256, rows, executions, created_at)
VALUES (:archive_id, :first_seal, :last_seal, :file, :hashed, :rows, :executions, :at);
