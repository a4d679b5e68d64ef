-- name: insert_run
-- A run of a segment object that was inserted in the same transaction. A partition's runs are inserted in offset order,
-- so that each takes over the largest timestamp of those before it.
INSERT INTO runs (
    topic_id, partition, base_offset, end_offset, stored_base, epoch, object_id,
    position, length, index_position, index_length, records, max_timestamp_ms, latest_so_far_ms
)
SELECT :topic_id, :partition, :base_offset, :end_offset, :stored_base, :epoch, o.object_id,
       :position, :length, :index_position, :index_length, :records, :max_timestamp_ms,
       CASE WHEN before.latest_so_far_ms > :max_timestamp_ms THEN before.latest_so_far_ms ELSE :max_timestamp_ms END
FROM segment_objects AS o
LEFT JOIN runs AS before ON before.topic_id = :topic_id AND before.partition = :partition
  AND before.base_offset = (
      SELECT MAX(newest.base_offset) FROM runs AS newest
      WHERE newest.topic_id = :topic_id AND newest.partition = :partition
  )
WHERE o.key = :object_key;

-- name: runs_from
-- Runs with `end > from_offset`. Runs do not overlap, so all of them begin at or above the last base that is not
-- above it; that base is one step into the primary key, however many runs there are.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.base_offset >= COALESCE((
      SELECT MAX(below.base_offset) FROM runs AS below
      WHERE below.topic_id = :topic_id AND below.partition = :partition AND below.base_offset <= :from_offset
  ), 0)
  AND r.end_offset > :from_offset
ORDER BY r.base_offset LIMIT :limit;

-- name: runs_of
-- As `runs_from`, for each in a JSON array of [topic id, partition, offset].
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM json_each(:from_offsets) AS requested
JOIN runs AS r ON r.topic_id = requested.value ->> 0 AND r.partition = CAST(requested.value ->> 1 AS INTEGER)
  AND r.base_offset IN (
      SELECT next_runs.base_offset FROM runs AS next_runs
      WHERE next_runs.topic_id = requested.value ->> 0 AND next_runs.partition = CAST(requested.value ->> 1 AS INTEGER)
        AND next_runs.base_offset >= COALESCE((
            SELECT MAX(below.base_offset) FROM runs AS below
            WHERE below.topic_id = requested.value ->> 0 AND below.partition = CAST(requested.value ->> 1 AS INTEGER)
              AND below.base_offset <= CAST(requested.value ->> 2 AS BIGINT)
        ), 0)
        AND next_runs.end_offset > CAST(requested.value ->> 2 AS BIGINT)
      ORDER BY next_runs.base_offset LIMIT :limit
  )
JOIN segment_objects AS o ON o.object_id = r.object_id
ORDER BY r.topic_id, r.partition, r.base_offset;

-- name: last_runs
-- The newest run of each partition in a JSON array of [topic id, partition], and where the producers' state after it
-- stands; those without runs are left out.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms,
       carried.key AS producers_key, r.producers_position, r.producers_length, r.producers_doubtful
FROM json_each(:partitions) AS requested
JOIN runs AS r ON r.topic_id = requested.value ->> 0 AND r.partition = CAST(requested.value ->> 1 AS INTEGER)
    AND r.base_offset = (
        SELECT MAX(newest.base_offset) FROM runs AS newest
        WHERE newest.topic_id = requested.value ->> 0 AND newest.partition = CAST(requested.value ->> 1 AS INTEGER)
    )
JOIN segment_objects AS o ON o.object_id = r.object_id
LEFT JOIN segment_objects AS carried ON carried.object_id = r.producers_object_id
ORDER BY r.topic_id, r.partition;

-- name: runs_before
-- Runs that begin below an offset, newest first, and where the producers' state after each stands.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms,
       carried.key AS producers_key, r.producers_position, r.producers_length, r.producers_doubtful
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
LEFT JOIN segment_objects AS carried ON carried.object_id = r.producers_object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition AND r.base_offset < :before
ORDER BY r.base_offset DESC LIMIT :limit;

-- name: run_at_time
-- The first run, at or above an offset, that has a record as late as the timestamp. No run before the first one whose
-- latest so far is as late can be it; a bisection in halving steps, from the run that holds the offset, finds the last
-- offset before that one, and the walk begins behind it: at once at the answer where timestamps mostly grow.
WITH RECURSIVE earlier (position, step) AS (
    SELECT COALESCE(MAX(holding.base_offset), 0) - 1, 2305843009213693952
    FROM runs AS holding
    WHERE holding.topic_id = :topic_id AND holding.partition = :partition AND holding.base_offset <= :from_offset
    UNION ALL
    SELECT position + CASE WHEN (
               SELECT probe.latest_so_far_ms FROM runs AS probe
               WHERE probe.topic_id = :topic_id AND probe.partition = :partition
                 AND probe.base_offset <= earlier.position + earlier.step
               ORDER BY probe.base_offset DESC LIMIT 1
           ) >= :timestamp_ms THEN 0 ELSE step END,
           step / 2
    FROM earlier WHERE step > 0
)
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.base_offset > (SELECT earlier.position FROM earlier WHERE earlier.step = 0)
  AND r.end_offset > :from_offset AND r.max_timestamp_ms >= :timestamp_ms
ORDER BY r.base_offset LIMIT 1;

-- name: latest_so_far
-- The largest timestamp that a partition ever had.
SELECT latest_so_far_ms FROM runs
WHERE topic_id = :topic_id AND partition = :partition
ORDER BY base_offset DESC LIMIT 1;

-- name: latest_run
-- The first of the runs, at or above an offset, that have the largest timestamp. Walks them all: only for when the
-- run with the largest timestamp ever is not among them.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.end_offset > :from_offset
ORDER BY r.max_timestamp_ms DESC, r.base_offset LIMIT 1;

-- name: epoch_end
-- The newest epoch that is at most the requested one, and the first offset after its last run. Epochs grow with
-- offsets, so that a bisection in halving steps finds the last offset that is not newer.
WITH RECURSIVE reached (position, step) AS (
    SELECT CAST(-1 AS BIGINT), 4611686018427387904
    UNION ALL
    SELECT position + CASE WHEN (
               SELECT probe.epoch FROM runs AS probe
               WHERE probe.topic_id = :topic_id AND probe.partition = :partition
                 AND probe.base_offset <= reached.position + reached.step
               ORDER BY probe.base_offset DESC LIMIT 1
           ) > :epoch THEN 0 ELSE step END,
           step / 2
    FROM reached WHERE step > 0
)
SELECT r.epoch, r.end_offset FROM runs AS r
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.base_offset <= (SELECT reached.position FROM reached WHERE reached.step = 0)
ORDER BY r.base_offset DESC LIMIT 1;

-- name: runs_of_object
-- The runs of an object, to recognise a repeated commit.
SELECT o.key, r.topic_id, r.partition, r.base_offset, r.end_offset
FROM segment_objects AS o
JOIN runs AS r ON r.object_id = o.object_id
WHERE o.key = :key;

-- name: count_runs
-- How many runs a topic has, counted up to a limit.
SELECT COUNT(*) AS runs FROM (
    SELECT 1 FROM runs WHERE topic_id = :topic_id ORDER BY topic_id, partition, base_offset LIMIT :limit
) AS first_runs;

-- name: drop_runs_below
-- Delete runs that end at or below the log start, oldest first, up to a limit; never the newest, which has the
-- producers' state.
DELETE FROM runs
WHERE topic_id = :topic_id AND partition = :partition
  AND base_offset IN (
      SELECT old.base_offset FROM runs AS old
      WHERE old.topic_id = :topic_id AND old.partition = :partition
        AND old.base_offset <> (
            SELECT MAX(newest.base_offset) FROM runs AS newest
            WHERE newest.topic_id = :topic_id AND newest.partition = :partition
        )
        AND old.base_offset < (
            SELECT p.log_start FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
        )
        AND old.end_offset <= (
            SELECT p.log_start FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
        )
      ORDER BY old.base_offset LIMIT :limit
  )
RETURNING topic_id, partition, object_id, producers_object_id, length;

-- name: drop_runs_of_topic
-- Part of deleting a topic; returns the objects that may have no run left.
DELETE FROM runs WHERE topic_id = :topic_id RETURNING object_id, producers_object_id;
