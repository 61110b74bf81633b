-- Statements for people who watch a ledger: lists without payloads, and sums of a bounded number of rows. Nothing here
-- writes. A window is the newest ids of a set: what is filtered costs no more than its rows, however many jobs exist.

-- name: job_lines
SELECT w.job_id, w.state, w.operation, w.queue, c.client, c.key, w.attempts, w.excused, c.max_attempts, w.run_at,
       c.created_at, w.updated_at, w.last_error_code, w.last_error_message, w.quarantine_code, w.lost
  FROM (SELECT i.job_id, i.state, i.operation, i.queue, i.attempts, i.excused, i.run_at, i.updated_at,
               i.last_error_code, i.last_error_message, i.quarantine_code, i.lost
          FROM holdfast_jobs i WHERE i.job_id < :before AND i.job_id > :after
         ORDER BY i.job_id DESC LIMIT :window) w
  {ordered} JOIN holdfast_calls c ON c.job_id = w.job_id
 WHERE (CAST(:state AS text) IS NULL OR w.state = :state)
   AND (CAST(:operation AS text) IS NULL OR w.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR w.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND (CAST(:code AS text) IS NULL OR w.last_error_code = :code)
 ORDER BY w.job_id DESC LIMIT :n;

-- name: resting_lines
SELECT w.job_id, w.state, w.operation, w.queue, c.client, c.key, w.attempts, w.excused, c.max_attempts, w.run_at,
       c.created_at, w.updated_at, w.last_error_code, w.last_error_message, w.quarantine_code, w.lost
  FROM (SELECT i.job_id, i.state, i.operation, i.queue, i.attempts, i.excused, i.run_at, i.updated_at,
               i.last_error_code, i.last_error_message, i.quarantine_code, i.lost
          FROM holdfast_jobs i WHERE i.resting = :state AND i.job_id < :before AND i.job_id > :after
         ORDER BY i.job_id DESC LIMIT :window) w
  {ordered} JOIN holdfast_calls c ON c.job_id = w.job_id
 WHERE (CAST(:operation AS text) IS NULL OR w.operation = :operation)
   AND (CAST(:queue AS text) IS NULL OR w.queue = :queue) AND (CAST(:client AS text) IS NULL OR c.client = :client)
   AND (CAST(:code AS text) IS NULL OR w.last_error_code = :code)
 ORDER BY w.job_id DESC LIMIT :n;

-- name: window_floor
SELECT min(w.job_id), count(*)
  FROM (SELECT i.job_id FROM holdfast_jobs i WHERE i.job_id < :before AND i.job_id > :after
         ORDER BY i.job_id DESC LIMIT :window) w;

-- name: resting_floor
SELECT min(w.job_id), count(*)
  FROM (SELECT i.job_id FROM holdfast_jobs i WHERE i.resting = :state AND i.job_id < :before AND i.job_id > :after
         ORDER BY i.job_id DESC LIMIT :window) w;

-- name: call_from
SELECT c.job_id, c.created_at FROM holdfast_calls c WHERE c.job_id >= :job_id ORDER BY c.job_id LIMIT 1;

-- name: greatest_job
SELECT max(job_id) FROM holdfast_jobs;

-- name: failed_facts
SELECT j.job_id, j.operation, j.queue, j.last_error_code, j.last_error_message, j.updated_at
  FROM holdfast_jobs j WHERE j.resting = 'failed' AND j.job_id < :before ORDER BY j.job_id DESC LIMIT :n;

-- name: due_lanes
-- Of each queue and priority: the earliest job, and how many are due, counted no further than n; without parked ones.
WITH RECURSIVE
  lanes (queue, priority) AS (
    SELECT q.value, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q.value)
      FROM {each}(:queues) q
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM lanes l WHERE l.priority IS NOT NULL)
SELECT l.queue, l.priority,
       (SELECT min(j.due_at) FROM holdfast_jobs j
         WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority),
       (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs j
         WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority
           AND j.due_at <= :now LIMIT :n) d)
  FROM lanes l WHERE l.priority IS NOT NULL ORDER BY l.queue, l.priority DESC;

-- name: recent_durations
SELECT r.queue, r.started_at, r.updated_at
  FROM (SELECT j.queue, j.state, j.started_at, j.updated_at FROM holdfast_jobs j ORDER BY j.job_id DESC LIMIT :n) r
 WHERE r.state = 'succeeded' AND r.started_at IS NOT NULL;

-- name: waiting_by_bucket
-- The first n buckets that jobs wait for, each with how many do, counted no further than most.
WITH RECURSIVE w (bucket) AS (
  SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL
  UNION ALL
  SELECT (SELECT min(j.limit_key) FROM holdfast_jobs j WHERE j.parked IS NOT NULL AND j.limit_key > w.bucket)
    FROM w WHERE w.bucket IS NOT NULL)
SELECT w.bucket, (SELECT count(*) FROM (SELECT 1 FROM holdfast_jobs j
                   WHERE j.parked IS NOT NULL AND j.limit_key = w.bucket LIMIT :most) d)
  FROM w WHERE w.bucket IS NOT NULL LIMIT :n;

-- name: newest_deltas
-- How many deltas are not folded yet, counted up to n, and the time of the first of them.
-- By their ids: after a fold an index has many entries of deleted rows, and a LIMIT would look for more behind them all.
SELECT count(*), min(d.at) FROM holdfast_count_deltas d
 WHERE d.delta_id > (SELECT max(delta_id) FROM holdfast_count_deltas) - :n;

-- name: journal_tail
SELECT {journal_columns} FROM holdfast_journal g
 WHERE g.seq < :before AND g.seq > :after
   AND (CAST(:machine AS text) IS NULL OR g.machine = :machine)
   AND (CAST(:event AS text) IS NULL OR g.event = :event)
   AND (CAST(:actor AS text) IS NULL OR g.actor = :actor)
 ORDER BY g.seq DESC LIMIT :n;

-- name: last_entry
SELECT max(seq) FROM holdfast_journal;

-- name: keyed_clients
-- The clients that have used keys, each found by a step in the index of keys.
WITH RECURSIVE
  clients (client) AS (
    SELECT min(c.client) FROM holdfast_calls c WHERE c.key IS NOT NULL
    UNION ALL
    SELECT (SELECT min(c.client) FROM holdfast_calls c WHERE c.key IS NOT NULL AND c.client > k.client)
      FROM clients k WHERE k.client IS NOT NULL)
SELECT k.client FROM clients k WHERE k.client IS NOT NULL LIMIT :n;

-- name: pauses
SELECT queue, paused_at, paused_by, reason FROM holdfast_queues WHERE paused_at IS NOT NULL ORDER BY queue;

-- name: attempts_held
SELECT j.lease_owner, j.job_id, j.operation, j.queue, j.attempts, j.last_attempt_at, j.lease_expires_at, j.progress,
       j.progress_note
  FROM holdfast_jobs j WHERE j.lease_expires_at IS NOT NULL ORDER BY j.lease_expires_at LIMIT :n;
