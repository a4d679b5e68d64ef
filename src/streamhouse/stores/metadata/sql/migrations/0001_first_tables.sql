-- Topics, partitions, sessions, segments and their runs, doomed objects and counters.
-- What each column means stands in docs/formats/metadata-schema.md.

CREATE TABLE topics (
    topic_id      TEXT    NOT NULL PRIMARY KEY,
    name          TEXT    NOT NULL UNIQUE,
    partitions    INTEGER NOT NULL CHECK (partitions > 0),
    configs       TEXT    NOT NULL CHECK (json_valid(configs)),
    created_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE sessions (
    session_id    TEXT    NOT NULL PRIMARY KEY,
    node_id       INTEGER NOT NULL CHECK (node_id > 0),
    kafka_host    TEXT    NOT NULL,
    kafka_port    INTEGER NOT NULL,
    http_host     TEXT    NOT NULL,
    http_port     INTEGER NOT NULL,
    state         TEXT    NOT NULL CHECK (state IN ('live', 'recovering', 'ended')),
    started_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    claim         INTEGER NOT NULL DEFAULT 0 CHECK (claim >= 0),
    claimed_by    TEXT
) STRICT;

-- Ended sessions stay, so that their ids never come back; only the others count for node ids.
CREATE UNIQUE INDEX sessions_by_node ON sessions (node_id) WHERE state <> 'ended';

CREATE TABLE partitions (
    topic_id    TEXT    NOT NULL REFERENCES topics (topic_id),
    partition   INTEGER NOT NULL CHECK (partition >= 0),
    epoch       INTEGER NOT NULL CHECK (epoch >= 0),
    holder      TEXT    REFERENCES sessions (session_id),
    log_start   INTEGER NOT NULL DEFAULT 0 CHECK (log_start >= 0),
    flushed_end INTEGER NOT NULL DEFAULT 0 CHECK (flushed_end >= log_start),
    PRIMARY KEY (topic_id, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX partitions_by_holder ON partitions (holder) WHERE holder IS NOT NULL;

CREATE TABLE segment_objects (
    object_id     INTEGER NOT NULL PRIMARY KEY,
    key           TEXT    NOT NULL UNIQUE,
    size_bytes    INTEGER NOT NULL CHECK (size_bytes >= 0),
    created_at_ms INTEGER NOT NULL
) STRICT;

CREATE TABLE runs (
    topic_id         TEXT    NOT NULL,
    partition        INTEGER NOT NULL,
    base_offset      INTEGER NOT NULL CHECK (base_offset >= 0),
    end_offset       INTEGER NOT NULL CHECK (end_offset > base_offset),
    stored_base      INTEGER NOT NULL,
    epoch            INTEGER NOT NULL,
    object_id        INTEGER NOT NULL REFERENCES segment_objects (object_id),
    position         INTEGER NOT NULL,
    length           INTEGER NOT NULL,
    index_position   INTEGER NOT NULL,
    index_length     INTEGER NOT NULL,
    records          INTEGER NOT NULL,
    max_timestamp_ms INTEGER NOT NULL,
    latest_so_far_ms INTEGER NOT NULL, -- the largest timestamp of this run and of all before it
    PRIMARY KEY (topic_id, partition, base_offset),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) STRICT, WITHOUT ROWID;

-- Times and epochs need no index of their own: `latest_so_far_ms` and `epoch` grow with the offset, so the statements
-- bisect the primary key. Each index more would be another page to write per partition and commit.
CREATE INDEX runs_by_object ON runs (object_id);

CREATE TABLE doomed_objects (
    key          TEXT    NOT NULL PRIMARY KEY,
    size_bytes   INTEGER NOT NULL,
    doomed_at_ms INTEGER NOT NULL
) STRICT;

CREATE INDEX doomed_objects_by_age ON doomed_objects (doomed_at_ms, key);

-- One row: the name by which clients know this cluster.
CREATE TABLE cluster (
    only_row   INTEGER NOT NULL PRIMARY KEY CHECK (only_row = 1),
    cluster_id TEXT    NOT NULL
) STRICT;

CREATE TABLE counters (
    name  TEXT    NOT NULL PRIMARY KEY,
    value INTEGER NOT NULL CHECK (value >= 0)
) STRICT, WITHOUT ROWID;

-- The value is the last epoch given, and the last producer id given.
INSERT INTO counters (name, value) VALUES ('epoch', 0), ('producer_id', 0);
