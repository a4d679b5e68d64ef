-- name: same_topics
-- Topics with this id or this name: at most two.
SELECT topic_id FROM topics WHERE topic_id = :topic_id
UNION
SELECT topic_id FROM topics WHERE name = :name;

-- name: insert_topic
-- A new topic, unless its id or its name is taken; its partitions follow in the same transaction.
INSERT INTO topics (topic_id, name, partitions, configs, created_at_ms)
VALUES (:topic_id, :name, :partitions, :configs, :created_at_ms)
ON CONFLICT DO NOTHING;

-- name: list_topics
-- Every topic, by name.
SELECT topic_id, name, partitions, configs, created_at_ms FROM topics ORDER BY name;

-- name: find_topic
-- One topic.
SELECT topic_id, name, partitions, configs, created_at_ms FROM topics WHERE topic_id = :topic_id;

-- name: alter_topic
-- Compare-and-set of settings; both sides are serialized with sorted names.
UPDATE topics SET configs = :configs WHERE topic_id = :topic_id AND configs = :expected;

-- name: grow_topic
-- Compare-and-set of the number of partitions; their rows follow in the same transaction.
UPDATE topics SET partitions = :to_count WHERE topic_id = :topic_id AND partitions = :from_count;

-- name: delete_topic
-- Last step of deleting a topic, after its runs and partitions.
DELETE FROM topics WHERE topic_id = :topic_id;
