-- name: find_identity
-- The cluster's name, which may be missing, and both generations.
SELECT
    (SELECT cluster_id FROM cluster WHERE only_row = 1) AS cluster_id,
    (SELECT value FROM counters WHERE name = 'generation') AS generation,
    (SELECT value FROM counters WHERE name = 'generation_stored') AS stored;

-- name: next_generation
-- A new generation.
UPDATE counters SET value = value + 1 WHERE name = 'generation' RETURNING value;

-- name: store_generation
-- Store the generation of the object store; never decreases.
UPDATE counters SET value = :generation WHERE name = 'generation_stored' AND value < :generation;

-- name: sessions_among
-- The subset of a JSON array of [session id] that has rows, in any state.
SELECT s.session_id FROM json_each(:session_ids) AS requested JOIN sessions AS s ON s.session_id = requested.value ->> 0;
