-- name: put_pending_offset
-- Insert or replace a pending offset of a transaction; no-op if the partition doesn't exist.
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
-- First half of committing a transaction: its pending offsets become committed, if group and partition exist.
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
-- Second half: delete the transaction's pending offsets.
DELETE FROM pending_offsets WHERE transactional_id = :transactional_id;

-- name: pending_of_group
-- Partitions with pending offsets of a group.
SELECT DISTINCT group_id, topic_id, partition FROM pending_offsets WHERE group_id = :group_id;

-- name: find_pending
-- The partitions in a JSON array of [topic id, partition] with pending offsets of a group.
SELECT DISTINCT o.group_id, o.topic_id, o.partition
FROM json_each(:partitions) AS requested
JOIN pending_offsets AS o
  ON o.group_id = :group_id AND o.topic_id = requested.value ->> 0 AND o.partition = CAST(requested.value ->> 1 AS INTEGER);

-- name: drop_pending_of_group
-- Part of deleting a group.
DELETE FROM pending_offsets WHERE group_id = :group_id;

-- name: drop_pending_of_topic
-- Part of deleting a topic: the offsets committed for it.
DELETE FROM pending_offsets WHERE topic_id = :topic_id;

-- name: drop_pending_of_shards
-- Part of deleting the internal topic: the offsets of its shards' groups.
DELETE FROM pending_offsets
WHERE group_id IN (SELECT g.group_id FROM consumer_groups AS g WHERE g.topic_id = :topic_id);
