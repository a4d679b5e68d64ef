-- name: find_session
-- One session, in any state, locked against claims and its end. Heartbeats don't wait for this.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by, draining, wal, wal_start, wal_durable, put_at_ms, put_failing, listeners, zone
FROM sessions WHERE session_id = :session_id
FOR KEY SHARE;
