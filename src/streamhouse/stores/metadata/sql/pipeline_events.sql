-- name: add_events
-- Insert log lines from a JSON array of [name, time, level, text]; known ones are skipped.
INSERT INTO pipeline_events (name, at_ms, level, text)
SELECT given.value ->> 0, CAST(given.value ->> 1 AS BIGINT), given.value ->> 2, given.value ->> 3
FROM json_each(:events) AS given
WHERE NOT EXISTS (
    SELECT 1 FROM pipeline_events AS e
    WHERE e.name = given.value ->> 0 AND e.at_ms = CAST(given.value ->> 1 AS BIGINT) AND e.text = given.value ->> 3
);

-- name: trim_events
-- Delete all but the newest lines of a log.
DELETE FROM pipeline_events
WHERE name = :name AND event_id <= (
    SELECT old.event_id FROM pipeline_events AS old
    WHERE old.name = :name ORDER BY old.event_id DESC LIMIT 1 OFFSET :kept
);

-- name: list_events
-- The newest lines of a log, newest first.
SELECT at_ms, level, text FROM pipeline_events WHERE name = :name ORDER BY event_id DESC LIMIT :limit;
