-- name: put_worker
-- A SQL worker is alive.
INSERT INTO sql_workers (worker, address, token, busy, expires_at_ms)
VALUES (:worker, :address, :token, :busy, :expires_at_ms)
ON CONFLICT (worker) DO UPDATE SET
    address = excluded.address, token = excluded.token, busy = excluded.busy, expires_at_ms = excluded.expires_at_ms;

-- name: list_workers
-- Those that are alive.
SELECT worker, address, token, busy, expires_at_ms FROM sql_workers WHERE expires_at_ms > :now_ms ORDER BY worker;

-- name: drop_worker
-- A SQL worker has left.
DELETE FROM sql_workers WHERE worker = :worker;

-- name: forget_workers
-- Those that died.
DELETE FROM sql_workers WHERE expires_at_ms <= :before_ms;
