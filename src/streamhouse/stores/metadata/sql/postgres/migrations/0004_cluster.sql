-- What a cluster of agents must know: who drains, where unflushed records are, when sessions ended, where partitions
-- belong, which offsets are reserved and which were given up.

ALTER TABLE sessions
    ADD COLUMN draining INTEGER NOT NULL DEFAULT 0 CHECK (draining IN (0, 1)),
    ADD COLUMN wal TEXT COLLATE "C" NOT NULL DEFAULT 'disk' CHECK (wal IN ('disk', 'object')),
    ADD COLUMN wal_start BIGINT NOT NULL DEFAULT 0 CHECK (wal_start >= 0),
    ADD COLUMN ended_at_ms BIGINT;

UPDATE sessions SET ended_at_ms = expires_at_ms WHERE state = 'ended';

CREATE INDEX sessions_by_end ON sessions (ended_at_ms) WHERE ended_at_ms IS NOT NULL;

ALTER TABLE partitions
    ADD COLUMN pinned_to INTEGER CHECK (pinned_to > 0),
    ADD COLUMN reserved_until BIGINT NOT NULL DEFAULT 0 CHECK (reserved_until >= 0);

CREATE TABLE abandoned_ranges (
    session_id   TEXT    COLLATE "C" NOT NULL,
    topic_id     TEXT    COLLATE "C" NOT NULL,
    partition    INTEGER NOT NULL,
    epoch        BIGINT  NOT NULL,
    from_offset  BIGINT  NOT NULL CHECK (from_offset >= 0),
    until_offset BIGINT  NOT NULL CHECK (until_offset >= from_offset),
    PRIMARY KEY (session_id, topic_id, partition),
    FOREIGN KEY (topic_id, partition) REFERENCES partitions (topic_id, partition)
);

-- For deleting a topic.
CREATE INDEX abandoned_ranges_by_topic ON abandoned_ranges (topic_id, partition);
