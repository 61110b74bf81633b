-- What `check` looks at: the evidence of records, page by page, and questions about the whole ledger. Nothing here writes.

-- name: these_jobs_to_check
SELECT {job_columns}, j.lease_token, j.history_from
  FROM holdfast_jobs j LEFT JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint)) ORDER BY j.job_id;

-- name: journal_to_check
-- The rows of other machines, and of executions those of a start or a commit: each row is one edge.
SELECT {journal_columns}, g.epoch, g.xid, g.subject
  FROM holdfast_journal g
 WHERE g.machine = :machine AND g.subject = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: checkpoints_to_check
SELECT c.job_id, count(*) FROM holdfast_checkpoints c
 WHERE c.job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint)) GROUP BY c.job_id;

-- name: parents_to_check
-- Which of these jobs have crossed their commit boundary.
SELECT j.job_id FROM holdfast_jobs j
 WHERE j.job_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
   AND j.status IN ('COMMITTED', 'DONE');

-- name: grants_named
-- What became of these grants, and whether a run of a procedure goes by one.
SELECT g.grant_id, g.action, g.target, g.event, g.move_id,
       g.grant_id IN (SELECT p.grant_id FROM holdfast_procedures p WHERE p.grant_id IS NOT NULL)
  FROM holdfast_grants g WHERE g.grant_id = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint));

-- name: maintenance_named
-- Where the journal tells of these acts of maintenance: the opening, and the last row; none yet of one under way.
SELECT g.subject, min(CASE WHEN g.event = 'open' THEN g.seq END),
       CASE WHEN g.subject NOT IN (SELECT m.maintenance_id FROM holdfast_maintenance m) THEN max(g.seq) END
  FROM holdfast_journal g
 WHERE g.machine = 'MAINTENANCE' AND g.subject = ANY (ARRAY(SELECT json_array_elements_text(:rows)::bigint))
 GROUP BY g.subject;
