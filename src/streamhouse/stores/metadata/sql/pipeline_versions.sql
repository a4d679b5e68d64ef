-- name: add_pipeline_version
-- Insert an applied definition.
INSERT INTO pipeline_versions (name, revision, definition, applied_at_ms)
VALUES (:name, :revision, :definition, :now_ms);

-- name: trim_pipeline_versions
-- Delete all but the newest versions of a pipeline.
DELETE FROM pipeline_versions
WHERE name = :name AND version_id <= (
    SELECT old.version_id FROM pipeline_versions AS old
    WHERE old.name = :name ORDER BY old.version_id DESC LIMIT 1 OFFSET :kept
);

-- name: list_pipeline_versions
-- The newest versions of a pipeline, newest first.
SELECT name, revision, definition, applied_at_ms FROM pipeline_versions
WHERE name = :name ORDER BY version_id DESC LIMIT :limit;
