-- How large partitions are, so that telling it doesn't need all their runs.

ALTER TABLE partitions ADD COLUMN size_bytes INTEGER NOT NULL DEFAULT 0 CHECK (size_bytes >= 0);

UPDATE partitions SET size_bytes = COALESCE(
    (SELECT SUM(r.length) FROM runs AS r WHERE r.topic_id = partitions.topic_id AND r.partition = partitions.partition),
    0
);
