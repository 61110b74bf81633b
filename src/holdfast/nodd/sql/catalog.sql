-- Statements of the static catalogue.

-- name: item_to_publish
SELECT i.href, i.item FROM nodd_items i WHERE i.item_id = :item_id;

-- name: items_to_publish
SELECT i.item_id, i.href, i.item FROM nodd_items i WHERE i.item_id > :after ORDER BY i.item_id LIMIT :n;
