-- Effects that an attempt stages for its commit.

-- name: put_provenance
-- records: record_id, kind, content
INSERT INTO nodd_provenance (record_id, wal_id, kind, content, created_at)
SELECT r ->> 0, :wal_id, r ->> 1, r ->> 2, :created_at FROM json_array_elements(:records::json) r
ON CONFLICT (record_id) DO NOTHING;
