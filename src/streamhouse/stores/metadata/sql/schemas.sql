-- name: insert_schema
-- A schema under a new id.
INSERT INTO schemas (context, schema_id, guid, type, text, refs, metadata, rule_set)
VALUES (:context, :schema_id, :guid, :type, :text, :refs, :metadata, :rule_set);

-- name: find_schema
-- The schema of an id.
SELECT context, schema_id, guid, type, text, refs, metadata, rule_set FROM schemas
WHERE context = :context AND schema_id = :schema_id;

-- name: schema_ids_of_guid
-- The ids of the same schema, in every context, the smallest of each first.
SELECT context, schema_id FROM schemas WHERE guid = :guid ORDER BY context, schema_id;

-- name: schema_id_of_guid
-- The smallest id that a schema has in a context.
SELECT schema_id FROM schemas WHERE context = :context AND guid = :guid ORDER BY schema_id LIMIT 1;

-- name: drop_unused_schema
-- Delete a schema without versions; its id is not reused.
DELETE FROM schemas WHERE context = :context AND schema_id = :schema_id AND NOT EXISTS (
    SELECT 1 FROM schema_versions AS v WHERE v.context = :context AND v.schema_id = :schema_id
);
