-- name: put_supervisor
-- Insert or renew a supervisor.
INSERT INTO supervisors (supervisor, host, slots, expires_at_ms) VALUES (:supervisor, :host, :slots, :expires_at_ms)
ON CONFLICT (supervisor) DO UPDATE SET
    host = excluded.host, slots = excluded.slots, expires_at_ms = excluded.expires_at_ms;

-- name: list_supervisors
-- Live ones.
SELECT supervisor, host, slots, expires_at_ms FROM supervisors WHERE expires_at_ms > :now_ms ORDER BY supervisor;

-- name: drop_supervisor
-- Delete a supervisor.
DELETE FROM supervisors WHERE supervisor = :supervisor;

-- name: forget_supervisors
-- Delete those that expired long ago.
DELETE FROM supervisors WHERE expires_at_ms <= :before_ms;
