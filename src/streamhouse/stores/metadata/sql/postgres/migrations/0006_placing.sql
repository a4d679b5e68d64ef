-- Segments that others wrote are placed behind what partitions have: which commits did so, and where the producers'
-- state stands after a run that brought none.

ALTER TABLE runs
    ADD COLUMN producers_object_id BIGINT REFERENCES segment_objects (object_id),
    ADD COLUMN producers_position BIGINT,
    ADD COLUMN producers_length BIGINT,
    ADD COLUMN producers_doubtful INTEGER;

-- For deciding whether an object is still needed. Runs of agents have their own state, and no entry here.
CREATE INDEX runs_by_producers ON runs (producers_object_id) WHERE producers_object_id IS NOT NULL;

-- One row per query, so that its commits come one after the other.
CREATE TABLE commit_queries (
    query         TEXT   COLLATE "C" NOT NULL PRIMARY KEY,
    touched_at_ms BIGINT NOT NULL
) WITH (fillfactor = 50);

CREATE INDEX commit_queries_by_age ON commit_queries (touched_at_ms, query);

CREATE TABLE commits (
    query           TEXT   COLLATE "C" NOT NULL REFERENCES commit_queries (query),
    epoch           BIGINT NOT NULL CHECK (epoch >= 0),
    progress        TEXT,
    placed          TEXT   NOT NULL, -- JSON: [[topic, topic id, partition, base, end], …]
    committed_at_ms BIGINT NOT NULL,
    PRIMARY KEY (query, epoch)
);
