-- Transactions of producers: a row for each transactional id, the offsets that are decided with it, and what was aborted
-- in partitions.

CREATE TABLE transactions (
    transactional_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    producer_id      BIGINT  NOT NULL,
    producer_epoch   INTEGER NOT NULL,
    previous_id      BIGINT,
    previous_epoch   INTEGER,
    marked_id        BIGINT  NOT NULL,
    marked_epoch     INTEGER NOT NULL,
    timeout_ms       BIGINT  NOT NULL,
    state            TEXT COLLATE "C" NOT NULL,
    number           BIGINT  NOT NULL CHECK (number >= 0),
    started_at_ms    BIGINT  NOT NULL,
    changed_at_ms    BIGINT  NOT NULL,
    due_at_ms        BIGINT, -- from when on somebody should look after it; null: nothing is under way
    partitions       TEXT COLLATE "C" NOT NULL -- JSON: {topic id: [partition, …]}
) WITH (fillfactor = 50);

CREATE INDEX transactions_by_producer ON transactions (producer_id);

CREATE INDEX transactions_due ON transactions (due_at_ms) WHERE due_at_ms IS NOT NULL;

CREATE INDEX transactions_by_age ON transactions (changed_at_ms) WHERE due_at_ms IS NULL;

CREATE TABLE pending_offsets (
    transactional_id TEXT COLLATE "C" NOT NULL REFERENCES transactions (transactional_id),
    group_id         TEXT COLLATE "C" NOT NULL,
    topic_id         TEXT COLLATE "C" NOT NULL, -- the topic that is read
    partition        INTEGER NOT NULL,
    shard_topic_id   TEXT COLLATE "C" NOT NULL, -- the group's shard
    shard            INTEGER NOT NULL,
    committed_offset BIGINT  NOT NULL,
    leader_epoch     INTEGER NOT NULL,
    metadata         TEXT COLLATE "C" NOT NULL,
    committed_at_ms  BIGINT  NOT NULL,
    expires_at_ms    BIGINT,
    PRIMARY KEY (transactional_id, group_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
);

CREATE INDEX pending_offsets_by_group ON pending_offsets (group_id, topic_id, partition);

CREATE INDEX pending_offsets_by_topic ON pending_offsets (topic_id, partition);

CREATE TABLE aborted_transactions (
    topic_id     TEXT COLLATE "C" NOT NULL,
    partition    INTEGER NOT NULL,
    last_offset  BIGINT  NOT NULL, -- where the marker stands
    first_offset BIGINT  NOT NULL,
    producer_id  BIGINT  NOT NULL,
    PRIMARY KEY (topic_id, partition, last_offset),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
);
