-- name: doomed_before
-- Objects whose grace time has passed, oldest first.
SELECT key, doomed_at_ms FROM doomed_objects WHERE doomed_at_ms <= :before_ms ORDER BY doomed_at_ms, key LIMIT :limit;

-- name: forget_object
-- Delete the row of a deleted object. Live objects have no row here.
DELETE FROM doomed_objects WHERE key = :key;
