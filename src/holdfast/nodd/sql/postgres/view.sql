-- The write-ahead record of each unit. Its outcome is what the commit stored with the unit; before the commit it comes
-- from the checkpoints. A failed status is shown only while no attempt runs, because that attempt has no verdict yet.
CREATE VIEW nodd_wal_records AS
SELECT u.wal_id, u.dataset, u.object_uri, u.provider, u.queue, u.event_time, u.time_range_start, u.time_range_end,
  CASE j.state WHEN 'running' THEN 'in_progress' ELSE j.state END AS status,
  u.attempts_before + j.attempts AS attempts, j.last_attempt_at,
  coalesce(j.last_error_code, u.error_before) AS last_error_code,
  coalesce(j.last_error_message, u.message_before) AS last_error_message,
  coalesce(u.integrity_status, (SELECT c.value::json ->> 'status' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'integrity-check'),
    CASE WHEN (j.last_error_code LIKE 'integrity_%' OR j.last_error_code = 'source_expired')
      AND j.state <> 'running' THEN 'failed' END, 'unknown') AS integrity_status,
  coalesce(u.metadata_status, (SELECT c.value::json ->> 'status' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'metadata-extract'),
    CASE WHEN j.last_error_code LIKE 'metadata_%' AND j.state <> 'running' THEN 'failed' END,
    'unknown') AS metadata_status,
  coalesce(u.stac_status, CASE WHEN j.last_error_code LIKE 'stac_%' AND j.state <> 'running' THEN 'failed' END,
    'unknown') AS stac_status,
  coalesce(u.provenance_status, CASE WHEN j.last_error_code LIKE 'prov%' AND j.state <> 'running' THEN 'failed' END,
    'unknown') AS provenance_status,
  u.stac_item_id, u.stac_collection_id, u.stac_item_href,
  coalesce(u.ingest_run_id, (SELECT c.value::json -> 'data' ->> 'ingest_run_id' FROM holdfast_checkpoints c
    WHERE c.job_id = j.job_id AND c.name = 'message-parse')) AS ingest_run_id,
  j.lease_owner AS worker_id, j.replay_reason, coalesce(u.created_before::timestamptz, l.created_at) AS created_at, j.updated_at,
  u.version_before + j.version AS version,
  u.generation AS ext_generation, u.supersedes AS ext_supersedes, u.superseded_by AS ext_superseded_by,
  j.quarantine_code AS ext_quarantine_code, j.job_id AS ext_job_id
  FROM nodd_units u JOIN holdfast_jobs j ON j.job_id = u.job_id JOIN holdfast_calls l ON l.job_id = u.job_id;
