-- How far consumer groups are behind: what the agents that coordinate them measured.

CREATE TABLE group_lag (
    group_id TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    at_ms    BIGINT NOT NULL,
    history  BYTEA NOT NULL
);
