-- Users, API keys, access rules, roles, quotas and delegation tokens. Passwords and keys are kept as hashes only.

CREATE TABLE acls (
    resource_type TEXT COLLATE "C" NOT NULL,
    name          TEXT COLLATE "C" NOT NULL,
    pattern       TEXT COLLATE "C" NOT NULL,
    principal     TEXT COLLATE "C" NOT NULL,
    host          TEXT COLLATE "C" NOT NULL,
    operation     TEXT COLLATE "C" NOT NULL,
    permission    TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (resource_type, name, pattern, principal, host, operation, permission)
);

CREATE TABLE users (
    name          TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    created_at_ms BIGINT NOT NULL
);

CREATE TABLE user_credentials (
    name       TEXT COLLATE "C" NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    mechanism  TEXT COLLATE "C" NOT NULL,
    salt       BYTEA   NOT NULL,
    iterations BIGINT NOT NULL CHECK (iterations > 0),
    stored_key BYTEA   NOT NULL,
    server_key BYTEA   NOT NULL,
    PRIMARY KEY (name, mechanism)
);

CREATE TABLE api_keys (
    key_id        TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    principal     TEXT    NOT NULL,
    secret_hash   BYTEA   NOT NULL,
    description   TEXT    NOT NULL,
    created_at_ms BIGINT NOT NULL,
    expires_at_ms BIGINT
);

CREATE TABLE role_members (
    role   TEXT COLLATE "C" NOT NULL,
    member TEXT COLLATE "C" NOT NULL,
    PRIMARY KEY (role, member)
);

CREATE TABLE quotas (
    entity TEXT COLLATE "C" NOT NULL PRIMARY KEY, -- JSON
    limits TEXT NOT NULL              -- JSON
);

CREATE TABLE delegation_tokens (
    token_id      TEXT COLLATE "C" NOT NULL PRIMARY KEY,
    owner         TEXT    NOT NULL,
    requester     TEXT    NOT NULL,
    renewers      TEXT    NOT NULL, -- JSON
    issued_at_ms  BIGINT NOT NULL,
    expires_at_ms BIGINT NOT NULL,
    max_at_ms     BIGINT NOT NULL
);

CREATE INDEX api_keys_by_principal ON api_keys (principal);
CREATE INDEX role_members_by_member ON role_members (member);
CREATE INDEX delegation_tokens_by_expiry ON delegation_tokens (expires_at_ms);
