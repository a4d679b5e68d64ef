-- name: rename_cluster
-- The database takes the name of the cluster whose objects it registers.
INSERT INTO cluster (only_row, cluster_id) VALUES (1, :cluster_id)
ON CONFLICT (only_row) DO UPDATE SET cluster_id = excluded.cluster_id;

-- name: raise_counter
-- Raise a counter; never decreases.
UPDATE counters SET value = :value WHERE name = :name AND value < :value;

-- name: adopt_aborted
-- A transaction that was aborted, unless it is known.
INSERT INTO aborted_transactions (topic_id, partition, last_offset, first_offset, producer_id)
VALUES (:topic_id, :partition, :last_offset, :first_offset, :producer_id)
ON CONFLICT DO NOTHING;

-- name: raise_latest
-- Raise the running maximum of timestamps in runs after an inserted one.
UPDATE runs SET latest_so_far_ms = :latest_so_far_ms
WHERE topic_id = :topic_id AND partition = :partition AND base_offset > :base_offset
  AND latest_so_far_ms < :latest_so_far_ms;

-- name: adopt_end
-- Raise a partition's end and epoch; never decreases.
UPDATE partitions SET
    flushed_end = CASE WHEN flushed_end < :flushed_end THEN :flushed_end ELSE flushed_end END,
    epoch = CASE WHEN epoch < :epoch THEN :epoch ELSE epoch END,
    size_bytes = size_bytes + :added_bytes
WHERE topic_id = :topic_id AND partition = :partition;
