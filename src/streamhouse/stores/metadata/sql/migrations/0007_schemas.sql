-- The schema registry: contexts, schemas by id, versions of subjects, what they refer to, and the rules for new ones.

CREATE TABLE schema_contexts (
    context TEXT    NOT NULL PRIMARY KEY,
    last_id INTEGER NOT NULL CHECK (last_id >= 0)
) STRICT, WITHOUT ROWID;

CREATE TABLE schemas (
    context   TEXT    NOT NULL REFERENCES schema_contexts (context),
    schema_id INTEGER NOT NULL CHECK (schema_id >= 0),
    guid      TEXT    NOT NULL,
    type      TEXT    NOT NULL,
    text      TEXT    NOT NULL,
    refs      TEXT    NOT NULL CHECK (json_valid(refs)),
    metadata  TEXT    CHECK (metadata IS NULL OR json_valid(metadata)),
    rule_set  TEXT    CHECK (rule_set IS NULL OR json_valid(rule_set)),
    PRIMARY KEY (context, schema_id)
) STRICT;

CREATE INDEX schemas_by_guid ON schemas (guid, context, schema_id);

CREATE TABLE schema_subjects (
    context      TEXT    NOT NULL,
    subject      TEXT    NOT NULL,
    last_version INTEGER NOT NULL CHECK (last_version > 0),
    revision     INTEGER NOT NULL CHECK (revision > 0),
    PRIMARY KEY (context, subject)
) STRICT, WITHOUT ROWID;

CREATE TABLE schema_versions (
    context       TEXT    NOT NULL,
    subject       TEXT    NOT NULL,
    version       INTEGER NOT NULL CHECK (version > 0),
    schema_id     INTEGER NOT NULL,
    deleted       INTEGER NOT NULL CHECK (deleted IN (0, 1)),
    created_at_ms INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version),
    FOREIGN KEY (context, schema_id) REFERENCES schemas (context, schema_id)
) STRICT, WITHOUT ROWID;

CREATE INDEX schema_versions_by_id ON schema_versions (context, schema_id);

CREATE TABLE schema_references (
    context    TEXT    NOT NULL,
    subject    TEXT    NOT NULL,
    version    INTEGER NOT NULL,
    to_context TEXT    NOT NULL,
    to_subject TEXT    NOT NULL,
    to_version INTEGER NOT NULL,
    PRIMARY KEY (context, subject, version, to_context, to_subject, to_version),
    FOREIGN KEY (context, subject, version) REFERENCES schema_versions (context, subject, version)
) STRICT, WITHOUT ROWID;

CREATE INDEX schema_references_by_target ON schema_references (to_context, to_subject, to_version);

-- A context's own rules have an empty subject.
CREATE TABLE schema_rules (
    context TEXT NOT NULL,
    subject TEXT NOT NULL,
    config  TEXT CHECK (config IS NULL OR json_valid(config)),
    mode    TEXT,
    PRIMARY KEY (context, subject)
) STRICT, WITHOUT ROWID;

-- The value is the last revision given to a subject.
INSERT INTO counters (name, value) VALUES ('schema_revision', 0);
