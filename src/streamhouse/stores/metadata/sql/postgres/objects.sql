-- name: insert_object
-- Insert segment objects; their runs follow in the same transaction.
INSERT INTO segment_objects (key, size_bytes, created_at_ms)
SELECT new.key, new.size_bytes, new.created_at_ms
FROM unnest(:key::text[], :size_bytes::bigint[], :created_at_ms::bigint[]) AS new (key, size_bytes, created_at_ms);

-- name: doom_object
-- Mark for deletion, first half: store the keys of objects that no run references, nor needs for its producers.
INSERT INTO doomed_objects (key, size_bytes, doomed_at_ms)
SELECT o.key, o.size_bytes, given.now_ms
FROM unnest(:object_id::bigint[], :now_ms::bigint[]) AS given (object_id, now_ms)
JOIN segment_objects AS o ON o.object_id = given.object_id
WHERE NOT EXISTS (SELECT 1 FROM runs WHERE runs.object_id = o.object_id)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.producers_object_id = o.object_id);

-- name: drop_object
-- Second half of dooming: they are live objects no more.
DELETE FROM segment_objects AS o
WHERE o.object_id = ANY(:object_id::bigint[])
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.object_id = o.object_id)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.producers_object_id = o.object_id);

-- name: forget_object
-- The bytes are gone; so go the rows. Live objects have no row here, so they can't be forgotten.
DELETE FROM doomed_objects WHERE key = ANY(:key::text[]);
