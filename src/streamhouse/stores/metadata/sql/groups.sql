-- name: shard_commits
-- The last commits of the shards in a JSON array of [topic id, partition].
SELECT s.topic_id, s.partition, s.epoch, s.sequence
FROM json_each(:partitions) AS requested
JOIN group_shards AS s ON s.topic_id = requested.value ->> 0 AND s.partition = CAST(requested.value ->> 1 AS INTEGER);

-- name: put_shard_commit
-- Store a shard's last commit, in the same transaction.
INSERT INTO group_shards (topic_id, partition, epoch, sequence) VALUES (:topic_id, :partition, :epoch, :sequence)
ON CONFLICT (topic_id, partition) DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence;

-- name: put_group
-- Insert or replace a group.
INSERT INTO consumer_groups (
    topic_id, partition, group_id, generation, protocol_type, protocol, leader, changed_at_ms, members
) VALUES (
    :topic_id, :partition, :group_id, :generation, :protocol_type, :protocol, :leader, :changed_at_ms, :members
)
ON CONFLICT (topic_id, partition, group_id) DO UPDATE SET
    generation = excluded.generation, protocol_type = excluded.protocol_type, protocol = excluded.protocol,
    leader = excluded.leader, changed_at_ms = excluded.changed_at_ms, members = excluded.members;

-- name: groups_of_shards
-- The groups of the shards in a JSON array of [topic id, partition].
SELECT g.topic_id, g.partition, g.group_id, g.generation, g.protocol_type, g.protocol, g.leader, g.changed_at_ms,
       g.members
FROM json_each(:partitions) AS requested
JOIN consumer_groups AS g ON g.topic_id = requested.value ->> 0 AND g.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY g.topic_id, g.partition, g.group_id;

-- name: drop_group
-- Delete a group, unless it has committed or pending offsets.
DELETE FROM consumer_groups
WHERE topic_id = :topic_id AND partition = :partition AND group_id = :group_id
  AND NOT EXISTS (SELECT 1 FROM committed_offsets AS o WHERE o.group_id = consumer_groups.group_id)
  AND NOT EXISTS (SELECT 1 FROM pending_offsets AS o WHERE o.group_id = consumer_groups.group_id);

-- name: groups_to_review
-- Groups of the shards with an old offset, an expired one, or neither committed nor pending offsets.
SELECT g.group_id
FROM json_each(:partitions) AS requested
JOIN consumer_groups AS g ON g.topic_id = requested.value ->> 0 AND g.partition = CAST(requested.value ->> 1 AS INTEGER)
WHERE (
       NOT EXISTS (SELECT 1 FROM committed_offsets AS o WHERE o.group_id = g.group_id)
       AND NOT EXISTS (SELECT 1 FROM pending_offsets AS o WHERE o.group_id = g.group_id)
   )
   OR EXISTS (
       SELECT 1 FROM committed_offsets AS o
       WHERE o.group_id = g.group_id AND (o.committed_at_ms <= :before_ms OR o.expires_at_ms <= :now_ms)
   )
ORDER BY g.group_id;

-- name: drop_groups_of_topic
-- Part of deleting the internal topic: its shards' groups.
DELETE FROM consumer_groups WHERE topic_id = :topic_id;

-- name: drop_shards_of_topic
-- Part of deleting the internal topic: its shards' last commits.
DELETE FROM group_shards WHERE topic_id = :topic_id;

-- name: put_group_lag
-- Insert or replace the lag history of a group.
INSERT INTO group_lag (group_id, at_ms, history) VALUES (:group_id, :at_ms, :history)
ON CONFLICT (group_id) DO UPDATE SET at_ms = excluded.at_ms, history = excluded.history;

-- name: group_lags
-- Lag histories of the groups in a JSON array of [group id].
SELECT l.group_id, l.history
FROM json_each(:group_ids) AS requested
JOIN group_lag AS l ON l.group_id = requested.value ->> 0
ORDER BY l.group_id;

-- name: forget_group_lag
-- Part of deleting a group.
DELETE FROM group_lag WHERE group_id = :group_id;

-- name: forget_old_group_lags
-- Delete lag histories that were not updated for long.
DELETE FROM group_lag WHERE at_ms < :before_ms;
