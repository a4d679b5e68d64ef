-- name: list_acls
-- Every rule.
SELECT resource_type, name, pattern, principal, host, operation, permission FROM acls
ORDER BY resource_type, name, pattern, principal, host, operation, permission;

-- name: count_acls
-- How many rules there are.
SELECT COUNT(*) AS found FROM acls;

-- name: insert_acl
-- Insert a rule, unless it exists.
INSERT INTO acls (resource_type, name, pattern, principal, host, operation, permission)
VALUES (:resource_type, :name, :pattern, :principal, :host, :operation, :permission)
ON CONFLICT DO NOTHING;

-- name: delete_acl
-- Delete a rule.
DELETE FROM acls WHERE resource_type = :resource_type AND name = :name AND pattern = :pattern
AND principal = :principal AND host = :host AND operation = :operation AND permission = :permission;

-- name: list_users
-- Every user, with the mechanisms there are credentials for; no keys.
SELECT users.name, users.created_at_ms, user_credentials.mechanism, user_credentials.iterations, user_credentials.salt
FROM users LEFT JOIN user_credentials ON user_credentials.name = users.name
ORDER BY users.name, user_credentials.mechanism;

-- name: find_user
-- One user, and each of its credentials.
SELECT users.name, users.created_at_ms, user_credentials.mechanism, user_credentials.iterations,
    user_credentials.salt, user_credentials.stored_key, user_credentials.server_key
FROM users LEFT JOIN user_credentials ON user_credentials.name = users.name
WHERE users.name = :name ORDER BY user_credentials.mechanism;

-- name: count_users
-- How many users there are.
SELECT COUNT(*) AS found FROM users;

-- name: insert_user
-- Insert a user, unless it exists.
INSERT INTO users (name, created_at_ms) VALUES (:name, :now_ms) ON CONFLICT DO NOTHING;

-- name: delete_user
-- Delete a user with its credentials.
DELETE FROM users WHERE name = :name;

-- name: put_credential
-- Insert or replace the credential of a user and a mechanism.
INSERT INTO user_credentials (name, mechanism, salt, iterations, stored_key, server_key)
VALUES (:name, :mechanism, :salt, :iterations, :stored_key, :server_key)
ON CONFLICT (name, mechanism) DO UPDATE SET salt = excluded.salt, iterations = excluded.iterations,
    stored_key = excluded.stored_key, server_key = excluded.server_key;

-- name: delete_credential
-- Delete the credential of a user and a mechanism.
DELETE FROM user_credentials WHERE name = :name AND mechanism = :mechanism;

-- name: list_keys
-- Every API key, without its hash.
SELECT key_id, principal, description, created_at_ms, expires_at_ms FROM api_keys ORDER BY created_at_ms, key_id;

-- name: find_key
-- One API key.
SELECT key_id, principal, secret_hash, description, created_at_ms, expires_at_ms FROM api_keys WHERE key_id = :key_id;

-- name: count_keys
-- How many API keys there are.
SELECT COUNT(*) AS found FROM api_keys;

-- name: insert_key
-- Insert an API key, unless it exists.
INSERT INTO api_keys (key_id, principal, secret_hash, description, created_at_ms, expires_at_ms)
VALUES (:key_id, :principal, :secret_hash, :description, :created_at_ms, :expires_at_ms)
ON CONFLICT DO NOTHING;

-- name: delete_key
-- Delete an API key.
DELETE FROM api_keys WHERE key_id = :key_id;

-- name: delete_keys_of
-- Delete the API keys of a principal.
DELETE FROM api_keys WHERE principal = :principal;

-- name: list_role_members
-- Members of roles.
SELECT role, member FROM role_members ORDER BY role, member;

-- name: insert_role_member
-- Give a role to a principal.
INSERT INTO role_members (role, member) VALUES (:role, :member) ON CONFLICT DO NOTHING;

-- name: delete_role_member
-- Take a role from a principal.
DELETE FROM role_members WHERE role = :role AND member = :member;

-- name: delete_roles_of
-- Take all roles from a principal.
DELETE FROM role_members WHERE member = :member;

-- name: list_quotas
-- The limits of each entity.
SELECT entity, limits FROM quotas ORDER BY entity;

-- name: put_quota
-- Insert or replace the limits of an entity.
INSERT INTO quotas (entity, limits) VALUES (:entity, :limits)
ON CONFLICT (entity) DO UPDATE SET limits = excluded.limits;

-- name: delete_quota
-- Delete the limits of an entity.
DELETE FROM quotas WHERE entity = :entity;

-- name: count_quotas
-- How many entities have limits.
SELECT COUNT(*) AS found FROM quotas;

-- name: put_quota_usage
-- Insert or replace the recent usage of an agent.
INSERT INTO quota_usage (agent, used, at_ms) VALUES (:agent, :used, :now_ms)
ON CONFLICT (agent) DO UPDATE SET used = excluded.used, at_ms = excluded.at_ms;

-- name: list_quota_usage
-- Recent usage by agent.
SELECT agent, used FROM quota_usage ORDER BY agent;

-- name: forget_quota_usage
-- Delete old usage.
DELETE FROM quota_usage WHERE at_ms < :before_ms;

-- name: list_delegation_tokens
-- Delegation tokens that have not expired.
SELECT token_id, owner, requester, renewers, issued_at_ms, expires_at_ms, max_at_ms FROM delegation_tokens
WHERE expires_at_ms > :now_ms ORDER BY issued_at_ms, token_id;

-- name: count_delegation_tokens
-- How many delegation tokens there are.
SELECT COUNT(*) AS found FROM delegation_tokens;

-- name: find_delegation_token
-- One delegation token.
SELECT token_id, owner, requester, renewers, issued_at_ms, expires_at_ms, max_at_ms FROM delegation_tokens
WHERE token_id = :token_id;

-- name: put_delegation_token
-- Insert a delegation token.
INSERT INTO delegation_tokens (token_id, owner, requester, renewers, issued_at_ms, expires_at_ms, max_at_ms)
VALUES (:token_id, :owner, :requester, :renewers, :issued_at_ms, :expires_at_ms, :max_at_ms);

-- name: prolong_delegation_token
-- Update the expiry of a delegation token, unless it was deleted.
UPDATE delegation_tokens SET expires_at_ms = :expires_at_ms WHERE token_id = :token_id;

-- name: delete_delegation_token
-- Delete a delegation token.
DELETE FROM delegation_tokens WHERE token_id = :token_id;

-- name: delete_delegation_tokens_of
-- The delegation tokens of a principal end now.
DELETE FROM delegation_tokens WHERE owner = :owner;

-- name: forget_delegation_tokens
-- Delete expired delegation tokens.
DELETE FROM delegation_tokens WHERE expires_at_ms <= :before_ms;
