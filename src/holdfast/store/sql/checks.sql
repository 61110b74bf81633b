-- What `check` looks at: the evidence of records, page by page, and questions about the whole ledger. Nothing here writes.

-- name: jobs_to_check
-- A job whose call is missing is judged too: then the columns of its call are NULL. The second bound lets a plan that
-- walks both tables begin at the page.
SELECT {job_columns}, j.lease_token, j.history_from
  FROM holdfast_jobs j LEFT JOIN holdfast_calls c ON c.job_id = j.job_id AND c.job_id > :after
 WHERE j.job_id > :after ORDER BY j.job_id LIMIT :n;

-- name: executions_to_check
SELECT {execution_columns}, e.event, e.actor, e.reason, e.move_id
  FROM holdfast_executions e WHERE e.job_id BETWEEN :low AND :high;

-- name: edges_to_check
-- The edges in the rows of jobs: those of the job, and those of the attempt that moved with it. By a range of ids, which
-- SQLite takes into the view; it would look at the whole journal for a list of them.
SELECT {journal_columns}, g.epoch, g.xid, g.record
  FROM holdfast_edges g
 WHERE g.record BETWEEN :low AND :high
   AND (g.machine IN ('JOB', 'REQUEST') OR (g.machine = 'EXECUTION' AND g.subject IS DISTINCT FROM g.record));

-- name: grants_to_check
SELECT grant_id, state, version, history_from, created_at, updated_at
  FROM holdfast_grants WHERE grant_id > :after ORDER BY grant_id LIMIT :n;

-- name: procedures_to_check
SELECT run_id, state, version, history_from, created_at, updated_at
  FROM holdfast_procedures WHERE run_id > :after ORDER BY run_id LIMIT :n;

-- name: values_to_check
SELECT value_id, state, version, history_from, created_at, updated_at
  FROM holdfast_values WHERE value_id > :after ORDER BY value_id LIMIT :n;

-- name: steps_to_check
SELECT step_id, state, version, history_from, created_at, updated_at
  FROM holdfast_steps WHERE step_id > :after ORDER BY step_id LIMIT :n;

-- name: switches_to_check
SELECT switch_id, state, version, history_from, created_at, updated_at
  FROM holdfast_switches WHERE switch_id > :after ORDER BY switch_id LIMIT :n;

-- name: settings_to_check
SELECT setting_id, state, version, history_from, created_at, updated_at
  FROM holdfast_settings WHERE setting_id > :after ORDER BY setting_id LIMIT :n;

-- name: ids_twice
SELECT 'JOB', job_id, count(*) FROM holdfast_jobs GROUP BY job_id HAVING count(*) > 1
UNION ALL
SELECT 'CALL', job_id, count(*) FROM holdfast_calls GROUP BY job_id HAVING count(*) > 1
UNION ALL
SELECT 'EXECUTION', job_id * 1000000 + attempt, count(*)
  FROM holdfast_aborted GROUP BY job_id, attempt HAVING count(*) > 1;

-- name: keys_twice
SELECT j.job_id, d.first_id, j.client, j.key
  FROM (SELECT client, key, min(job_id) AS first_id FROM holdfast_calls WHERE key IS NOT NULL
         GROUP BY client, key HAVING count(*) > 1) d
  JOIN holdfast_calls j ON j.client = d.client AND j.key = d.key AND j.job_id > d.first_id
 ORDER BY j.job_id LIMIT :n;

-- name: overdue_leases
SELECT j.job_id * 1000000 + j.attempts, j.job_id, j.lease_owner, j.lease_expires_at
  FROM holdfast_jobs j WHERE j.lease_expires_at IS NOT NULL AND j.lease_expires_at <= :before
 ORDER BY j.lease_expires_at LIMIT :n;

-- name: counts_to_check
SELECT c.operation, c.queue, c.state, sum(c.counted), sum(c.found)
  FROM (SELECT operation, queue, state, n AS counted, 0 AS found FROM holdfast_counts
        UNION ALL SELECT operation, queue, target, n, 0 FROM holdfast_count_deltas
        UNION ALL SELECT operation, queue, source, -n, 0 FROM holdfast_count_deltas WHERE source IS NOT NULL
        UNION ALL SELECT operation, queue, state, 0, count(*) FROM holdfast_jobs GROUP BY operation, queue, state) c
 GROUP BY c.operation, c.queue, c.state HAVING sum(c.counted) <> sum(c.found)
 ORDER BY c.operation, c.queue, c.state LIMIT :n;

-- name: orphan_executions
SELECT a.job_id * 1000000 + a.attempt, a.job_id FROM holdfast_aborted a
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = a.job_id) ORDER BY a.job_id, a.attempt LIMIT :n;

-- name: orphan_calls
-- A call and its job are written together: which of the two is missing, and the id of the other.
SELECT 'job', c.job_id FROM holdfast_calls c
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = c.job_id)
UNION ALL
SELECT 'call', j.job_id FROM holdfast_jobs j
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_calls c WHERE c.job_id = j.job_id) LIMIT :n;

-- name: orphan_checkpoints
SELECT c.job_id, c.name FROM holdfast_checkpoints c
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = c.job_id) ORDER BY c.job_id, c.name LIMIT :n;

-- name: orphan_replacements
SELECT j.job_id, j.replaces FROM holdfast_calls j
 WHERE j.replaces IS NOT NULL AND NOT EXISTS (SELECT 1 FROM holdfast_calls r WHERE r.job_id = j.replaces)
 ORDER BY j.job_id LIMIT :n;

-- name: orphans_of_governance
SELECT * FROM (
  SELECT 'STEP' AS kind, s.step_id AS id, 'run' AS what, CAST(s.run_id AS TEXT) AS missing FROM holdfast_steps s
   WHERE NOT EXISTS (SELECT 1 FROM holdfast_procedures p WHERE p.run_id = s.run_id)
  UNION ALL SELECT 'VALUE', s.value_id, 'collection', s.collection FROM holdfast_values s
   WHERE NOT EXISTS (SELECT 1 FROM holdfast_collections c WHERE c.collection = s.collection)
  UNION ALL SELECT 'EVIDENCE', s.evidence_id, 'run', CAST(s.run_id AS TEXT) FROM holdfast_evidence s
   WHERE s.run_id IS NOT NULL AND NOT EXISTS (SELECT 1 FROM holdfast_procedures p WHERE p.run_id = s.run_id)) o
 ORDER BY o.kind, o.id LIMIT :n;

-- name: evidence_to_check
SELECT evidence_id, content, digest FROM holdfast_evidence WHERE evidence_id > :after ORDER BY evidence_id LIMIT :n;

-- name: erased_to_check
-- Erased jobs that have data again, each with the first kind of it.
SELECT b.job_id, b.what FROM (
  SELECT e.job_id, CASE WHEN c.payload IS NOT NULL THEN 'payload' WHEN c.key IS NOT NULL THEN 'key'
      WHEN j.result IS NOT NULL THEN 'result'
      WHEN coalesce(j.last_error_message, j.excuse_message) IS NOT NULL THEN 'error message'
      WHEN j.progress_note IS NOT NULL THEN 'progress note'
      WHEN EXISTS (SELECT 1 FROM holdfast_aborted a WHERE a.job_id = e.job_id
                      AND (a.error_message IS NOT NULL OR a.progress_note IS NOT NULL)) THEN 'error message'
      WHEN EXISTS (SELECT 1 FROM holdfast_checkpoints k WHERE k.job_id = e.job_id) THEN 'checkpoint'
      WHEN EXISTS (SELECT 1 FROM holdfast_tracebacks t WHERE t.job_id = e.job_id) THEN 'traceback' END AS what
    FROM holdfast_erased e JOIN holdfast_calls c ON c.job_id = e.job_id JOIN holdfast_jobs j ON j.job_id = e.job_id) b
 WHERE b.what IS NOT NULL AND b.job_id = coalesce(CAST(:job_id AS bigint), b.job_id) ORDER BY b.job_id LIMIT :n;

-- name: rewrites_to_doubt
-- What was rewritten or deleted under maintenance without a grant to repair, restore or erase, for one maintenance.
SELECT r.subject, min(r.actor), min(r.event), min(r.reason), count(*)
  FROM holdfast_journal r
 WHERE r.machine = 'MAINTENANCE' AND r.event IN ('rewrite', 'delete') AND NOT EXISTS (
   SELECT 1 FROM holdfast_grants g
    WHERE g.grant_id = r.grant_id AND g.state = 'consumed' AND g.action IN ('ledger.repair', 'snapshot.restore', 'erase')
      AND NOT EXISTS (SELECT 1 FROM holdfast_journal o
                       WHERE o.machine = 'MAINTENANCE' AND o.version = 1 AND o.grant_id = r.grant_id
                         AND o.subject <> r.subject))
 GROUP BY r.subject ORDER BY r.subject LIMIT :n;

-- name: any_grant_or_approver
SELECT 1 WHERE EXISTS (SELECT 1 FROM holdfast_grants) OR EXISTS (SELECT 1 FROM holdfast_approvers);

-- name: grants_to_doubt
SELECT grant_id, state, requested_by, approved_by FROM holdfast_grants
 WHERE (state = 'consumed' AND consumed_by IS NULL)
    OR (state = 'active' AND (approved_by IS NULL OR (:by_another AND approved_by = requested_by)))
 ORDER BY grant_id LIMIT :n;

-- name: journal_page
SELECT count(*), max(seq) FROM (SELECT seq FROM holdfast_journal WHERE seq > :after ORDER BY seq LIMIT :n) p;

-- name: orphan_rows
SELECT g.machine, g.subject, g.seq, g.epoch, g.xid
  FROM holdfast_journal g
 WHERE g.seq > :after AND g.seq <= :until AND NOT CASE g.machine
   WHEN 'JOB' THEN EXISTS (SELECT 1 FROM holdfast_jobs r WHERE r.job_id = g.subject)
   WHEN 'REQUEST' THEN EXISTS (
     SELECT 1 FROM holdfast_jobs r WHERE r.job_id = g.subject AND g.version BETWEEN 1 AND r.attempts)
   WHEN 'EXECUTION' THEN EXISTS (
     SELECT 1 FROM holdfast_jobs r
      WHERE r.job_id = g.subject / 1000000 AND g.subject - r.job_id * 1000000 BETWEEN 1 AND r.attempts)
   WHEN 'GRANT' THEN EXISTS (SELECT 1 FROM holdfast_grants r WHERE r.grant_id = g.subject)
   WHEN 'PROCEDURE' THEN EXISTS (SELECT 1 FROM holdfast_procedures r WHERE r.run_id = g.subject)
   WHEN 'STEP' THEN EXISTS (SELECT 1 FROM holdfast_steps r WHERE r.step_id = g.subject)
   WHEN 'VALUE' THEN EXISTS (SELECT 1 FROM holdfast_values r WHERE r.value_id = g.subject)
   WHEN 'SWITCH' THEN EXISTS (SELECT 1 FROM holdfast_switches r WHERE r.switch_id = g.subject)
   WHEN 'SETTING' THEN EXISTS (SELECT 1 FROM holdfast_settings r WHERE r.setting_id = g.subject)
   ELSE g.machine = 'MAINTENANCE' END
 ORDER BY g.seq;

-- name: broken_maintenance
-- A maintenance is opened, noted about and shut in one transaction; the one under way here is not shut yet.
SELECT g.subject, count(*), min(g.version), max(g.version), count(CASE WHEN g.target = 'shut' THEN 1 END)
  FROM holdfast_journal g
 WHERE g.machine = 'MAINTENANCE'
   AND NOT EXISTS (SELECT 1 FROM holdfast_maintenance m WHERE m.maintenance_id = g.subject)
 GROUP BY g.subject
HAVING count(*) <> max(g.version) - min(g.version) + 1 OR count(CASE WHEN g.target = 'shut' THEN 1 END) <> 1
 ORDER BY g.subject LIMIT :n;

-- name: last_maintenance
SELECT max(g.seq) FROM holdfast_journal g WHERE g.machine = 'MAINTENANCE';

-- name: archived_until
SELECT s.epoch, s.last_xid, s.last_seq
  FROM holdfast_archives a JOIN holdfast_seals s ON s.seal_id = a.last_seal
 ORDER BY a.last_seal DESC LIMIT 1;

-- name: greatest_numbers
-- By table, without the head that all have: the greatest number that is in use, or that the journal or the seals tell of.
SELECT n.name, max(n.number)
  FROM (SELECT 'calls' AS name, max(job_id) AS number FROM holdfast_calls
        UNION ALL SELECT 'calls', max(job_id) FROM holdfast_jobs
        UNION ALL SELECT 'grants', max(grant_id) FROM holdfast_grants
        UNION ALL SELECT 'procedures', max(run_id) FROM holdfast_procedures
        UNION ALL SELECT 'steps', max(step_id) FROM holdfast_steps
        UNION ALL SELECT 'values', max(value_id) FROM holdfast_values
        UNION ALL SELECT 'switches', max(switch_id) FROM holdfast_switches
        UNION ALL SELECT 'settings', max(setting_id) FROM holdfast_settings
        UNION ALL SELECT 'waits', max(wait_id) FROM holdfast_waits
        UNION ALL SELECT 'evidence', max(evidence_id) FROM holdfast_evidence
        UNION ALL SELECT 'journal', max(seq) FROM holdfast_journal
        UNION ALL SELECT 'journal', max(high_seq) FROM holdfast_seals
        UNION ALL SELECT CASE g.machine
            WHEN 'JOB' THEN 'calls'
            WHEN 'GRANT' THEN 'grants' WHEN 'PROCEDURE' THEN 'procedures'
            WHEN 'STEP' THEN 'steps' WHEN 'VALUE' THEN 'values'
            WHEN 'SWITCH' THEN 'switches' WHEN 'SETTING' THEN 'settings'
            WHEN 'MAINTENANCE' THEN 'maintenance' END, max(g.subject)
          FROM holdfast_journal g GROUP BY g.machine) n
 WHERE n.name IS NOT NULL AND n.number IS NOT NULL GROUP BY n.name ORDER BY n.name;

-- name: operations_to_check
SELECT operation, version, defaults FROM holdfast_operations ORDER BY operation;
