-- Statements of the static catalogue.

-- name: item_to_publish
SELECT i.dataset, i.href, i.item FROM nodd_items i WHERE i.item_id = :item_id;

-- name: datasets_to_publish
SELECT DISTINCT i.dataset FROM nodd_items i ORDER BY i.dataset;

-- name: days_to_publish
-- The directories of the items: a path without "/", the id and ".json", which are 42 characters.
SELECT DISTINCT substr(i.href, 1, length(i.href) - 42) FROM nodd_items i WHERE i.dataset = :dataset;

-- name: items_of_day
SELECT i.item_id, i.href, i.item FROM nodd_items i
 WHERE i.dataset = :dataset AND i.href > :after AND i.href < :before ORDER BY i.href LIMIT :n;
