-- Transactions of producers: a row for each transactional id, the offsets that are decided with it, and what was aborted
-- in partitions.

CREATE TABLE transactions (
    transactional_id TEXT    NOT NULL PRIMARY KEY,
    producer_id      INTEGER NOT NULL,
    producer_epoch   INTEGER NOT NULL,
    previous_id      INTEGER,
    previous_epoch   INTEGER,
    marked_id        INTEGER NOT NULL,
    marked_epoch     INTEGER NOT NULL,
    timeout_ms       INTEGER NOT NULL,
    state            TEXT    NOT NULL,
    number           INTEGER NOT NULL CHECK (number >= 0),
    started_at_ms    INTEGER NOT NULL,
    changed_at_ms    INTEGER NOT NULL,
    due_at_ms        INTEGER, -- from when on somebody should look after it; null: nothing is under way
    partitions       TEXT    NOT NULL -- JSON: {topic id: [partition, …]}
) STRICT;

CREATE INDEX transactions_by_producer ON transactions (producer_id);

CREATE INDEX transactions_due ON transactions (due_at_ms) WHERE due_at_ms IS NOT NULL;

CREATE INDEX transactions_by_age ON transactions (changed_at_ms) WHERE due_at_ms IS NULL;

CREATE TABLE pending_offsets (
    transactional_id TEXT    NOT NULL REFERENCES transactions (transactional_id),
    group_id         TEXT    NOT NULL,
    topic_id         TEXT    NOT NULL, -- the topic that is read
    partition        INTEGER NOT NULL,
    shard_topic_id   TEXT    NOT NULL, -- the group's shard
    shard            INTEGER NOT NULL,
    committed_offset INTEGER NOT NULL,
    leader_epoch     INTEGER NOT NULL,
    metadata         TEXT    NOT NULL,
    committed_at_ms  INTEGER NOT NULL,
    expires_at_ms    INTEGER,
    PRIMARY KEY (transactional_id, group_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) STRICT, WITHOUT ROWID;

CREATE INDEX pending_offsets_by_group ON pending_offsets (group_id, topic_id, partition);

CREATE INDEX pending_offsets_by_topic ON pending_offsets (topic_id, partition);

CREATE TABLE aborted_transactions (
    topic_id     TEXT    NOT NULL,
    partition    INTEGER NOT NULL,
    last_offset  INTEGER NOT NULL, -- where the marker stands
    first_offset INTEGER NOT NULL,
    producer_id  INTEGER NOT NULL,
    PRIMARY KEY (topic_id, partition, last_offset),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
) STRICT, WITHOUT ROWID;
