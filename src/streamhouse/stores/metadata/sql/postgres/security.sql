-- name: insert_acl
-- As the shared statement, for many rules.
INSERT INTO acls (resource_type, name, pattern, principal, host, operation, permission)
SELECT DISTINCT * FROM unnest(
    :resource_type::text[], :name::text[], :pattern::text[], :principal::text[], :host::text[], :operation::text[],
    :permission::text[]
) AS new (resource_type, name, pattern, principal, host, operation, permission)
ON CONFLICT DO NOTHING;

-- name: delete_acl
-- As the shared statement, for many rules.
DELETE FROM acls USING unnest(
    :resource_type::text[], :name::text[], :pattern::text[], :principal::text[], :host::text[], :operation::text[],
    :permission::text[]
) AS given (resource_type, name, pattern, principal, host, operation, permission)
WHERE acls.resource_type = given.resource_type AND acls.name = given.name AND acls.pattern = given.pattern
  AND acls.principal = given.principal AND acls.host = given.host AND acls.operation = given.operation
  AND acls.permission = given.permission;

-- name: put_credential
-- As the shared statement, for many mechanisms, each of which is given once.
INSERT INTO user_credentials (name, mechanism, salt, iterations, stored_key, server_key)
SELECT * FROM unnest(
    :name::text[], :mechanism::text[], :salt::bytea[], :iterations::bigint[], :stored_key::bytea[], :server_key::bytea[]
) AS new (name, mechanism, salt, iterations, stored_key, server_key)
ON CONFLICT (name, mechanism) DO UPDATE SET salt = excluded.salt, iterations = excluded.iterations,
    stored_key = excluded.stored_key, server_key = excluded.server_key;

-- name: insert_role_member
-- As the shared statement, for many members.
INSERT INTO role_members (role, member)
SELECT DISTINCT * FROM unnest(:role::text[], :member::text[]) AS new (role, member)
ON CONFLICT DO NOTHING;

-- name: delete_role_member
-- As the shared statement, for many members.
DELETE FROM role_members USING unnest(:role::text[], :member::text[]) AS given (role, member)
WHERE role_members.role = given.role AND role_members.member = given.member;
