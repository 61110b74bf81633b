-- Effects that an attempt stages for its commit.

-- name: put_provenance
-- records: record_id, kind, content
INSERT INTO nodd_provenance (record_id, wal_id, kind, content, created_at)
SELECT r.value ->> 0, :wal_id, r.value ->> 1, r.value ->> 2, :created_at FROM json_each(:records) r WHERE true
ON CONFLICT (record_id) DO NOTHING;
