-- name: list_tables
-- Every definition of a table.
SELECT definition FROM sql_tables ORDER BY name;

-- name: find_table
-- One table.
SELECT definition FROM sql_tables WHERE name = :name;

-- name: count_tables
-- How many there are.
SELECT COUNT(*) AS found FROM sql_tables;

-- name: put_table
-- Insert or replace a definition.
INSERT INTO sql_tables (name, definition, changed_at_ms) VALUES (:name, :definition, :now_ms)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, changed_at_ms = excluded.changed_at_ms;

-- name: drop_table
-- Delete a definition; the data stays.
DELETE FROM sql_tables WHERE name = :name;
