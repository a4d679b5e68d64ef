-- name: runs_within
-- Runs that begin at offsets [base_offset, end_offset), to compare with those that are to be replaced.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.base_offset >= :base_offset AND r.base_offset < :end_offset
ORDER BY r.base_offset;

-- name: drop_runs_within
-- First half of replacing: the old runs go; returns the objects that may have no run left.
DELETE FROM runs
WHERE topic_id = :topic_id AND partition = :partition AND base_offset >= :base_offset AND base_offset < :end_offset
RETURNING object_id, producers_object_id;

-- name: latest_before
-- The largest timestamp of all runs below an offset.
SELECT latest_so_far_ms FROM runs
WHERE topic_id = :topic_id AND partition = :partition AND base_offset < :base_offset
ORDER BY base_offset DESC LIMIT 1;

-- name: insert_replacement
-- Second half of replacing: a run in the middle of the others. Those behind it may go on telling of a later timestamp
-- than there is: searches begin a little early for it, and still find what is there.
INSERT INTO runs (
    topic_id, partition, base_offset, end_offset, stored_base, epoch, object_id,
    position, length, index_position, index_length, records, max_timestamp_ms, latest_so_far_ms
) VALUES (
    :topic_id, :partition, :base_offset, :end_offset, :stored_base, :epoch,
    (SELECT o.object_id FROM segment_objects AS o WHERE o.key = :object_key),
    :position, :length, :index_position, :index_length, :records, :max_timestamp_ms, :latest_so_far_ms
);

-- name: mark_cleaned
-- Everything below the offset was compacted: never back, never past the flushed end.
UPDATE partitions SET cleaned_to = :cleaned_to
WHERE topic_id = :topic_id AND partition = :partition AND cleaned_to < :cleaned_to AND flushed_end >= :cleaned_to;

-- name: cleaned_of_topics
-- How far the partitions of the topics in a JSON array of [topic id] were compacted.
SELECT p.topic_id, p.partition, p.cleaned_to
FROM json_each(:topic_ids) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0
WHERE p.cleaned_to > 0;
