-- What agents have granted of quotas lately, by which they share them.

CREATE TABLE quota_usage (
    agent TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    used  TEXT NOT NULL, -- JSON
    at_ms BIGINT NOT NULL
);
