-- name: lock_node_ids
-- One session at a time may choose its node id.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: node ids', 0));

-- name: lock_topic
-- Nobody adds partitions to the topic, or deletes it.
SELECT 1 FROM topics WHERE topic_id = :topic_id FOR UPDATE;

-- name: lock_sessions
-- Sessions of a JSON array of [session id]: whoever acts as one of them has finished, and nobody begins.
SELECT 1 FROM json_each(:session_ids) AS wanted
JOIN sessions AS s ON s.session_id = wanted.value ->> 0
ORDER BY s.session_id
FOR UPDATE OF s;

-- name: lock_partitions
-- Nobody else changes the partitions in a JSON array of [topic id, partition].
SELECT 1 FROM json_each(:partitions) AS wanted
JOIN partitions AS p ON p.topic_id = wanted.value ->> 0 AND p.partition = CAST(wanted.value ->> 1 AS INTEGER)
ORDER BY p.topic_id, p.partition
FOR NO KEY UPDATE OF p;

-- name: lock_partitions_of_topic
-- Nobody changes the topic's partitions, publishes runs of them or commits offsets in them.
SELECT 1 FROM partitions WHERE topic_id = :topic_id ORDER BY partition FOR UPDATE;

-- name: lock_partitions_held_by
-- Nobody else changes the partitions that a session holds.
SELECT 1 FROM partitions WHERE holder = :holder ORDER BY topic_id, partition FOR NO KEY UPDATE;

-- name: lock_objects
-- Nobody else decides whether the objects in a JSON array of [object id] are still needed.
SELECT 1 FROM json_each(:object_ids) AS wanted
JOIN segment_objects AS o ON o.object_id = CAST(wanted.value ->> 0 AS BIGINT)
ORDER BY o.object_id
FOR UPDATE OF o;

-- name: lock_placing
-- Segments are placed, or replace others; no object is given up meanwhile.
SELECT pg_advisory_xact_lock_shared(hashtextextended('streamhouse: placing', 0));

-- name: lock_giving_up
-- Objects are given up; no segments are placed, and none replace others, meanwhile.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: placing', 0));

-- name: lock_schemas
-- One change of the schema registry at a time.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: schemas', 0));

-- name: lock_pipelines
-- One change of who owns which pipeline at a time, and of what tables, pipelines and workers there are.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: pipelines', 0));

-- name: lock_view
-- One change of a view's rows at a time.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: view ' || :name, 0));

-- name: lock_security
-- One change of users, keys, rules, roles and quotas at a time.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: security', 0));
