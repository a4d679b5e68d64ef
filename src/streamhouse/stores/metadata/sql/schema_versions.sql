-- name: insert_schema_version
-- A new version of a subject.
INSERT INTO schema_versions (context, subject, version, schema_id, deleted, created_at_ms)
VALUES (:context, :subject, :version, :schema_id, 0, :created_at_ms);

-- name: versions_of_subject
-- All versions of a subject, without the schemas' texts.
SELECT v.context, v.subject, v.version, v.schema_id, v.deleted, s.guid
FROM schema_versions AS v
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
WHERE v.context = :context AND v.subject = :subject
ORDER BY v.version;

-- name: versions_of_schema
-- All versions that have an id.
SELECT v.context, v.subject, v.version, v.schema_id, v.deleted, s.guid
FROM schema_versions AS v
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
WHERE v.context = :context AND v.schema_id = :schema_id
ORDER BY v.subject, v.version;

-- name: find_schema_versions
-- The versions in a JSON array of [context, subject, version] with their schemas, deleted ones too.
SELECT v.context, v.subject, v.version, v.deleted, v.created_at_ms,
       s.schema_id, s.guid, s.type, s.text, s.refs, s.metadata, s.rule_set
FROM json_each(:versions) AS requested
JOIN schema_versions AS v ON v.context = requested.value ->> 0 AND v.subject = requested.value ->> 1
    AND v.version = CAST(requested.value ->> 2 AS INTEGER)
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
ORDER BY v.context, v.subject, v.version;

-- name: latest_schema_version
-- The newest version of a subject that is not deleted, with its schema.
SELECT v.context, v.subject, v.version, v.deleted, v.created_at_ms,
       s.schema_id, s.guid, s.type, s.text, s.refs, s.metadata, s.rule_set
FROM schema_versions AS v
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
WHERE v.context = :context AND v.subject = :subject AND v.deleted = 0
ORDER BY v.version DESC
LIMIT 1;

-- name: list_schema_versions
-- Versions with their schemas, by the first letters of their subjects, of one context or of all.
SELECT v.context, v.subject, v.version, v.deleted, v.created_at_ms,
       s.schema_id, s.guid, s.type, s.text, s.refs, s.metadata, s.rule_set
FROM schema_versions AS v
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
WHERE (:every_context = 1 OR v.context = :context)
  AND substr(v.subject, 1, length(CAST(:prefix AS TEXT))) = CAST(:prefix AS TEXT)
  AND (:with_deleted = 1 OR v.deleted = 0)
  AND (:latest_only = 0 OR NOT EXISTS (
      SELECT 1 FROM schema_versions AS n
      WHERE n.context = v.context AND n.subject = v.subject AND n.version > v.version
        AND (:with_deleted = 1 OR n.deleted = 0)
  ))
ORDER BY v.context, v.subject, v.version
LIMIT :limit OFFSET :skipped;

-- name: mark_schema_version_deleted
-- Soft-delete a version.
UPDATE schema_versions SET deleted = 1 WHERE context = :context AND subject = :subject AND version = :version;

-- name: drop_schema_version
-- Delete a version for good.
DELETE FROM schema_versions WHERE context = :context AND subject = :subject AND version = :version;
