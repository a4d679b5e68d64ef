-- Consumer groups and their committed offsets.

-- The last commit of a shard's groups: the lease's epoch, and its number in that epoch.
CREATE TABLE group_shards (
    topic_id  TEXT    NOT NULL,
    partition INTEGER NOT NULL,
    epoch     INTEGER NOT NULL,
    sequence  INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition)
) STRICT, WITHOUT ROWID;

CREATE TABLE consumer_groups (
    topic_id      TEXT    NOT NULL, -- the shard: a partition of the internal topic
    partition     INTEGER NOT NULL,
    group_id      TEXT    NOT NULL,
    generation    INTEGER NOT NULL CHECK (generation >= 0),
    protocol_type TEXT,
    protocol      TEXT,
    leader        TEXT,
    changed_at_ms INTEGER NOT NULL,
    members       BLOB    NOT NULL,
    PRIMARY KEY (topic_id, partition, group_id)
) STRICT;

CREATE TABLE committed_offsets (
    group_id         TEXT    NOT NULL,
    topic_id         TEXT    NOT NULL, -- the topic that is read
    partition        INTEGER NOT NULL,
    committed_offset INTEGER NOT NULL,
    leader_epoch     INTEGER NOT NULL,
    metadata         TEXT    NOT NULL,
    committed_at_ms  INTEGER NOT NULL,
    expires_at_ms    INTEGER,
    PRIMARY KEY (group_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) STRICT, WITHOUT ROWID;

-- For deleting a topic. Commits of known offsets don't touch it.
CREATE INDEX committed_offsets_by_topic ON committed_offsets (topic_id, partition);
