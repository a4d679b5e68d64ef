-- Pipelines: tables that SQL knows, queries that never end, who runs them, the rows of views, and who answers SQL.

CREATE TABLE sql_tables (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    definition    TEXT    NOT NULL, -- JSON
    changed_at_ms BIGINT  NOT NULL
);

CREATE TABLE pipelines (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    definition    TEXT    NOT NULL, -- JSON
    revision      BIGINT  NOT NULL CHECK (revision > 0),
    generation    BIGINT  NOT NULL CHECK (generation > 0),
    query_id      TEXT COLLATE "C" NOT NULL,
    starting      TEXT,
    wish          TEXT    NOT NULL,
    created_at_ms BIGINT  NOT NULL,
    changed_at_ms BIGINT  NOT NULL,
    owner         TEXT COLLATE "C",
    epoch         BIGINT  NOT NULL DEFAULT 0,
    expires_at_ms BIGINT  NOT NULL DEFAULT 0,
    status        TEXT    NOT NULL DEFAULT '{}' -- JSON
) WITH (fillfactor = 50);

CREATE INDEX pipelines_by_owner ON pipelines (owner) WHERE owner IS NOT NULL;

CREATE TABLE supervisors (
    supervisor    TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    host          TEXT    NOT NULL,
    slots         BIGINT  NOT NULL CHECK (slots >= 0),
    expires_at_ms BIGINT  NOT NULL
) WITH (fillfactor = 50);

CREATE TABLE pipeline_events (
    event_id BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name     TEXT COLLATE "C" NOT NULL REFERENCES pipelines (name) ON DELETE CASCADE,
    at_ms    BIGINT  NOT NULL,
    level    TEXT    NOT NULL,
    text     TEXT    NOT NULL
);

CREATE INDEX pipeline_events_by_name ON pipeline_events (name, event_id);

CREATE INDEX pipeline_events_by_time ON pipeline_events (name, at_ms);

CREATE TABLE views (
    name        TEXT COLLATE "C" NOT NULL PRIMARY KEY REFERENCES pipelines (name) ON DELETE CASCADE,
    query       TEXT COLLATE "C" NOT NULL,
    batch       BIGINT  NOT NULL,
    parts       BIGINT  NOT NULL,
    parts_done  BIGINT  NOT NULL,
    row_count   BIGINT  NOT NULL CHECK (row_count >= 0),
    fresh_at_ms BIGINT  NOT NULL,
    key_columns TEXT    NOT NULL, -- JSON: [column, …]
    columns     TEXT              -- JSON: [[column, type], …]
) WITH (fillfactor = 50);

CREATE TABLE view_rows (
    name     TEXT COLLATE "C" NOT NULL REFERENCES views (name) ON DELETE CASCADE,
    found_by TEXT COLLATE "C" NOT NULL,
    place    TEXT COLLATE "C" NOT NULL,
    row_key  TEXT    NOT NULL, -- JSON: [value, …]
    row_text TEXT    NOT NULL, -- JSON
    batch    BIGINT  NOT NULL,
    PRIMARY KEY (name, found_by)
);

CREATE INDEX view_rows_by_place ON view_rows (name, place, found_by);

CREATE TABLE sql_workers (
    worker        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    address       TEXT    NOT NULL,
    token         TEXT    NOT NULL,
    busy          BIGINT  NOT NULL CHECK (busy >= 0),
    expires_at_ms BIGINT  NOT NULL
);

-- The value is the last epoch given to an owner of a pipeline.
INSERT INTO counters (name, value) VALUES ('pipeline_epoch', 0);
