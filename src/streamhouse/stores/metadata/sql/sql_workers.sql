-- name: put_worker
-- Insert or renew a SQL worker.
INSERT INTO sql_workers (worker, address, token, busy, expires_at_ms)
VALUES (:worker, :address, :token, :busy, :expires_at_ms)
ON CONFLICT (worker) DO UPDATE SET
    address = excluded.address, token = excluded.token, busy = excluded.busy, expires_at_ms = excluded.expires_at_ms;

-- name: list_workers
-- Live ones.
SELECT worker, address, token, busy, expires_at_ms FROM sql_workers WHERE expires_at_ms > :now_ms ORDER BY worker;

-- name: drop_worker
-- Delete a SQL worker.
DELETE FROM sql_workers WHERE worker = :worker;

-- name: forget_workers
-- Delete expired ones.
DELETE FROM sql_workers WHERE expires_at_ms <= :before_ms;
