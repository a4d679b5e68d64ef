-- name: find_identity
-- The cluster's name, which may be missing, and both generations.
SELECT
    (SELECT cluster_id FROM cluster WHERE only_row = 1) AS cluster_id,
    (SELECT value FROM counters WHERE name = 'generation') AS generation,
    (SELECT value FROM counters WHERE name = 'generation_stored') AS stored;

-- name: next_generation
-- A generation that nobody ever began.
UPDATE counters SET value = value + 1 WHERE name = 'generation' RETURNING value;

-- name: store_generation
-- The object store has this generation; never back.
UPDATE counters SET value = :generation WHERE name = 'generation_stored' AND value < :generation;

-- name: sessions_among
-- Which of a JSON array of [session id] there are rows of, in whatever state.
SELECT s.session_id FROM json_each(:session_ids) AS wanted JOIN sessions AS s ON s.session_id = wanted.value ->> 0;
