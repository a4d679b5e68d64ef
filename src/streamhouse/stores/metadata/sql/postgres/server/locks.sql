-- name: lock_node_ids
-- One session at a time may choose its node id.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: node ids', 0));

-- name: lock_topic
-- Lock a topic against more partitions and deletion.
SELECT 1 FROM topics WHERE topic_id = :topic_id FOR UPDATE;

-- name: lock_sessions
-- Lock the sessions of a JSON array of [session id]: waits for transactions of these sessions, and blocks new ones.
SELECT 1 FROM json_each(:session_ids) AS requested
JOIN sessions AS s ON s.session_id = requested.value ->> 0
ORDER BY s.session_id
FOR UPDATE OF s;

-- name: lock_partitions
-- Lock the partitions in a JSON array of [topic id, partition].
SELECT 1 FROM json_each(:partitions) AS requested
JOIN partitions AS p ON p.topic_id = requested.value ->> 0 AND p.partition = CAST(requested.value ->> 1 AS INTEGER)
ORDER BY p.topic_id, p.partition
FOR NO KEY UPDATE OF p;

-- name: lock_partitions_of_topic
-- Lock the topic's partitions against changes, runs and committed offsets.
SELECT 1 FROM partitions WHERE topic_id = :topic_id ORDER BY partition FOR UPDATE;

-- name: lock_partitions_held_by
-- Lock the partitions that a session holds.
SELECT 1 FROM partitions WHERE holder = :holder ORDER BY topic_id, partition FOR NO KEY UPDATE;

-- name: lock_objects
-- Lock the objects in a JSON array of [object id] against decisions about their deletion.
SELECT 1 FROM json_each(:object_ids) AS requested
JOIN segment_objects AS o ON o.object_id = CAST(requested.value ->> 0 AS BIGINT)
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
