-- name: now_ms
-- The database's clock.
SELECT CAST(floor(extract(epoch FROM clock_timestamp()) * 1000) AS BIGINT) AS now_ms;

-- name: prepare_connection
-- What every connection needs: no statement outlives the call that waits for it, a client that stopped in the middle of
-- a transaction doesn't keep its rows, a commit is on disk when it is answered, and no time goes into compiling plans.
SELECT set_config('statement_timeout', :timeout_ms, false),
       set_config('idle_in_transaction_session_timeout', :timeout_ms, false),
       set_config('tcp_user_timeout', :timeout_ms, false),
       set_config('jit', 'off', false),
       CASE WHEN current_setting('synchronous_commit') = 'off' THEN set_config('synchronous_commit', 'on', false) END;

-- name: announce
-- Notify all listening agents of changes when this transaction commits; equal ones are sent once.
SELECT pg_notify('streamhouse_changes', given.payload) FROM unnest(:payloads::text[]) AS given (payload);

-- name: is_standby
-- Probe of a listening connection: it is alive, and connected to the primary.
SELECT pg_is_in_recovery();

-- name: server_facts
-- Checked before anything is created.
SELECT current_setting('server_version_num')::integer AS version_number, current_setting('server_encoding') AS encoding,
       to_regclass('schema_version') IS NOT NULL AS has_tables, current_user AS user_name;

-- name: lock_schema
-- One agent at a time brings the tables up to date.
SELECT pg_advisory_xact_lock(hashtextextended('streamhouse: schema', 0));

-- name: create_schema_version
-- Which migrations were applied.
CREATE TABLE IF NOT EXISTS schema_version (
    version INTEGER NOT NULL PRIMARY KEY, name TEXT NOT NULL, applied_at_ms BIGINT NOT NULL
);

-- name: schema_version
-- The newest of them.
SELECT COALESCE(MAX(version), 0) AS version FROM schema_version;

-- name: add_schema_version
-- One more.
INSERT INTO schema_version (version, name, applied_at_ms) VALUES (:version, :name, :applied_at_ms);
