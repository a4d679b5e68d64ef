-- Pipelines: tables that SQL knows, queries that never end, who runs them, the rows of views, and who answers SQL.

CREATE TABLE sql_tables (
    name          TEXT    NOT NULL PRIMARY KEY,
    definition    TEXT    NOT NULL, -- JSON
    changed_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pipelines (
    name          TEXT    NOT NULL PRIMARY KEY,
    definition    TEXT    NOT NULL, -- JSON
    revision      INTEGER NOT NULL CHECK (revision > 0),
    generation    INTEGER NOT NULL CHECK (generation > 0),
    query_id      TEXT    NOT NULL,
    starting      TEXT,
    wish          TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    changed_at_ms INTEGER NOT NULL,
    owner         TEXT,
    epoch         INTEGER NOT NULL DEFAULT 0,
    expires_at_ms INTEGER NOT NULL DEFAULT 0,
    status        TEXT    NOT NULL DEFAULT '{}' -- JSON
) STRICT, WITHOUT ROWID;

CREATE INDEX pipelines_by_owner ON pipelines (owner) WHERE owner IS NOT NULL;

CREATE TABLE supervisors (
    supervisor    TEXT    NOT NULL PRIMARY KEY,
    host          TEXT    NOT NULL,
    slots         INTEGER NOT NULL CHECK (slots >= 0),
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE pipeline_events (
    event_id INTEGER NOT NULL PRIMARY KEY,
    name     TEXT    NOT NULL REFERENCES pipelines (name) ON DELETE CASCADE,
    at_ms    INTEGER NOT NULL,
    level    TEXT    NOT NULL,
    text     TEXT    NOT NULL
) STRICT;

CREATE INDEX pipeline_events_by_name ON pipeline_events (name, event_id);

CREATE INDEX pipeline_events_by_time ON pipeline_events (name, at_ms);

CREATE TABLE views (
    name        TEXT    NOT NULL PRIMARY KEY REFERENCES pipelines (name) ON DELETE CASCADE,
    query       TEXT    NOT NULL,
    batch       INTEGER NOT NULL,
    parts       INTEGER NOT NULL,
    parts_done  INTEGER NOT NULL,
    row_count   INTEGER NOT NULL CHECK (row_count >= 0),
    fresh_at_ms INTEGER NOT NULL,
    key_columns TEXT    NOT NULL, -- JSON: [column, …]
    columns     TEXT              -- JSON: [[column, type], …]
) STRICT, WITHOUT ROWID;

CREATE TABLE view_rows (
    name     TEXT    NOT NULL REFERENCES views (name) ON DELETE CASCADE,
    found_by TEXT    NOT NULL,
    place    TEXT    NOT NULL,
    row_key  TEXT    NOT NULL, -- JSON: [value, …]
    row_text TEXT    NOT NULL, -- JSON
    batch    INTEGER NOT NULL,
    PRIMARY KEY (name, found_by)
) STRICT, WITHOUT ROWID;

CREATE INDEX view_rows_by_place ON view_rows (name, place, found_by);

CREATE TABLE sql_workers (
    worker        TEXT    NOT NULL PRIMARY KEY,
    address       TEXT    NOT NULL,
    token         TEXT    NOT NULL,
    busy          INTEGER NOT NULL CHECK (busy >= 0),
    expires_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

-- The value is the last epoch given to an owner of a pipeline.
INSERT INTO counters (name, value) VALUES ('pipeline_epoch', 0);
