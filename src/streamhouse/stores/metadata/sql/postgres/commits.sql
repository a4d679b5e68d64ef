-- name: carry_producers
-- As the shared statement, for many partitions.
UPDATE runs AS r SET producers_object_id = before.object_id, producers_position = before.position,
                     producers_length = before.length, producers_doubtful = before.doubtful
FROM unnest(:topic_id::text[], :partition::integer[], :first_base::bigint[], :last_base::bigint[])
    AS given (topic_id, partition, first_base, last_base)
CROSS JOIN LATERAL (
    SELECT COALESCE(earlier.producers_object_id, earlier.object_id) AS object_id,
           COALESCE(earlier.producers_position, earlier.index_position) AS position,
           COALESCE(earlier.producers_length, earlier.index_length) AS length,
           CASE WHEN earlier.producers_doubtful = 1 OR earlier.end_offset < given.first_base THEN 1 ELSE 0 END
               AS doubtful
    FROM runs AS earlier
    WHERE earlier.topic_id = given.topic_id AND earlier.partition = given.partition
      AND earlier.base_offset < given.first_base
    ORDER BY earlier.base_offset DESC LIMIT 1
) AS before
WHERE r.topic_id = given.topic_id AND r.partition = given.partition AND r.base_offset = given.last_base;
