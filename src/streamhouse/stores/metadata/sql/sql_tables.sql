-- name: list_tables
-- Every definition of a table.
SELECT definition FROM sql_tables ORDER BY name;

-- name: find_table
-- One definition.
SELECT definition FROM sql_tables WHERE name = :name;

-- name: count_tables
-- How many there are.
SELECT COUNT(*) AS found FROM sql_tables;

-- name: put_table
-- A definition, whatever was there before.
INSERT INTO sql_tables (name, definition, changed_at_ms) VALUES (:name, :definition, :now_ms)
ON CONFLICT (name) DO UPDATE SET definition = excluded.definition, changed_at_ms = excluded.changed_at_ms;

-- name: drop_table
-- A definition goes; what it is about stays.
DELETE FROM sql_tables WHERE name = :name;
