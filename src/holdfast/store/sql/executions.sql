-- Statements about executions: claiming, moving under a lease, heartbeats, recovery.

-- name: executions_of
SELECT {execution_columns} FROM holdfast_executions e WHERE e.job_id = :job_id ORDER BY e.attempt;

-- name: get_attempt
SELECT {execution_columns}, {job_columns}
  FROM holdfast_executions e {ordered} JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE e.exec_id = :exec_id;

-- name: anything_to_check
-- A job that runs, an open execution or a seal: in a ledger without any of these the check at open can find nothing.
SELECT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.state IN ('failed', 'quarantined', 'running') AND j.state = 'running')
    OR EXISTS (SELECT 1 FROM holdfast_executions e WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED'))
    OR EXISTS (SELECT 1 FROM holdfast_seals)
    OR EXISTS (SELECT 1 FROM holdfast_meta m WHERE m.name = 'seal_head');

-- name: any_expired
SELECT EXISTS (SELECT 1 FROM holdfast_executions e
  WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at <= {now});

-- name: stalled_attempts
-- The same rows as expired_attempts, for looking: nothing is locked.
SELECT {execution_columns}, {job_columns}
  FROM holdfast_executions e {ordered} JOIN holdfast_jobs j ON j.job_id = e.job_id
 WHERE e.status IN ('LEASED', 'IN_PROGRESS', 'COMMITTED') AND e.lease_expires_at <= {now}
 ORDER BY e.lease_expires_at LIMIT :n;
