-- name: next_epoch
-- A new lease epoch: one counter for all partitions, so that epochs are unique and increasing.
UPDATE counters SET value = value + 1 WHERE name = 'epoch' RETURNING value;

-- name: reserve_producer_ids
-- Allocate `count` producer ids; returns the first.
UPDATE counters SET value = value + :count WHERE name = 'producer_id' RETURNING value - :count + 1 AS first;

-- name: next_schema_revision
-- A new subject revision.
UPDATE counters SET value = value + 1 WHERE name = 'schema_revision' RETURNING value;

-- name: take_pipeline_epochs
-- The first of `count` epochs that no owner of a pipeline ever had, not in a database that was lost since either: the
-- counter never falls behind the clock.
UPDATE counters SET value = CASE WHEN value < :now_ms THEN :now_ms ELSE value END + :count
WHERE name = 'pipeline_epoch' RETURNING value - :count + 1 AS first;
