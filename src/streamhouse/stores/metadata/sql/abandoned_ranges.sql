-- name: abandon_ranges
-- Remember, for every lease of a dead session, which offsets it may have given to records that nobody can read now.
INSERT INTO abandoned_ranges (session_id, topic_id, partition, epoch, from_offset, until_offset)
SELECT holder, topic_id, partition, epoch, flushed_end,
       CASE WHEN reserved_until > flushed_end THEN reserved_until ELSE flushed_end END
FROM partitions WHERE holder = :holder;

-- name: abandoned_of_session
-- What a dead session may have given away.
SELECT session_id, topic_id, partition, epoch, from_offset, until_offset
FROM abandoned_ranges WHERE session_id = :session_id
ORDER BY topic_id, partition;

-- name: abandoned_sessions
-- Which dead sessions have a disk that may hold records, and of how many partitions; for whoever looks after the cluster.
SELECT session_id, COUNT(*) AS partitions
FROM abandoned_ranges WHERE until_offset > from_offset
GROUP BY session_id ORDER BY session_id;

-- name: forget_abandoned
-- Its disk came back, and what it held was appended again.
DELETE FROM abandoned_ranges WHERE session_id = :session_id;

-- name: drop_abandoned_of_topic
-- Part of deleting a topic, before its partitions.
DELETE FROM abandoned_ranges WHERE topic_id = :topic_id;
