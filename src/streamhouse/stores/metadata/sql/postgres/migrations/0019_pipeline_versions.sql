-- Versions of pipelines: the newest definitions of each, who applied them and when.

CREATE TABLE pipeline_versions (
    version_id    BIGINT GENERATED ALWAYS AS IDENTITY PRIMARY KEY,
    name          TEXT COLLATE "C" NOT NULL REFERENCES pipelines (name) ON DELETE CASCADE,
    revision      BIGINT  NOT NULL,
    definition    TEXT    NOT NULL, -- JSON
    applied_at_ms BIGINT  NOT NULL
);

CREATE INDEX pipeline_versions_by_name ON pipeline_versions (name, version_id);

INSERT INTO pipeline_versions (name, revision, definition, applied_at_ms)
SELECT name, revision, definition, changed_at_ms FROM pipelines;
