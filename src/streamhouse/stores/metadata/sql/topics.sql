-- name: same_topics
-- The topics that share the id or the name: at most two.
SELECT topic_id FROM topics WHERE topic_id = :topic_id
UNION
SELECT topic_id FROM topics WHERE name = :name;

-- name: insert_topic
-- A new topic; its partitions follow in the same transaction.
INSERT INTO topics (topic_id, name, partitions, configs, created_at_ms)
VALUES (:topic_id, :name, :partitions, :configs, :created_at_ms);

-- name: list_topics
-- Every topic, by name.
SELECT topic_id, name, partitions, configs, created_at_ms FROM topics ORDER BY name;

-- name: delete_topic
-- Last step of deleting a topic, after its runs and partitions.
DELETE FROM topics WHERE topic_id = :topic_id;
