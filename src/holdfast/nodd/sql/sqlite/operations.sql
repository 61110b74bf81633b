-- Statements for the commands.

-- name: known_objects
-- Which of these objects have a unit. rows: source_uri
SELECT DISTINCT u.source_uri FROM json_each(:rows) r CROSS JOIN nodd_units u ON u.source_uri = r.value ->> 0;
