-- Statements of flow: deadlines, and jobs that wait for others.

-- name: overdue_jobs
SELECT j.job_id, j.deadline_at FROM holdfast_jobs j
 WHERE j.deadline_at IS NOT NULL AND j.state = 'pending' AND j.deadline_at <= {now}
 ORDER BY j.deadline_at LIMIT :n;

-- name: deadline_of
SELECT j.deadline_at FROM holdfast_jobs j WHERE j.job_id = :job_id;

-- name: any_overdue
SELECT EXISTS (SELECT 1 FROM holdfast_jobs j
                WHERE j.deadline_at IS NOT NULL AND j.state = 'pending' AND j.deadline_at <= {now});

-- name: settled_waits
-- Of the next waits: those whose awaited job holds them back no longer, each with the next job that does, and those
-- whose own job was taken out.
SELECT w.wait_id, w.job_id, w.awaited, NULL,
  CASE WHEN w.job_id IS NULL OR b.parked = 'after' THEN (SELECT a.parent_id FROM holdfast_after a {ordered} JOIN holdfast_jobs q ON q.job_id = a.parent_id
    WHERE a.wait_id = w.wait_id AND a.parent_id >= w.awaited AND q.state <> 'succeeded'
      AND (w.policy <> 'run' OR q.state IN ('pending', 'running'))
    ORDER BY a.parent_id LIMIT 1) END
  FROM (SELECT * FROM holdfast_waits WHERE awaited IS NOT NULL AND wait_id > :after ORDER BY wait_id LIMIT :n) w
  {ordered} JOIN holdfast_jobs p ON p.job_id = w.awaited LEFT JOIN holdfast_jobs b ON b.job_id = w.job_id
 WHERE p.state = 'succeeded' OR (w.job_id IS NOT NULL AND b.parked IS DISTINCT FROM 'after') OR (w.policy = 'run' AND p.state IN ('failed', 'quarantined'))
 ORDER BY w.wait_id;

-- name: doomed_waits
-- Of the next parents of waits that a parent cancels: those that were cancelled or came too late. The last row, of
-- job 0, is the parent at which the next look begins, if there are more.
WITH k AS MATERIALIZED (
  SELECT w.wait_id, w.job_id, w.awaited, a.parent_id FROM holdfast_waits w {ordered} JOIN holdfast_after a ON a.wait_id = w.wait_id
   WHERE w.awaited IS NOT NULL AND w.policy = 'cancel' AND w.job_id IS NOT NULL AND w.wait_id >= :wait_id
     AND a.parent_id >= w.awaited AND (w.wait_id > :wait_id OR a.parent_id > :parent_id)
   ORDER BY w.wait_id, a.parent_id LIMIT :n)
SELECT k.wait_id, k.job_id, k.awaited, k.parent_id FROM k {ordered} JOIN holdfast_jobs p ON p.job_id = k.parent_id JOIN holdfast_jobs b ON b.job_id = k.job_id
 WHERE p.state = 'quarantined' AND p.quarantine_code IN ('cancelled', 'deadline_passed') AND b.parked = 'after'
UNION ALL
SELECT * FROM (SELECT k.wait_id, 0, k.awaited, k.parent_id FROM k WHERE (SELECT count(*) FROM k) = :n ORDER BY k.wait_id DESC, k.parent_id DESC LIMIT 1) z;

-- name: last_wait_of
-- The last of the next waits: where the next look begins. NULL if there are no more.
SELECT max(w.wait_id) FROM (SELECT wait_id FROM holdfast_waits WHERE awaited IS NOT NULL AND wait_id > :after
                             ORDER BY wait_id LIMIT :n) w
HAVING count(*) = :n;

-- name: wait_of
SELECT w.wait_id, w.kind, w.name, w.job_id, w.policy, w.parents, w.awaited, w.created_at
  FROM holdfast_waits w WHERE w.job_id = :job_id;

-- name: get_batch
SELECT w.wait_id, w.kind, w.name, w.job_id, w.policy, w.parents, w.awaited, w.created_at
  FROM holdfast_waits w WHERE w.wait_id = :wait_id AND w.kind = 'batch';

-- name: list_batches
SELECT w.wait_id, w.kind, w.name, w.job_id, w.policy, w.parents, w.awaited, w.created_at
  FROM holdfast_waits w WHERE w.kind = 'batch' ORDER BY w.wait_id DESC LIMIT :n;

-- name: parents_by_state
SELECT p.state, count(*) FROM holdfast_after a {ordered} JOIN holdfast_jobs p ON p.job_id = a.parent_id
 WHERE a.wait_id = :wait_id GROUP BY p.state;

-- name: holding_parents
-- The jobs that a wait still waits for, first by id.
SELECT p.job_id, p.state, p.quarantine_code FROM holdfast_after a {ordered} JOIN holdfast_jobs p ON p.job_id = a.parent_id
 WHERE a.wait_id = :wait_id AND p.state <> 'succeeded' ORDER BY p.job_id LIMIT :n;

-- name: follows_any
-- Whether a job is one of these or waits, through any number of others, until one of these has ended.
WITH RECURSIVE up (job_id) AS (
  SELECT {number} FROM {each}(:rows)
  UNION
  SELECT a.parent_id FROM up JOIN holdfast_waits w ON w.job_id = up.job_id JOIN holdfast_after a ON a.wait_id = w.wait_id)
SELECT 1 FROM up WHERE job_id = :job_id LIMIT 1;
