-- name: put_shard_commit
-- Remember the last commit of shards, in the transaction that makes it.
INSERT INTO group_shards (topic_id, partition, epoch, sequence)
SELECT new.topic_id, new.partition, new.epoch, new.sequence
FROM unnest(:topic_id::text[], :partition::integer[], :epoch::bigint[], :sequence::bigint[])
    AS new (topic_id, partition, epoch, sequence)
ON CONFLICT (topic_id, partition) DO UPDATE SET epoch = excluded.epoch, sequence = excluded.sequence;

-- name: put_offset
-- Commit offsets; of duplicates the last one counts, and those of
-- partitions that don't exist, or are being deleted, are skipped.
INSERT INTO committed_offsets (
    group_id, topic_id, partition, committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT new.group_id, p.topic_id, p.partition, new.committed_offset, new.leader_epoch, new.metadata,
       new.committed_at_ms, new.expires_at_ms
FROM (
    SELECT DISTINCT ON (given.group_id, given.topic_id, given.partition) given.*
    FROM unnest(
        :group_id::text[], :topic_id::text[], :partition::integer[], :committed_offset::bigint[],
        :leader_epoch::integer[], :metadata::text[], :committed_at_ms::bigint[], :expires_at_ms::bigint[]
    ) WITH ORDINALITY AS given (
        group_id, topic_id, partition, committed_offset,
        leader_epoch, metadata, committed_at_ms, expires_at_ms, place
    )
    ORDER BY given.group_id, given.topic_id, given.partition, given.place DESC
) AS new
JOIN partitions AS p ON p.topic_id = new.topic_id AND p.partition = new.partition
ORDER BY p.topic_id, p.partition
FOR KEY SHARE OF p
ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: put_group_lag
-- Insert or replace the lag histories of groups.
INSERT INTO group_lag (group_id, at_ms, history)
SELECT new.group_id, new.at_ms, new.history
FROM unnest(:group_id::text[], :at_ms::bigint[], :history::bytea[]) AS new (group_id, at_ms, history)
ORDER BY new.group_id
ON CONFLICT (group_id) DO UPDATE SET at_ms = excluded.at_ms, history = excluded.history;
