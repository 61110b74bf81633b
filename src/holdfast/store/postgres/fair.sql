-- Statements of the fair claim.

-- name: fair_jobs
-- The first due jobs of each lane (see claim_jobs), at most 16 lanes, merged by their due time minus a number of seconds
-- for each priority, which is a setting. Each lane is a walk of one index; so a job of low priority gets its turn, and later only by so much.
-- More jobs are read than are locked: what another claim has locked is passed over.
WITH RECURSIVE
  t AS MATERIALIZED (SELECT coalesce(:now, statement_timestamp()) AS now),
  f AS MATERIALIZED (SELECT coalesce((SELECT s.value::double precision FROM holdfast_settings s
    WHERE s.kind = 'fair' AND s.name = 'step_s' AND s.state = 'active'), :step::double precision) AS step),
  every_lane (queue, priority) AS (
    SELECT q, (SELECT max(j.priority) FROM holdfast_jobs j
                WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = q)
      FROM json_array_elements_text(:queues) q
     WHERE NOT EXISTS (SELECT 1 FROM holdfast_queues p WHERE p.queue = q AND p.paused_at IS NOT NULL)
    UNION ALL
    SELECT l.queue, (SELECT max(j.priority) FROM holdfast_jobs j
                      WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority < l.priority)
      FROM every_lane l WHERE l.priority IS NOT NULL),
  lanes AS MATERIALIZED (
    SELECT h.queue, h.priority
      FROM (SELECT l.queue, l.priority, (SELECT min(j.due_at) FROM holdfast_jobs j
               WHERE j.due_at IS NOT NULL AND j.parked IS NULL AND j.queue = l.queue AND j.priority = l.priority) AS head
              FROM every_lane l WHERE l.priority IS NOT NULL) h
     WHERE h.head <= (SELECT now FROM t)
     ORDER BY extract(epoch FROM h.head)::double precision - h.priority * (SELECT step FROM f) LIMIT 16),
  best AS MATERIALIZED (
    SELECT j.job_id, extract(epoch FROM j.due_at)::double precision - l.priority * (SELECT step FROM f) AS rank
      FROM lanes l CROSS JOIN LATERAL (
        SELECT job_id, due_at FROM holdfast_jobs
         WHERE due_at IS NOT NULL AND parked IS NULL AND queue = l.queue AND priority = l.priority
           AND due_at <= (SELECT now FROM t)
           AND operation <> ALL (ARRAY(SELECT substr(w.name, 11) FROM holdfast_switches w
                                        WHERE w.state = 'on' AND starts_with(w.name, 'operation:')))
           AND (deadline_at IS NULL OR deadline_at > (SELECT now FROM t))
         ORDER BY due_at, job_id LIMIT (SELECT :n::bigint * 4)) j
     ORDER BY rank, j.job_id LIMIT (SELECT :n::bigint * 4))
SELECT j.job_id
  FROM best b JOIN holdfast_jobs j ON j.job_id = b.job_id
 WHERE j.due_at IS NOT NULL AND j.parked IS NULL
 ORDER BY b.rank, b.job_id LIMIT (SELECT :n::bigint)
   FOR NO KEY UPDATE OF j SKIP LOCKED;
