-- name: find_schema_rules
-- What was set for the subjects and contexts in a JSON array of [context, subject]; a context has an empty subject.
SELECT r.context, r.subject, r.config, r.mode FROM json_each(:scopes) AS wanted
JOIN schema_rules AS r ON r.context = wanted.value ->> 0 AND r.subject = wanted.value ->> 1
ORDER BY r.context, r.subject;

-- name: add_schema_rules
-- A row to change.
INSERT INTO schema_rules (context, subject, config, mode) VALUES (:context, :subject, NULL, NULL)
ON CONFLICT DO NOTHING;

-- name: set_schema_config
-- Another configuration, or none.
UPDATE schema_rules SET config = :config WHERE context = :context AND subject = :subject;

-- name: set_schema_mode
-- Another mode, or none.
UPDATE schema_rules SET mode = :mode WHERE context = :context AND subject = :subject;

-- name: drop_schema_modes_of_context
-- None of a context's subjects has a mode of its own.
UPDATE schema_rules SET mode = NULL WHERE context = :context AND subject <> '';

-- name: drop_schema_rules
-- A subject without versions has no rules.
DELETE FROM schema_rules WHERE context = :context AND subject = :subject;
