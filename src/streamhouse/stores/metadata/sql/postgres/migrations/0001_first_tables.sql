-- All tables. What each column means stands in docs/formats/metadata-schema.md.
-- Texts are compared byte by byte, so that order and indexes don't depend on the server's locale. Rows that are updated
-- in place again and again leave room in their pages, so that an update needs no new index entry.

CREATE TABLE topics (
    topic_id      TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    name          TEXT    COLLATE "C" NOT NULL UNIQUE,
    partitions    INTEGER NOT NULL CHECK (partitions > 0),
    configs       TEXT    COLLATE "C" NOT NULL,
    created_at_ms BIGINT  NOT NULL
);

CREATE TABLE sessions (
    session_id    TEXT    COLLATE "C" NOT NULL PRIMARY KEY,
    node_id       INTEGER NOT NULL CHECK (node_id > 0),
    kafka_host    TEXT    NOT NULL,
    kafka_port    INTEGER NOT NULL,
    http_host     TEXT    NOT NULL,
    http_port     INTEGER NOT NULL,
    state         TEXT    COLLATE "C" NOT NULL CHECK (state IN ('live', 'recovering', 'ended')),
    started_at_ms BIGINT  NOT NULL,
    expires_at_ms BIGINT  NOT NULL,
    claim         BIGINT  NOT NULL DEFAULT 0 CHECK (claim >= 0),
    claimed_by    TEXT    COLLATE "C"
) WITH (fillfactor = 50);

-- Ended sessions stay, so that their ids never come back; only the others count for node ids.
CREATE UNIQUE INDEX sessions_by_node ON sessions (node_id) WHERE state <> 'ended';

CREATE TABLE partitions (
    topic_id    TEXT    COLLATE "C" NOT NULL REFERENCES topics (topic_id),
    partition   INTEGER NOT NULL CHECK (partition >= 0),
    epoch       BIGINT  NOT NULL CHECK (epoch >= 0),
    holder      TEXT    COLLATE "C" REFERENCES sessions (session_id),
    log_start   BIGINT  NOT NULL DEFAULT 0 CHECK (log_start >= 0),
    flushed_end BIGINT  NOT NULL DEFAULT 0 CHECK (flushed_end >= log_start),
    size_bytes  BIGINT  NOT NULL DEFAULT 0 CHECK (size_bytes >= 0),
    PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 50);

CREATE INDEX partitions_by_holder ON partitions (holder) WHERE holder IS NOT NULL;

CREATE TABLE segment_objects (
    object_id     BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    key           TEXT   COLLATE "C" NOT NULL UNIQUE,
    size_bytes    BIGINT NOT NULL CHECK (size_bytes >= 0),
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE runs (
    topic_id         TEXT    COLLATE "C" NOT NULL,
    partition        INTEGER NOT NULL,
    base_offset      BIGINT  NOT NULL CHECK (base_offset >= 0),
    end_offset       BIGINT  NOT NULL CHECK (end_offset > base_offset),
    stored_base      BIGINT  NOT NULL,
    epoch            BIGINT  NOT NULL,
    object_id        BIGINT  NOT NULL REFERENCES segment_objects (object_id),
    position         BIGINT  NOT NULL,
    length           BIGINT  NOT NULL,
    index_position   BIGINT  NOT NULL,
    index_length     BIGINT  NOT NULL,
    records          BIGINT  NOT NULL,
    max_timestamp_ms BIGINT  NOT NULL,
    latest_so_far_ms BIGINT  NOT NULL, -- the largest timestamp of this run and of all before it
    PRIMARY KEY (topic_id, partition, base_offset),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
);

CREATE INDEX runs_by_object ON runs (object_id);

CREATE TABLE doomed_objects (
    key          TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    size_bytes   BIGINT NOT NULL,
    doomed_at_ms BIGINT NOT NULL
);

CREATE INDEX doomed_objects_by_age ON doomed_objects (doomed_at_ms, key);

-- One row: the name by which clients know this cluster.
CREATE TABLE cluster (
    only_row   INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    cluster_id TEXT    NOT NULL
);

CREATE TABLE counters (
    name  TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    value BIGINT NOT NULL CHECK (value >= 0)
) WITH (fillfactor = 10);

-- The value is the last epoch given, and the last producer id given.
INSERT INTO counters (name, value) VALUES ('epoch', 0), ('producer_id', 0);

-- The last commit of a shard's groups: the lease's epoch, and its number in that epoch.
CREATE TABLE group_shards (
    topic_id  TEXT    COLLATE "C" NOT NULL,
    partition INTEGER NOT NULL,
    epoch     BIGINT  NOT NULL,
    sequence  BIGINT  NOT NULL,
    PRIMARY KEY (topic_id, partition)
) WITH (fillfactor = 50);

CREATE TABLE consumer_groups (
    topic_id      TEXT    COLLATE "C" NOT NULL, -- the shard: a partition of the internal topic
    partition     INTEGER NOT NULL,
    group_id      TEXT    COLLATE "C" NOT NULL,
    generation    INTEGER NOT NULL CHECK (generation >= 0),
    protocol_type TEXT,
    protocol      TEXT,
    leader        TEXT,
    changed_at_ms BIGINT  NOT NULL,
    members       BYTEA   NOT NULL,
    PRIMARY KEY (topic_id, partition, group_id)
);

CREATE TABLE committed_offsets (
    group_id         TEXT    COLLATE "C" NOT NULL,
    topic_id         TEXT    COLLATE "C" NOT NULL, -- the topic that is read
    partition        INTEGER NOT NULL,
    committed_offset BIGINT  NOT NULL,
    leader_epoch     INTEGER NOT NULL,
    metadata         TEXT    NOT NULL,
    committed_at_ms  BIGINT  NOT NULL,
    expires_at_ms    BIGINT,
    PRIMARY KEY (group_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) WITH (fillfactor = 70);

-- For deleting a topic. Commits of known offsets don't touch it.
CREATE INDEX committed_offsets_by_topic ON committed_offsets (topic_id, partition);
