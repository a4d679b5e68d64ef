-- name: add_schema_context
-- A context with its first schema.
INSERT INTO schema_contexts (context, last_id) VALUES (:context, 0) ON CONFLICT DO NOTHING;

-- name: take_schema_id
-- The next id of a context, which nobody ever had.
UPDATE schema_contexts SET last_id = last_id + 1 WHERE context = :context RETURNING last_id;

-- name: pass_schema_id
-- An id was imported: later ones come after it.
UPDATE schema_contexts SET last_id = :schema_id WHERE context = :context AND last_id < :schema_id;

-- name: list_schema_contexts
-- Every context that ever had a schema, and the last id that it gave.
SELECT context, last_id FROM schema_contexts ORDER BY context;
