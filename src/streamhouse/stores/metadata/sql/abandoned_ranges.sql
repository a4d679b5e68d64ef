-- name: abandon_ranges
-- Store, for every lease of a dead session, the offsets of records that may be lost.
INSERT INTO abandoned_ranges (session_id, topic_id, partition, epoch, from_offset, until_offset)
SELECT holder, topic_id, partition, epoch, flushed_end,
       CASE WHEN reserved_until > flushed_end THEN reserved_until ELSE flushed_end END
FROM partitions WHERE holder = :holder;

-- name: abandoned_of_session
-- The abandoned ranges of a session.
SELECT session_id, topic_id, partition, epoch, from_offset, until_offset
FROM abandoned_ranges WHERE session_id = :session_id
ORDER BY topic_id, partition;

-- name: abandoned_sessions
-- Dead sessions whose disks may hold records, with the number of their partitions; for operators.
SELECT session_id, COUNT(*) AS partitions
FROM abandoned_ranges WHERE until_offset > from_offset
GROUP BY session_id ORDER BY session_id;

-- name: forget_abandoned
-- Delete the ranges of a session whose records were appended again.
DELETE FROM abandoned_ranges WHERE session_id = :session_id;

-- name: drop_abandoned_of_topic
-- Part of deleting a topic, before its partitions.
DELETE FROM abandoned_ranges WHERE topic_id = :topic_id;
