-- name: insert_run
-- Runs of segment objects that were inserted in the same transaction. Each takes over the largest timestamp of those
-- before it: of the newest that was there, and of its own partition's in this statement.
INSERT INTO runs (
    topic_id, partition, base_offset, end_offset, stored_base, epoch, object_id,
    position, length, index_position, index_length, records, max_timestamp_ms, latest_so_far_ms
)
SELECT new.topic_id, new.partition, new.base_offset, new.end_offset, new.stored_base, new.epoch, o.object_id,
       new.position, new.length, new.index_position, new.index_length, new.records, new.max_timestamp_ms,
       GREATEST(before.latest_so_far_ms, MAX(new.max_timestamp_ms) OVER so_far)
FROM unnest(
    :topic_id::text[], :partition::integer[], :base_offset::bigint[], :end_offset::bigint[], :stored_base::bigint[],
    :epoch::bigint[], :object_key::text[], :position::bigint[], :length::bigint[], :index_position::bigint[],
    :index_length::bigint[], :records::bigint[], :max_timestamp_ms::bigint[]
) AS new (
    topic_id, partition, base_offset, end_offset, stored_base,
    epoch, object_key, position, length, index_position,
    index_length, records, max_timestamp_ms
)
JOIN segment_objects AS o ON o.key = new.object_key
LEFT JOIN LATERAL (
    SELECT newest.latest_so_far_ms FROM runs AS newest
    WHERE newest.topic_id = new.topic_id AND newest.partition = new.partition
    ORDER BY newest.base_offset DESC LIMIT 1
) AS before ON TRUE
WINDOW so_far AS (PARTITION BY new.topic_id, new.partition ORDER BY new.base_offset);

-- name: runs_of_object
-- Which runs objects still have, to recognise a commit that is repeated.
SELECT o.key, r.topic_id, r.partition, r.base_offset, r.end_offset
FROM segment_objects AS o
JOIN runs AS r ON r.object_id = o.object_id
WHERE o.key = ANY(:key::text[]);

-- name: drop_runs_below
-- Runs that end at or below their partition's log start, oldest first and so many at most, but never the newest, which
-- carries the producers' state. They are found first and named by where they stand: joined to the table, the planner,
-- who does not know the limit, would rather read all runs.
DELETE FROM runs AS r
WHERE r.ctid = ANY(ARRAY(
    SELECT gone.place
    FROM unnest(:topic_id::text[], :partition::integer[], :limit::bigint[]) AS given (topic_id, partition, most)
    JOIN partitions AS p ON p.topic_id = given.topic_id AND p.partition = given.partition
    CROSS JOIN LATERAL (
        SELECT MAX(every.base_offset) AS base_offset FROM runs AS every
        WHERE every.topic_id = given.topic_id AND every.partition = given.partition
    ) AS newest
    CROSS JOIN LATERAL (
        SELECT old.ctid AS place FROM runs AS old
        WHERE old.topic_id = given.topic_id AND old.partition = given.partition
          AND old.base_offset < p.log_start AND old.end_offset <= p.log_start AND old.base_offset < newest.base_offset
        ORDER BY old.base_offset LIMIT given.most
    ) AS gone
))
RETURNING r.topic_id, r.partition, r.object_id, r.producers_object_id, r.length;

-- name: runs_of
-- As the shared statement, with one walk of the primary key for each. Keys are looked up one by one, because the
-- planner, who does not know the limit, would rather read all objects.
SELECT r.topic_id, r.partition, r.base_offset, r.end_offset, r.stored_base, r.epoch,
       (SELECT o.key FROM segment_objects AS o WHERE o.object_id = r.object_id) AS object_key,
       r.position, r.length, r.index_position, r.index_length, r.records, r.max_timestamp_ms
FROM json_each(:from_offsets) AS requested
CROSS JOIN LATERAL (
    SELECT next_runs.* FROM runs AS next_runs
    WHERE next_runs.topic_id = requested.value ->> 0 AND next_runs.partition = CAST(requested.value ->> 1 AS INTEGER)
      AND next_runs.base_offset >= COALESCE((
          SELECT MAX(below.base_offset) FROM runs AS below
          WHERE below.topic_id = requested.value ->> 0 AND below.partition = CAST(requested.value ->> 1 AS INTEGER)
            AND below.base_offset <= CAST(requested.value ->> 2 AS BIGINT)
      ), 0)
      AND next_runs.end_offset > CAST(requested.value ->> 2 AS BIGINT)
    ORDER BY next_runs.base_offset LIMIT :limit
) AS r
ORDER BY r.topic_id, r.partition, r.base_offset;
