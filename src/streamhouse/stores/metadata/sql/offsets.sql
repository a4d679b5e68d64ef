-- name: put_offset
-- Commit an offset, whatever was committed before; nothing happens when the partition is gone.
INSERT INTO committed_offsets (
    group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT :group_id, p.topic_id, p.partition, :committed_offset, :leader_epoch, :metadata, :committed_at_ms, :expires_at_ms
FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: offsets_of_group
-- Everything that a group has committed.
SELECT group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
FROM committed_offsets WHERE group_id = :group_id
ORDER BY topic_id, partition;

-- name: find_offsets
-- What a group has committed of the partitions in a JSON array of [topic id, partition].
SELECT o.group_id, o.topic_id, o.partition, o.committed_offset, o.leader_epoch, o.metadata, o.committed_at_ms,
       o.expires_at_ms
FROM json_each(:partitions) AS wanted
JOIN committed_offsets AS o
  ON o.group_id = :group_id AND o.topic_id = wanted.value ->> 0 AND o.partition = CAST(wanted.value ->> 1 AS INTEGER)
ORDER BY o.topic_id, o.partition;

-- name: drop_offset
-- Forget an offset; where a time of commit is given, only the one of that time.
DELETE FROM committed_offsets
WHERE group_id = :group_id AND topic_id = :topic_id AND partition = :partition
  AND committed_at_ms = COALESCE(:committed_at_ms, committed_at_ms);

-- name: drop_offsets_of_group
-- Part of deleting a group.
DELETE FROM committed_offsets WHERE group_id = :group_id;

-- name: drop_offsets_of_topic
-- Part of deleting a topic: nobody's place in it means anything any more.
DELETE FROM committed_offsets WHERE topic_id = :topic_id;

-- name: drop_offsets_of_shards
-- Part of deleting the internal topic: the offsets of its shards' groups.
DELETE FROM committed_offsets
WHERE group_id IN (SELECT g.group_id FROM consumer_groups AS g WHERE g.topic_id = :topic_id);
