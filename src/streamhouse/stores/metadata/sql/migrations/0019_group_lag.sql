-- How far consumer groups are behind: what the agents that coordinate them measured.

CREATE TABLE group_lag (
    group_id TEXT NOT NULL PRIMARY KEY,
    at_ms    INTEGER NOT NULL,
    history  BLOB NOT NULL
) STRICT, WITHOUT ROWID;
