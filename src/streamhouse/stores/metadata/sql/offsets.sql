-- name: put_offset
-- Commit an offset; no-op if the partition doesn't exist.
INSERT INTO committed_offsets (
    group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT :group_id, p.topic_id, p.partition, :committed_offset, :leader_epoch, :metadata, :committed_at_ms, :expires_at_ms
FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: offsets_of_group
-- All committed offsets of a group.
SELECT group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
FROM committed_offsets WHERE group_id = :group_id
ORDER BY topic_id, partition;

-- name: find_offsets
-- Committed offsets of a group for the partitions in a JSON array of [topic id, partition].
SELECT o.group_id, o.topic_id, o.partition, o.committed_offset, o.leader_epoch, o.metadata, o.committed_at_ms,
       o.expires_at_ms
FROM json_each(:partitions) AS requested
JOIN committed_offsets AS o
  ON o.group_id = :group_id AND o.topic_id = requested.value ->> 0 AND o.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY o.topic_id, o.partition;

-- name: drop_offset
-- Delete a committed offset; with a commit time only if it is that of the row.
DELETE FROM committed_offsets
WHERE group_id = :group_id AND topic_id = :topic_id AND partition = :partition
  AND committed_at_ms = COALESCE(:committed_at_ms, committed_at_ms);

-- name: drop_offsets_of_group
-- Part of deleting a group.
DELETE FROM committed_offsets WHERE group_id = :group_id;

-- name: drop_offsets_of_topic
-- Part of deleting a topic: the offsets committed for it.
DELETE FROM committed_offsets WHERE topic_id = :topic_id;

-- name: drop_offsets_of_shards
-- Part of deleting the internal topic: the offsets of its shards' groups.
DELETE FROM committed_offsets
WHERE group_id IN (SELECT g.group_id FROM consumer_groups AS g WHERE g.topic_id = :topic_id);
