-- name: doomed_before
-- Objects whose grace time has passed, oldest first.
SELECT key, doomed_at_ms FROM doomed_objects WHERE doomed_at_ms <= :before_ms ORDER BY doomed_at_ms, key LIMIT :limit;

-- name: forget_object
-- The bytes are gone; so goes the row. Live objects have no row here, so they can't be forgotten.
DELETE FROM doomed_objects WHERE key = :key;
