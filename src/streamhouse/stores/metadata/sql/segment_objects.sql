-- name: known_among
-- The subset of a JSON array of [key] that was published, live or marked for deletion.
SELECT o.key FROM json_each(:keys) AS requested JOIN segment_objects AS o ON o.key = requested.value ->> 0
UNION ALL
SELECT d.key FROM json_each(:keys) AS requested JOIN doomed_objects AS d ON d.key = requested.value ->> 0;

-- name: insert_object
-- Insert a segment object; its runs follow in the same transaction.
INSERT INTO segment_objects (key, size_bytes, created_at_ms) VALUES (:key, :size_bytes, :created_at_ms);

-- name: doom_object
-- Mark for deletion, first half: store the key of an object that no run references, nor needs for its producers.
INSERT INTO doomed_objects (key, size_bytes, doomed_at_ms)
SELECT o.key, o.size_bytes, :now_ms FROM segment_objects AS o
WHERE o.object_id = :object_id
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.object_id = o.object_id)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.producers_object_id = o.object_id);

-- name: drop_object
-- Mark for deletion, second half: delete the row of the live object.
DELETE FROM segment_objects
WHERE object_id = :object_id
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.object_id = segment_objects.object_id)
  AND NOT EXISTS (SELECT 1 FROM runs WHERE runs.producers_object_id = segment_objects.object_id);

-- name: known_objects
-- Every key that any row names, in one snapshot because it is one statement.
SELECT key FROM segment_objects
UNION ALL
SELECT key FROM doomed_objects;

-- name: objects_after
-- Live objects by number, to look at them page by page.
SELECT object_id, key, size_bytes FROM segment_objects WHERE object_id > :after ORDER BY object_id LIMIT :limit;

-- name: newest_objects
-- The live objects that were registered last.
SELECT object_id, key, size_bytes FROM segment_objects ORDER BY object_id DESC LIMIT :limit;

-- name: ranges_of_object
-- Ranges of a live object; one row without a partition if only its producers' state is needed.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset
FROM segment_objects AS o
LEFT JOIN runs AS r ON r.object_id = o.object_id
WHERE o.key = :key
ORDER BY r.topic_id, r.partition, r.base_offset;
