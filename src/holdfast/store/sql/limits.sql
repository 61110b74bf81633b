-- Statements of parked jobs, and of the slots and tokens of limits. What is parked is in no index that a claim walks.

-- name: limit_rules
SELECT s.name, s.value FROM holdfast_settings s WHERE s.kind = 'limit' AND s.state = 'active';

-- name: unpark_jobs
UPDATE holdfast_jobs SET parked = NULL, limit_key = NULL
 WHERE job_id IN (SELECT {number} FROM {each}(:rows)) AND parked = :parked
RETURNING job_id, queue;

-- name: waiting_buckets
-- The buckets that jobs wait for, in order, each found by one look into the index.
WITH RECURSIVE w (bucket) AS (
  SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key > :after
  UNION ALL
  SELECT (SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key > w.bucket)
    FROM w WHERE w.bucket IS NOT NULL)
SELECT w.bucket FROM w WHERE w.bucket IS NOT NULL LIMIT :n;

-- name: still_waiting
SELECT r.value FROM {each}(:rows) r
 WHERE EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key = r.value);

-- name: used_slots
SELECT s.bucket, s.slot FROM holdfast_slots s WHERE s.bucket IN (SELECT value FROM {each}(:rows));

-- name: slots_of_bucket
SELECT s.slot, s.job_id, j.lease_owner, j.last_attempt_at
  FROM holdfast_slots s JOIN holdfast_jobs j ON j.job_id = s.job_id WHERE s.bucket = :bucket ORDER BY s.slot LIMIT :n;

-- name: all_slots
SELECT s.bucket, s.slot, s.job_id FROM holdfast_slots s;

-- name: leaked_slots
SELECT s.bucket, s.slot, s.job_id FROM holdfast_slots s
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = s.job_id AND j.lease_expires_at IS NOT NULL)
 ORDER BY s.bucket, s.slot LIMIT :n;

-- name: free_slots
DELETE FROM holdfast_slots
 WHERE job_id IN (SELECT {number} FROM {each}(:rows))
   AND NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = holdfast_slots.job_id AND j.lease_expires_at IS NOT NULL)
RETURNING bucket;

-- name: free_leaked_slots
DELETE FROM holdfast_slots
 WHERE NOT EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.job_id = holdfast_slots.job_id AND j.lease_expires_at IS NOT NULL)
RETURNING bucket;

-- name: drop_buckets
DELETE FROM holdfast_buckets WHERE bucket IN (SELECT value FROM {each}(:rows));

-- name: read_buckets
SELECT b.bucket, b.tokens, b.at FROM holdfast_buckets b WHERE b.bucket IN (SELECT value FROM {each}(:rows));

-- name: all_buckets
SELECT b.bucket, b.tokens, b.at FROM holdfast_buckets b ORDER BY b.bucket;

-- name: woken_buckets
SELECT b.bucket, b.tokens, b.at FROM holdfast_buckets b
 WHERE b.wake_at IS NOT NULL AND b.wake_at <= :at ORDER BY b.wake_at LIMIT :n;

-- name: next_wake
SELECT (SELECT min(b.wake_at) FROM holdfast_buckets b WHERE b.wake_at IS NOT NULL),
  EXISTS (SELECT 1 FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key > '');

-- name: parked_by_bucket
SELECT j.limit_key, j.queue, count(*) FROM holdfast_jobs j
 WHERE j.parked IS NOT NULL AND j.limit_key > '' GROUP BY j.limit_key, j.queue ORDER BY 3 DESC, 1 LIMIT :n;

-- name: waiting_in_queues
-- Of each queue: how many jobs wait that nothing parks, counted no further than most.
SELECT q.value, (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs j
                  WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value LIMIT :most) d)
  FROM {each}(:rows) q;

-- name: limited_in_queues
-- Of each queue: how many jobs wait for a limit on what runs or starts. The many that wait for a depth are not read.
WITH RECURSIVE w (bucket) AS (
  SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL
  UNION ALL
  SELECT (SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key > w.bucket)
    FROM w WHERE w.bucket IS NOT NULL)
SELECT j.queue, count(*) FROM w {ordered} JOIN holdfast_jobs j ON j.parked IS NOT NULL AND j.limit_key = w.bucket
 WHERE substr(w.bucket, 1, 6) <> 'depth:' AND j.queue IN (SELECT q.value FROM {each}(:rows) q) GROUP BY j.queue;

-- name: parked_cause
SELECT j.parked, j.limit_key FROM holdfast_jobs j WHERE j.job_id = :job_id;
