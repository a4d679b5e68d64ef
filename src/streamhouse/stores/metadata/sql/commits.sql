-- name: touch_query
-- Lock a query's row for its commit.
INSERT INTO commit_queries (query, touched_at_ms) VALUES (:query, :now_ms)
ON CONFLICT (query) DO UPDATE SET touched_at_ms = excluded.touched_at_ms;

-- name: find_commit
-- One commit of a query.
SELECT query, epoch, progress, placed, covers FROM commits WHERE query = :query AND epoch = :epoch;

-- name: last_commit
-- The newest commit of a query.
SELECT query, epoch, progress, placed, covers FROM commits WHERE query = :query ORDER BY epoch DESC LIMIT 1;

-- name: insert_commit
-- Store a commit: its result and its query's progress.
INSERT INTO commits (query, epoch, progress, placed, covers, committed_at_ms)
VALUES (:query, :epoch, :progress, :placed, :covers, :now_ms);

-- name: trim_commits
-- Delete all but the newest commits of a query.
DELETE FROM commits
WHERE query = :query AND epoch NOT IN (
    SELECT newest.epoch FROM commits AS newest WHERE newest.query = :query ORDER BY newest.epoch DESC LIMIT :kept
);

-- name: forget_commits
-- Delete the commits of queries that were idle for long, oldest first.
DELETE FROM commits WHERE query IN (
    SELECT q.query FROM commit_queries AS q WHERE q.touched_at_ms < :before_ms ORDER BY q.touched_at_ms LIMIT :limit
);

-- name: forget_queries
-- Delete the rows of these queries.
DELETE FROM commit_queries
WHERE touched_at_ms < :before_ms AND NOT EXISTS (SELECT 1 FROM commits AS c WHERE c.query = commit_queries.query);

-- name: carry_producers
-- A placed run has no producers' state of its own: it is the one of the run before all that were placed. Where a gap
-- lies between, it is in doubt.
UPDATE runs SET (producers_object_id, producers_position, producers_length, producers_doubtful) = (
    SELECT COALESCE(before.producers_object_id, before.object_id),
           COALESCE(before.producers_position, before.index_position),
           COALESCE(before.producers_length, before.index_length),
           CASE WHEN before.producers_doubtful = 1 OR before.end_offset < :first_base THEN 1 ELSE 0 END
    FROM runs AS before
    WHERE before.topic_id = :topic_id AND before.partition = :partition AND before.base_offset < :first_base
    ORDER BY before.base_offset DESC LIMIT 1
)
WHERE topic_id = :topic_id AND partition = :partition AND base_offset = :last_base;

-- name: find_carried
-- Where the producers' state after a run stands, if it isn't its own.
SELECT producers_object_id, producers_position, producers_length, producers_doubtful FROM runs
WHERE topic_id = :topic_id AND partition = :partition AND base_offset = :base_offset
  AND producers_object_id IS NOT NULL;

-- name: put_carried
-- Copy the location of the producers' state to a replacing run.
UPDATE runs SET producers_object_id = :producers_object_id, producers_position = :producers_position,
                producers_length = :producers_length, producers_doubtful = :producers_doubtful
WHERE topic_id = :topic_id AND partition = :partition AND base_offset = :base_offset;

-- name: give_up_objects
-- Mark uncommitted objects in a JSON array of [key] for deletion; later commits of them are rejected.
INSERT INTO doomed_objects (key, size_bytes, doomed_at_ms)
SELECT requested.value ->> 0, 0, CAST(:now_ms AS BIGINT)
FROM json_each(:keys) AS requested
WHERE NOT EXISTS (SELECT 1 FROM segment_objects AS o WHERE o.key = requested.value ->> 0)
  AND NOT EXISTS (SELECT 1 FROM doomed_objects AS d WHERE d.key = requested.value ->> 0);
