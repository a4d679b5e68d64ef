-- Users, API keys, access rules, roles, quotas and delegation tokens. Passwords and keys are kept as hashes only.

CREATE TABLE acls (
    resource_type TEXT NOT NULL,
    name          TEXT NOT NULL,
    pattern       TEXT NOT NULL,
    principal     TEXT NOT NULL,
    host          TEXT NOT NULL,
    operation     TEXT NOT NULL,
    permission    TEXT NOT NULL,
    PRIMARY KEY (resource_type, name, pattern, principal, host, operation, permission)
) STRICT, WITHOUT ROWID;

CREATE TABLE users (
    name          TEXT    NOT NULL PRIMARY KEY,
    created_at_ms INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE TABLE user_credentials (
    name       TEXT    NOT NULL REFERENCES users (name) ON DELETE CASCADE,
    mechanism  TEXT    NOT NULL,
    salt       BLOB    NOT NULL,
    iterations INTEGER NOT NULL CHECK (iterations > 0),
    stored_key BLOB    NOT NULL,
    server_key BLOB    NOT NULL,
    PRIMARY KEY (name, mechanism)
) STRICT, WITHOUT ROWID;

CREATE TABLE api_keys (
    key_id        TEXT    NOT NULL PRIMARY KEY,
    principal     TEXT    NOT NULL,
    secret_hash   BLOB    NOT NULL,
    description   TEXT    NOT NULL,
    created_at_ms INTEGER NOT NULL,
    expires_at_ms INTEGER
) STRICT, WITHOUT ROWID;

CREATE TABLE role_members (
    role   TEXT NOT NULL,
    member TEXT NOT NULL,
    PRIMARY KEY (role, member)
) STRICT, WITHOUT ROWID;

CREATE TABLE quotas (
    entity TEXT NOT NULL PRIMARY KEY, -- JSON
    limits TEXT NOT NULL              -- JSON
) STRICT, WITHOUT ROWID;

CREATE TABLE delegation_tokens (
    token_id      TEXT    NOT NULL PRIMARY KEY,
    owner         TEXT    NOT NULL,
    requester     TEXT    NOT NULL,
    renewers      TEXT    NOT NULL, -- JSON
    issued_at_ms  INTEGER NOT NULL,
    expires_at_ms INTEGER NOT NULL,
    max_at_ms     INTEGER NOT NULL
) STRICT, WITHOUT ROWID;

CREATE INDEX api_keys_by_principal ON api_keys (principal);
CREATE INDEX role_members_by_member ON role_members (member);
CREATE INDEX delegation_tokens_by_expiry ON delegation_tokens (expires_at_ms);
