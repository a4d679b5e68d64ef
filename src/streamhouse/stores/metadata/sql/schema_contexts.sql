-- name: add_schema_context
-- Insert a context.
INSERT INTO schema_contexts (context, last_id) VALUES (:context, 0) ON CONFLICT DO NOTHING;

-- name: take_schema_id
-- Allocate the next schema id of a context.
UPDATE schema_contexts SET last_id = last_id + 1 WHERE context = :context RETURNING last_id;

-- name: pass_schema_id
-- Raise the last id of a context to an imported one.
UPDATE schema_contexts SET last_id = :schema_id WHERE context = :context AND last_id < :schema_id;

-- name: list_schema_contexts
-- All contexts with their last schema ids.
SELECT context, last_id FROM schema_contexts ORDER BY context;
