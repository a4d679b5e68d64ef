-- name: find_session
-- One session, in any state.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by, draining, wal, wal_start, wal_durable, put_at_ms, put_failing, listeners, zone
FROM sessions WHERE session_id = :session_id;

-- name: list_sessions
-- Sessions that have not ended, by node id.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by, draining, wal, wal_start, wal_durable, put_at_ms, put_failing, listeners, zone
FROM sessions WHERE state <> 'ended' ORDER BY node_id;

-- name: list_departed_sessions
-- Those that ended or expired lately, newest first: an agent that died has departed when its session expired, not when
-- that was recovered.
SELECT session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, claim,
       claimed_by, draining, wal, wal_start, wal_durable, put_at_ms, put_failing, listeners, zone,
       departed_at_ms
FROM (
    SELECT *, CASE WHEN ended_at_ms < expires_at_ms THEN ended_at_ms ELSE expires_at_ms END AS departed_at_ms
    FROM sessions WHERE ended_at_ms > :after_ms
    UNION ALL
    SELECT *, expires_at_ms AS departed_at_ms FROM sessions WHERE state <> 'ended'
) AS departed
WHERE departed_at_ms > :after_ms AND departed_at_ms <= :now_ms
ORDER BY departed_at_ms DESC, session_id LIMIT :limit;

-- name: lowest_free_node_id
-- The lowest positive number that no unended session uses and that never meant another address: one that this address
-- had, one, or one above a known number. Clients keep connections by node id: node 3 must never become
-- another agent.
SELECT MIN(candidates.node_id) AS node_id
FROM (SELECT 1 AS node_id UNION ALL SELECT node_id FROM sessions UNION ALL SELECT node_id + 1 FROM sessions)
    AS candidates
WHERE NOT EXISTS (
    SELECT 1 FROM sessions
    WHERE sessions.node_id = candidates.node_id
      AND (sessions.state <> 'ended' OR kafka_host <> :kafka_host OR kafka_port <> :kafka_port)
);

-- name: insert_session
-- Insert a session.
INSERT INTO sessions (
    session_id, node_id, kafka_host, kafka_port, http_host, http_port, state, started_at_ms, expires_at_ms, wal,
    listeners, zone
) VALUES (
    :session_id, :node_id, :kafka_host, :kafka_port, :http_host, :http_port, 'live', :now_ms, :expires_at_ms, :wal,
    :listeners, :zone
);

-- name: renew_session
-- The heartbeat; no-op unless the session is live. Start and durable end of its WAL never
-- decrease.
UPDATE sessions SET
    expires_at_ms = :expires_at_ms,
    wal_start = CASE WHEN wal_start < :wal_start THEN :wal_start ELSE wal_start END,
    wal_durable = CASE WHEN wal_durable < :wal_durable THEN :wal_durable ELSE wal_durable END,
    put_at_ms = CASE WHEN put_at_ms < :put_at_ms THEN :put_at_ms ELSE put_at_ms END,
    put_failing = :put_failing
WHERE session_id = :session_id AND state = 'live';

-- name: drain_session
-- Set whether the session is draining; no-op unless it is live.
UPDATE sessions SET draining = :draining WHERE session_id = :session_id AND state = 'live';

-- name: claim_session
-- Claim for recovery a session that has not ended: a proven dead one, an expired one, and one that was claimed by the same
-- session or by a dead one. Each claim has a higher number.
UPDATE sessions SET state = 'recovering', claim = claim + 1, claimed_by = :claimed_by
WHERE session_id = :session_id AND state <> 'ended' AND (
    :proven_dead = 1
    OR state = 'live' AND expires_at_ms <= :now_ms
    OR state = 'recovering' AND (
        claimed_by = :claimed_by
        OR NOT EXISTS (
            SELECT 1 FROM sessions AS claimer
            WHERE claimer.session_id = sessions.claimed_by
              AND claimer.state = 'live' AND claimer.expires_at_ms > :now_ms
        )
    )
)
RETURNING claim;

-- name: end_session
-- End a session; its row stays for a while, so that later calls of this session are rejected.
UPDATE sessions SET state = 'ended', ended_at_ms = :now_ms WHERE session_id = :session_id;

-- name: forget_sessions
-- Rows of sessions that ended long ago, oldest first; never one that another row still names.
DELETE FROM sessions WHERE session_id IN (
    SELECT gone.session_id FROM sessions AS gone
    WHERE gone.ended_at_ms <= :before_ms
      AND NOT EXISTS (SELECT 1 FROM partitions AS p WHERE p.holder = gone.session_id)
      AND NOT EXISTS (SELECT 1 FROM abandoned_ranges AS a WHERE a.session_id = gone.session_id)
    ORDER BY gone.ended_at_ms, gone.session_id LIMIT :limit
);
