-- Statements for the commands.

-- name: known_objects
-- The last known write of each of these objects. rows: source_uri
SELECT u.source_uri, u.etag, u.size FROM json_array_elements(:rows::json) r JOIN nodd_units u ON u.source_uri = r ->> 0
 WHERE u.superseded_by IS NULL;
