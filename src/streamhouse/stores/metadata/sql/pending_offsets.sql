-- name: put_pending_offset
-- An offset that is decided with a transaction, whatever it was before; nothing happens when the partition is gone.
INSERT INTO pending_offsets (
    transactional_id, group_id, topic_id, partition, shard_topic_id, shard,
    committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT :transactional_id, :group_id, p.topic_id, p.partition, :shard_topic_id, :shard,
       :committed_offset, :leader_epoch, :metadata, :committed_at_ms, :expires_at_ms
FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
ON CONFLICT (transactional_id, group_id, topic_id, partition) DO UPDATE SET
    shard_topic_id = excluded.shard_topic_id, shard = excluded.shard,
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: commit_pending_offsets
-- First half of deciding offsets: they count, where their group and partition are still there.
INSERT INTO committed_offsets (
    group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT o.group_id, o.topic_id, o.partition, o.committed_offset, o.leader_epoch, o.metadata, o.committed_at_ms,
       o.expires_at_ms
FROM pending_offsets AS o
JOIN partitions AS p ON p.topic_id = o.topic_id AND p.partition = o.partition
JOIN consumer_groups AS g
  ON g.topic_id = o.shard_topic_id AND g.partition = o.shard AND g.group_id = o.group_id
WHERE o.transactional_id = :transactional_id
ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: drop_pending_offsets
-- Second half of deciding offsets: none is pending any more.
DELETE FROM pending_offsets WHERE transactional_id = :transactional_id;

-- name: pending_of_group
-- Where a group has offsets that are not decided.
SELECT DISTINCT group_id, topic_id, partition FROM pending_offsets WHERE group_id = :group_id;

-- name: find_pending
-- Which of the partitions in a JSON array of [topic id, partition] a group has offsets in that are not decided.
SELECT DISTINCT o.group_id, o.topic_id, o.partition
FROM json_each(:partitions) AS wanted
JOIN pending_offsets AS o
  ON o.group_id = :group_id AND o.topic_id = wanted.value ->> 0 AND o.partition = CAST(wanted.value ->> 1 AS INTEGER);

-- name: drop_pending_of_group
-- Part of deleting a group.
DELETE FROM pending_offsets WHERE group_id = :group_id;

-- name: drop_pending_of_topic
-- Part of deleting a topic: nobody's place in it means anything any more.
DELETE FROM pending_offsets WHERE topic_id = :topic_id;

-- name: drop_pending_of_shards
-- Part of deleting the internal topic: the offsets of its shards' groups.
DELETE FROM pending_offsets
WHERE group_id IN (SELECT g.group_id FROM consumer_groups AS g WHERE g.topic_id = :topic_id);
