-- name: find_schema_rules
-- Rules of the subjects and contexts in a JSON array of [context, subject]; a context has an empty subject.
SELECT r.context, r.subject, r.config, r.mode FROM json_each(:scopes) AS requested
JOIN schema_rules AS r ON r.context = requested.value ->> 0 AND r.subject = requested.value ->> 1
ORDER BY r.context, r.subject;

-- name: add_schema_rules
-- Insert an empty row, so that the updates below find one.
INSERT INTO schema_rules (context, subject, config, mode) VALUES (:context, :subject, NULL, NULL)
ON CONFLICT DO NOTHING;

-- name: set_schema_config
-- Set or clear the configuration.
UPDATE schema_rules SET config = :config WHERE context = :context AND subject = :subject;

-- name: set_schema_mode
-- Set or clear the mode.
UPDATE schema_rules SET mode = :mode WHERE context = :context AND subject = :subject;

-- name: drop_schema_modes_of_context
-- Clear the modes of a context's subjects.
UPDATE schema_rules SET mode = NULL WHERE context = :context AND subject <> '';

-- name: drop_schema_rules
-- Delete the rules of a subject without versions.
DELETE FROM schema_rules WHERE context = :context AND subject = :subject;
