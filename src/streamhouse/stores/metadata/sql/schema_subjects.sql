-- name: find_schema_subject
-- A subject's last version number and revision.
SELECT last_version, revision FROM schema_subjects WHERE context = :context AND subject = :subject;

-- name: count_schema_subjects
-- Number of subjects, including those with only deleted versions.
SELECT COUNT(*) AS subjects FROM schema_subjects;

-- name: put_schema_subject
-- Update a subject's revision and last version, which never decreases.
INSERT INTO schema_subjects (context, subject, last_version, revision)
VALUES (:context, :subject, :version, :revision)
ON CONFLICT (context, subject) DO UPDATE SET
    last_version = CASE WHEN schema_subjects.last_version < excluded.last_version THEN excluded.last_version
                        ELSE schema_subjects.last_version END,
    revision = excluded.revision;

-- name: drop_schema_subject
-- Delete a subject without versions.
DELETE FROM schema_subjects WHERE context = :context AND subject = :subject AND NOT EXISTS (
    SELECT 1 FROM schema_versions AS v WHERE v.context = :context AND v.subject = :subject
);

-- name: list_schema_subjects
-- Subjects by their first letters, of one context or of all; `state` is 0 for those with a version that is not deleted,
-- 1 for those without, 2 for both.
SELECT v.context, v.subject FROM schema_versions AS v
WHERE (:every_context = 1 OR v.context = :context)
  AND substr(v.subject, 1, length(CAST(:prefix AS TEXT))) = CAST(:prefix AS TEXT)
GROUP BY v.context, v.subject
HAVING :state = 2 OR MIN(v.deleted) = :state
ORDER BY v.context, v.subject
LIMIT :limit OFFSET :skipped;
