-- name: hold_transaction
-- As the shared statement; locks the row.
SELECT transactional_id, producer_id, producer_epoch, previous_id, previous_epoch, marked_id, marked_epoch, timeout_ms,
       state, number, started_at_ms, changed_at_ms, partitions
FROM transactions WHERE transactional_id = :transactional_id
FOR UPDATE;

-- name: put_pending_offset
-- Offsets that are decided with a transaction; the last one counts where a place is named twice, and those of partitions
-- that are gone, or go right now, are passed over.
INSERT INTO pending_offsets (
    transactional_id, group_id, topic_id, partition, shard_topic_id, shard,
    committed_offset, leader_epoch, metadata, committed_at_ms, expires_at_ms
)
SELECT new.transactional_id, new.group_id, p.topic_id, p.partition, new.shard_topic_id, new.shard,
       new.committed_offset, new.leader_epoch, new.metadata, new.committed_at_ms, new.expires_at_ms
FROM (
    SELECT DISTINCT ON (given.topic_id, given.partition) given.*
    FROM unnest(
        :transactional_id::text[], :group_id::text[], :topic_id::text[], :partition::integer[],
        :shard_topic_id::text[], :shard::integer[], :committed_offset::bigint[],
        :leader_epoch::integer[], :metadata::text[], :committed_at_ms::bigint[], :expires_at_ms::bigint[]
    ) WITH ORDINALITY AS given (
        transactional_id, group_id, topic_id, partition,
        shard_topic_id, shard, committed_offset,
        leader_epoch, metadata, committed_at_ms, expires_at_ms, place
    )
    ORDER BY given.topic_id, given.partition, given.place DESC
) AS new
JOIN partitions AS p ON p.topic_id = new.topic_id AND p.partition = new.partition
ORDER BY p.topic_id, p.partition
FOR KEY SHARE OF p
ON CONFLICT (transactional_id, group_id, topic_id, partition) DO UPDATE SET
    shard_topic_id = excluded.shard_topic_id, shard = excluded.shard,
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: commit_pending_offsets
-- As the shared statement; neither group nor partition goes meanwhile.
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
ORDER BY p.topic_id, p.partition, o.group_id
FOR KEY SHARE OF p, g
ON CONFLICT (group_id, topic_id, partition) DO UPDATE SET
    committed_offset = excluded.committed_offset, leader_epoch = excluded.leader_epoch, metadata = excluded.metadata,
    committed_at_ms = excluded.committed_at_ms, expires_at_ms = excluded.expires_at_ms;

-- name: insert_aborted
-- Aborted transactions, in the transaction that publishes the runs with their markers.
INSERT INTO aborted_transactions (topic_id, partition, last_offset, first_offset, producer_id)
SELECT new.topic_id, new.partition, new.last_offset, new.first_offset, new.producer_id
FROM unnest(
    :topic_id::text[], :partition::integer[], :last_offset::bigint[], :first_offset::bigint[], :producer_id::bigint[]
) AS new (topic_id, partition, last_offset, first_offset, producer_id)
ON CONFLICT (topic_id, partition, last_offset) DO NOTHING;

-- name: aborted_of
-- As the shared statement, with one walk of the primary key for each.
SELECT a.topic_id, a.partition, a.last_offset, a.first_offset, a.producer_id
FROM json_each(:from_offsets) AS requested
CROSS JOIN LATERAL (
    SELECT next_ones.* FROM aborted_transactions AS next_ones
    WHERE next_ones.topic_id = requested.value ->> 0 AND next_ones.partition = CAST(requested.value ->> 1 AS INTEGER)
      AND next_ones.last_offset >= CAST(requested.value ->> 2 AS BIGINT)
    ORDER BY next_ones.last_offset LIMIT :limit
) AS a
ORDER BY a.topic_id, a.partition, a.last_offset;

-- name: drop_aborted_below
-- As the shared statement, for many partitions.
DELETE FROM aborted_transactions AS a
WHERE a.ctid = ANY(ARRAY(
    SELECT gone.place
    FROM unnest(:topic_id::text[], :partition::integer[], :limit::bigint[]) AS given (topic_id, partition, most)
    JOIN partitions AS p ON p.topic_id = given.topic_id AND p.partition = given.partition
    CROSS JOIN LATERAL (
        SELECT old.ctid AS place FROM aborted_transactions AS old
        WHERE old.topic_id = given.topic_id AND old.partition = given.partition AND old.last_offset < p.log_start
        ORDER BY old.last_offset LIMIT given.most
    ) AS gone
))
RETURNING a.topic_id, a.partition;
