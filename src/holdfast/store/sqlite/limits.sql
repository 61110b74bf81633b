-- Statements of parked jobs, and of the slots and tokens of limits.

-- name: lock_limits
-- Writers take turns here anyway.
SELECT :now;

-- name: park_jobs
-- rows: job_id, bucket. Parking is no move: neither version nor journal. Only a pending job can be parked. A job that
-- waits for others need not wait for the depth of its queue too.
UPDATE holdfast_jobs AS j SET parked = :parked, limit_key = r.value ->> 1
  FROM json_each(:rows) r
 WHERE j.job_id = r.value ->> 0 AND j.state = 'pending' AND (j.parked IS NULL OR j.parked = 'depth' AND :parked = 'after')
RETURNING job_id;

-- name: admit_parked
-- rows: bucket, how many to let go. json_each over the first of each bucket, because LIMIT cannot name a column.
UPDATE holdfast_jobs SET parked = NULL, limit_key = NULL
 WHERE job_id IN (
  SELECT p.value
    FROM json_each(:rows) r
    CROSS JOIN json_each((SELECT json_group_array(f.job_id) FROM (
      SELECT j.job_id FROM holdfast_jobs j INDEXED BY holdfast_jobs_parked
       WHERE j.parked IS NOT NULL AND j.limit_key = r.value ->> 0
       ORDER BY j.priority DESC, j.run_at, j.job_id LIMIT :most) f)) p
   WHERE p.key < r.value ->> 1)
RETURNING job_id, queue;

-- name: limited_jobs
-- The limits, as rows without a job, and then the due jobs in the order of a claim, each with its key; see claim_jobs.
WITH RECURSIVE lanes (queue, priority) AS (
  SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j
                    WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value)
    FROM json_each(:queues) q
   WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q.value AND p.paused_at IS NOT NULL)
  UNION ALL
  SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                    WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
    FROM lanes l WHERE l.priority IS NOT NULL
   ORDER BY 2 DESC LIMIT -1)
SELECT NULL, r.name, r.value, NULL FROM holdfast_settings r WHERE r.kind = 'limit' AND r.state = 'active'
UNION ALL
SELECT * FROM (
SELECT j.job_id, j.queue, j.operation, c.payload -> ('$.' || (SELECT s.value ->> '$.path' FROM holdfast_settings s
           WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation))
  FROM lanes l CROSS JOIN holdfast_jobs j INDEXED BY holdfast_jobs_due
    ON j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority AND j.due_at <= :now
   AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
   AND (j.deadline_at IS NULL OR j.deadline_at > :now)
  CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 LIMIT :n);

-- name: limited_these
SELECT j.job_id, j.queue, j.operation, c.payload -> ('$.' || (SELECT s.value ->> '$.path' FROM holdfast_settings s
           WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation))
  FROM json_each(:rows) r CROSS JOIN holdfast_jobs j ON j.job_id = r.value
  CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.due_at <= :now AND j.parked IS NULL
   AND NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = j.queue AND p.paused_at IS NOT NULL)
   AND NOT EXISTS (SELECT 1 FROM holdfast_switches w WHERE w.state = 'on' AND w.name = 'operation:' || j.operation)
   AND (j.deadline_at IS NULL OR j.deadline_at > :now);

-- name: running_jobs
SELECT j.job_id, j.queue, j.operation, c.payload -> ('$.' || (SELECT s.value ->> '$.path' FROM holdfast_settings s
           WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation))
  FROM holdfast_jobs j INDEXED BY holdfast_jobs_leased CROSS JOIN holdfast_calls c ON c.job_id = j.job_id
 WHERE j.lease_expires_at IS NOT NULL;

-- name: one_job
SELECT j.job_id, j.queue, j.operation, c.payload -> ('$.' || (SELECT s.value ->> '$.path' FROM holdfast_settings s
           WHERE s.kind = 'limit' AND s.state = 'active' AND s.name = 'key:' || j.operation))
  FROM holdfast_jobs j CROSS JOIN holdfast_calls c ON c.job_id = j.job_id WHERE j.job_id = :job_id;

-- name: take_slots
-- rows: bucket, slot, job_id
INSERT INTO holdfast_slots (bucket, slot, job_id)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2 FROM json_each(:rows) r;

-- name: drop_slots
DELETE FROM holdfast_slots WHERE bucket IN (SELECT value FROM json_each(:rows));

-- name: write_buckets
-- rows: bucket, tokens, at, wake_at
INSERT INTO holdfast_buckets (bucket, tokens, at, wake_at)
SELECT r.value ->> 0, r.value ->> 1, r.value ->> 2, r.value ->> 3 FROM json_each(:rows) r WHERE true
ON CONFLICT (bucket) DO UPDATE SET tokens = excluded.tokens, at = excluded.at, wake_at = excluded.wake_at;
