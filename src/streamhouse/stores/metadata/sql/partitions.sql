-- name: insert_partitions
-- The partitions [first, partitions) of a topic. They start at the newest epoch given to anybody, so that a re-created
-- topic never shows an older one.
WITH RECURSIVE numbers (partition) AS (
    SELECT CAST(:first AS INTEGER)
    UNION ALL
    SELECT partition + 1 FROM numbers WHERE partition + 1 < :partitions
)
INSERT INTO partitions (topic_id, partition, epoch)
SELECT :topic_id, numbers.partition, counters.value FROM numbers, counters WHERE counters.name = 'epoch';

-- name: partitions_of_topics
-- Every partition of the topics in a JSON array of [topic id].
SELECT p.topic_id, p.partition, p.epoch, p.holder, p.log_start, p.flushed_end, p.pinned_to, p.replicas,
       p.reserved_until
FROM json_each(:topic_ids) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0
ORDER BY p.topic_id, p.partition;

-- name: find_partitions
-- The partitions in a JSON array of [topic id, partition]; those that do not exist are left out.
SELECT p.topic_id, p.partition, p.epoch, p.holder, p.log_start, p.flushed_end, p.pinned_to, p.replicas,
       p.reserved_until
FROM json_each(:partitions) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0 AND p.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY p.topic_id, p.partition;

-- name: existing_partitions
-- The partitions in a JSON array of [topic id, partition] that exist; takes no locks.
SELECT p.topic_id, p.partition
FROM json_each(:partitions) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0 AND p.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY p.topic_id, p.partition;

-- name: partitions_held_by
-- The leases of a session.
SELECT topic_id, partition, epoch, holder, log_start, flushed_end, pinned_to, replicas, reserved_until
FROM partitions WHERE holder = :holder
ORDER BY topic_id, partition;

-- name: take_lease
-- Give a free lease to a session under a new epoch; no-op if it is held.
UPDATE partitions SET holder = :holder, epoch = :epoch
WHERE topic_id = :topic_id AND partition = :partition AND holder IS NULL;

-- name: release_lease
-- Free one lease of a session; the epoch stays.
UPDATE partitions SET holder = NULL
WHERE topic_id = :topic_id AND partition = :partition AND holder = :holder;

-- name: free_leases
-- Free all leases of a session that ends; returns their partitions.
UPDATE partitions SET holder = NULL WHERE holder = :holder RETURNING topic_id;

-- name: pin_partition
-- Pin a partition to a preferred leader; null: the default.
UPDATE partitions SET pinned_to = :pinned_to, replicas = :replicas
WHERE topic_id = :topic_id AND partition = :partition;

-- name: reserve_offsets
-- Reserve offsets for the leader; never decreases.
UPDATE partitions SET reserved_until = :reserved_until
WHERE topic_id = :topic_id AND partition = :partition AND holder = :holder AND reserved_until < :reserved_until;

-- name: skip_reserved
-- Continue the logs of a dead session's leases after its reserved offsets, which are never used again.
UPDATE partitions SET flushed_end = reserved_until WHERE holder = :holder AND reserved_until > flushed_end;

-- name: skip_lost
-- Continue a log after offsets that may belong to lost records of a damaged WAL.
UPDATE partitions SET flushed_end = :continue_at
WHERE topic_id = :topic_id AND partition = :partition AND holder = :holder AND flushed_end < :continue_at;

-- name: advance_flushed_end
-- Publish offsets under the guard of promise 4: the lease's holder, its epoch and the expected next offset.
UPDATE partitions SET flushed_end = :flushed_end, size_bytes = size_bytes + :added_bytes
WHERE topic_id = :topic_id AND partition = :partition
  AND holder = :holder AND epoch = :epoch AND flushed_end = :expected_end;

-- name: advance_log_start
-- Move a log start forward: never back, never past the flushed end.
UPDATE partitions SET log_start = CASE WHEN :log_start < flushed_end THEN :log_start ELSE flushed_end END
WHERE topic_id = :topic_id AND partition = :partition AND log_start < :log_start;

-- name: shrink_partition
-- Subtract dropped runs from a partition's size.
UPDATE partitions SET size_bytes = size_bytes - :dropped_bytes
WHERE topic_id = :topic_id AND partition = :partition;

-- name: sizes_of_topics
-- Bytes of the partitions of the topics in a JSON array of [topic id]. Where everything was deleted only the newest run is
-- left, and that for its producers' state alone.
SELECT p.topic_id, p.partition, p.size_bytes
FROM json_each(:topic_ids) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0
WHERE p.log_start < p.flushed_end;

-- name: delete_partitions
-- Part of deleting a topic, after its runs.
DELETE FROM partitions WHERE topic_id = :topic_id;
