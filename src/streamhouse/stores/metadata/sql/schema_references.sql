-- name: insert_schema_references
-- What a version refers to: a JSON array of [context, subject, version], each once.
INSERT INTO schema_references (context, subject, version, to_context, to_subject, to_version)
SELECT :context, :subject, :version, requested.value ->> 0, requested.value ->> 1, CAST(requested.value ->> 2 AS INTEGER)
FROM json_each(:targets) AS requested;

-- name: schema_referrers
-- The versions that refer to a version.
SELECT v.context, v.subject, v.version, v.schema_id, v.deleted, s.guid
FROM schema_references AS r
JOIN schema_versions AS v ON v.context = r.context AND v.subject = r.subject AND v.version = r.version
JOIN schemas AS s ON s.context = v.context AND s.schema_id = v.schema_id
WHERE r.to_context = :context AND r.to_subject = :subject AND r.to_version = :version
ORDER BY v.schema_id, v.context, v.subject, v.version;

-- name: drop_schema_references
-- Delete the references of a deleted version.
DELETE FROM schema_references WHERE context = :context AND subject = :subject AND version = :version;
