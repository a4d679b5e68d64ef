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

-- name: last_run
-- The newest run of a partition.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
ORDER BY r.base_offset DESC LIMIT 1;

-- name: run_at_time
-- The first run, at or above an offset, that has a record as late as the timestamp. No run before the first one whose
-- latest so far is as late can be it, so the walk begins there: at once at the answer where timestamps mostly grow.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.base_offset >= (
      SELECT begin.base_offset FROM runs AS begin
      WHERE begin.topic_id = :topic_id AND begin.partition = :partition AND begin.latest_so_far_ms >= :timestamp_ms
      ORDER BY begin.latest_so_far_ms, begin.base_offset LIMIT 1
  )
  AND r.base_offset >= COALESCE((
      SELECT MAX(below.base_offset) FROM runs AS below
      WHERE below.topic_id = :topic_id AND below.partition = :partition AND below.base_offset <= :from_offset
  ), 0)
  AND r.end_offset > :from_offset AND r.max_timestamp_ms >= :timestamp_ms
ORDER BY r.base_offset LIMIT 1;

-- name: latest_run
-- The first of the runs, at or above an offset, that have the largest timestamp.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch, o.key AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM runs AS r
JOIN segment_objects AS o ON o.object_id = r.object_id
WHERE r.topic_id = :topic_id AND r.partition = :partition
  AND r.end_offset > :from_offset
ORDER BY r.max_timestamp_ms DESC, r.base_offset LIMIT 1;

-- name: epoch_end
-- The newest epoch that is not newer than the one asked for, and the first offset after its last run.
SELECT epoch, end_offset FROM runs
WHERE topic_id = :topic_id AND partition = :partition AND epoch <= :epoch
ORDER BY epoch DESC, end_offset DESC LIMIT 1;

-- name: runs_of_object
-- Which runs an object still has, to recognise a commit that is repeated.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset
FROM segment_objects AS o
JOIN runs AS r ON r.object_id = o.object_id
WHERE o.key = :key;

-- name: drop_runs_below
-- Runs that end at or below the log start, but never the newest, which carries the producers' state.
DELETE FROM runs
WHERE topic_id = :topic_id AND partition = :partition
  AND base_offset <> (
      SELECT MAX(newest.base_offset) FROM runs AS newest
      WHERE newest.topic_id = :topic_id AND newest.partition = :partition
  )
  AND base_offset < (
      SELECT p.log_start FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
  )
  AND end_offset <= (
      SELECT p.log_start FROM partitions AS p WHERE p.topic_id = :topic_id AND p.partition = :partition
  )
RETURNING object_id;

-- name: drop_runs_of_topic
-- Part of deleting a topic; returns the objects that may have no run left.
DELETE FROM runs WHERE topic_id = :topic_id RETURNING object_id;
