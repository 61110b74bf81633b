-- Statements of `nodd check`: pages of units, items, observations and rejected bodies, and rules about the whole ledger.
-- They write nothing, and do not read JSON texts: a damaged text must not keep other rows from being checked.

-- name: observations_to_check
SELECT o.observation, o.files, o.version FROM nodd_observations o
 WHERE o.observation > :after ORDER BY o.observation LIMIT :n;

-- name: rejected_to_check
SELECT r.sha256, r.body, r.times, r.first_at, r.last_at, r.replayed_at, r.fate FROM nodd_rejected r
 WHERE r.sha256 > :after ORDER BY r.sha256 LIMIT :n;

-- name: jobs_beside_units
-- Jobs that carry no unit: each replaces another, or was replaced.
SELECT j.job_id, c.client, c.key, c.replaces, c.payload,
  j.state = 'succeeded' OR coalesce(j.status, '') = 'COMMITTED'
  FROM holdfast_jobs j {with_call}
 WHERE j.job_id > :after AND j.operation = :operation
   AND NOT EXISTS (SELECT 1 FROM nodd_units u WHERE u.job_id = j.job_id)
 ORDER BY j.job_id LIMIT :n;

-- name: written_before_commit
-- Items and provenance of units whose job has not committed.
SELECT w.kind, w.id, w.wal_id, w.job_id, w.state
  FROM (SELECT 'ITEM' AS kind, i.item_id AS id, u.wal_id, u.job_id, j.state
          FROM nodd_items i JOIN nodd_units u ON u.wal_id = i.wal_id JOIN holdfast_jobs j ON j.job_id = u.job_id
         WHERE j.state <> 'succeeded' AND coalesce(j.status, '') <> 'COMMITTED'
        UNION ALL
        SELECT 'UNIT', u.wal_id, u.wal_id, u.job_id, j.state
          FROM nodd_units u JOIN holdfast_jobs j ON j.job_id = u.job_id
         WHERE j.state <> 'succeeded' AND coalesce(j.status, '') <> 'COMMITTED'
           AND EXISTS (SELECT 1 FROM nodd_provenance p WHERE p.wal_id = u.wal_id)) w
 ORDER BY w.kind, w.id LIMIT :n;

-- name: parts_without_units
SELECT p.kind, p.id, p.missing
  FROM (SELECT 'ITEM' AS kind, i.item_id AS id, i.wal_id AS missing FROM nodd_items i
         WHERE NOT EXISTS (SELECT 1 FROM nodd_units u WHERE u.wal_id = i.wal_id)
        UNION ALL SELECT 'PROVENANCE', n.record_id, n.wal_id FROM nodd_provenance n
         WHERE NOT EXISTS (SELECT 1 FROM nodd_units u WHERE u.wal_id = n.wal_id)
        UNION ALL SELECT 'UNIT', n.wal_id, n.supersedes FROM nodd_units n
         WHERE n.generation = 1 AND n.supersedes IS NOT NULL
           AND NOT EXISTS (SELECT 1 FROM nodd_units u WHERE u.wal_id = n.supersedes)) p
 ORDER BY p.kind, p.id LIMIT :n;

-- name: miscounted_admissions
SELECT c.dataset, sum(c.counted), sum(c.found)
  FROM (SELECT dataset, n AS counted, 0 AS found FROM nodd_counts WHERE fate = :fate
        UNION ALL SELECT dataset, 0, count(*) FROM nodd_units GROUP BY dataset) c
 GROUP BY c.dataset HAVING sum(c.counted) <> sum(c.found) ORDER BY c.dataset LIMIT :n;

-- name: broken_generations
-- Each generation but the first supersedes the one before it, and each but the last is superseded by the one after it.
SELECT g.wal_id, g.generation, g.number_before, g.supersedes, g.before, g.superseded_by, g.after
  FROM (SELECT u.wal_id, u.generation, u.supersedes, u.superseded_by, lag(u.wal_id) OVER w AS before,
          coalesce(lag(u.generation) OVER w, 0) AS number_before, lead(u.wal_id) OVER w AS after
          FROM nodd_units u WINDOW w AS (PARTITION BY u.source_uri, u.time_range_start ORDER BY u.generation)) g
 WHERE g.generation <> g.number_before + 1 OR (g.generation > 1 AND g.supersedes IS DISTINCT FROM g.before)
    OR g.superseded_by IS DISTINCT FROM g.after
 ORDER BY g.wal_id LIMIT :n;
