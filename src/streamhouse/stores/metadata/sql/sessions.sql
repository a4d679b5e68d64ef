-- name: find_session
-- One session in whatever state.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by
FROM sessions WHERE session_id = :session_id;

-- name: list_sessions
-- All that have not ended, by node id.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by
FROM sessions WHERE state <> 'ended' ORDER BY node_id;

-- name: lowest_free_node_id
-- The lowest positive number that no unended session uses: one, or one above a number in use.
SELECT MIN(candidates.node_id) AS node_id
FROM (SELECT 1 AS node_id UNION ALL SELECT node_id + 1 FROM sessions WHERE state <> 'ended') AS candidates
WHERE NOT EXISTS (
    SELECT 1 FROM sessions WHERE sessions.node_id = candidates.node_id AND sessions.state <> 'ended'
);

-- name: insert_session
-- A session begins.
INSERT INTO sessions (
    session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms
) VALUES (
    :session_id, :node_id, :kafka_host, :kafka_port, :http_host, :http_port, 'live', :now_ms, :expires_at_ms
);

-- name: renew_session
-- The heartbeat; changes nothing unless the session is live.
UPDATE sessions SET expires_at_ms = :expires_at_ms WHERE session_id = :session_id AND state = 'live';

-- name: claim_session
-- Claim for recovery what has not ended and is expired or proven dead; each claim has a higher number.
UPDATE sessions SET state = 'recovering', claim = claim + 1, claimed_by = :claimed_by
WHERE session_id = :session_id AND state <> 'ended' AND (expires_at_ms <= :now_ms OR :proven_dead = 1)
RETURNING claim;

-- name: end_session
-- A session is over; its row stays, so that its id never comes back.
UPDATE sessions SET state = 'ended' WHERE session_id = :session_id;
