-- name: find_partitions
-- As the shared statement, and locks them until the end; in one order, so that two calls can't
-- wait for each other.
SELECT p.topic_id, p.partition, p.epoch, p.holder, p.log_start, p.flushed_end, p.pinned_to, p.replicas,
       p.reserved_until
FROM json_each(:partitions) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0 AND p.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY p.topic_id, p.partition
FOR NO KEY UPDATE OF p;

-- name: take_lease
-- Give free leases to a session under a new epoch.
UPDATE partitions AS p SET holder = new.holder, epoch = new.epoch
FROM unnest(:topic_id::text[], :partition::integer[], :holder::text[], :epoch::bigint[])
    AS new (topic_id, partition, holder, epoch)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition AND p.holder IS NULL;

-- name: release_lease
-- Free leases of a session; the epochs stay.
UPDATE partitions AS p SET holder = NULL
FROM unnest(:topic_id::text[], :partition::integer[], :holder::text[]) AS given (topic_id, partition, holder)
WHERE p.topic_id = given.topic_id AND p.partition = given.partition AND p.holder = given.holder;

-- name: pin_partition
-- Where partitions belong, whatever else would decide; null: nowhere in particular.
UPDATE partitions AS p SET pinned_to = new.pinned_to, replicas = new.replicas
FROM unnest(:topic_id::text[], :partition::integer[], :pinned_to::integer[], :replicas::text[])
    AS new (topic_id, partition, pinned_to, replicas)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition;

-- name: reserve_offsets
-- Offsets below these may be given to records by the holder; never back.
UPDATE partitions AS p SET reserved_until = new.reserved_until
FROM unnest(:topic_id::text[], :partition::integer[], :holder::text[], :reserved_until::bigint[])
    AS new (topic_id, partition, holder, reserved_until)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition
  AND p.holder = new.holder AND p.reserved_until < new.reserved_until;

-- name: skip_lost
-- Continue a log after offsets that may belong to lost records of a damaged WAL.
UPDATE partitions AS p SET flushed_end = new.continue_at
FROM unnest(:topic_id::text[], :partition::integer[], :holder::text[], :continue_at::bigint[])
    AS new (topic_id, partition, holder, continue_at)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition
  AND p.holder = new.holder AND p.flushed_end < new.continue_at;

-- name: advance_flushed_end
-- Publish offsets of many partitions under the guard of promise 4: holder, epoch and expected next offset.
UPDATE partitions AS p SET flushed_end = new.flushed_end, size_bytes = p.size_bytes + new.added_bytes
FROM unnest(
    :topic_id::text[], :partition::integer[], :holder::text[], :epoch::bigint[], :expected_end::bigint[],
    :flushed_end::bigint[], :added_bytes::bigint[]
) AS new (topic_id, partition, holder, epoch, expected_end, flushed_end, added_bytes)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition
  AND p.holder = new.holder AND p.epoch = new.epoch AND p.flushed_end = new.expected_end;

-- name: advance_log_start
-- Move log starts forward: never back, never past the flushed end.
UPDATE partitions AS p SET log_start = LEAST(new.log_start, p.flushed_end)
FROM unnest(:topic_id::text[], :partition::integer[], :log_start::bigint[]) AS new (topic_id, partition, log_start)
WHERE p.topic_id = new.topic_id AND p.partition = new.partition AND p.log_start < new.log_start;

-- name: shrink_partition
-- Runs of the partitions were dropped.
UPDATE partitions AS p SET size_bytes = p.size_bytes - gone.dropped_bytes
FROM unnest(:topic_id::text[], :partition::integer[], :dropped_bytes::bigint[])
    AS gone (topic_id, partition, dropped_bytes)
WHERE p.topic_id = gone.topic_id AND p.partition = gone.partition;
