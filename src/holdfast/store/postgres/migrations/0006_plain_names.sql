-- Two columns get plainer names. See docs/adr/0012. No row is rewritten.

ALTER TABLE holdfast_jobs RENAME COLUMN cancel_asked_at TO cancel_requested_at;
ALTER TABLE holdfast_aborted RENAME COLUMN cancel_asked_at TO cancel_requested_at;
ALTER TABLE holdfast_collections RENAME COLUMN standing TO status;
ALTER TABLE holdfast_collections RENAME CONSTRAINT holdfast_collections_standing_check TO holdfast_collections_status_check;
ALTER TABLE holdfast_values RENAME CONSTRAINT holdfast_values_standing_check TO holdfast_values_status_check;

-- An opened ledger compares the text of each unique index with its migration: this one names the column.
DROP INDEX holdfast_values_active;
ALTER TABLE holdfast_values RENAME COLUMN standing TO status;
CREATE UNIQUE INDEX holdfast_values_active ON holdfast_values (operation_code, act_type)
 WHERE state = 'active' AND status <> 'withheld';
