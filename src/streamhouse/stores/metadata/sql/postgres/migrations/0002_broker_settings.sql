-- Settings that were changed while agents run.

CREATE TABLE broker_settings (
    node_id INTEGER NOT NULL PRIMARY KEY CHECK (node_id >= 0), -- 0: every agent
    configs TEXT    COLLATE "C" NOT NULL
);
