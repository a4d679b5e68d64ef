-- name: find_view
-- State of a view.
SELECT name, query, batch, parts, parts_done, row_count, fresh_at_ms, key_columns, columns, covers FROM views
WHERE name = :name;

-- name: list_views
-- State of all views that ever had a row.
SELECT name, query, batch, parts, parts_done, row_count, fresh_at_ms, key_columns, columns, covers FROM views
ORDER BY name;

-- name: put_view
-- Insert or replace the state of a view.
INSERT INTO views (name, query, batch, parts, parts_done, row_count, fresh_at_ms, key_columns, columns, covers)
VALUES (:name, :query, :batch, :parts, :parts_done, :row_count, :fresh_at_ms, :key_columns, :columns, :covers)
ON CONFLICT (name) DO UPDATE SET
    query = excluded.query, batch = excluded.batch, parts = excluded.parts, parts_done = excluded.parts_done,
    row_count = excluded.row_count, fresh_at_ms = excluded.fresh_at_ms, key_columns = excluded.key_columns,
    columns = excluded.columns, covers = excluded.covers;

-- name: clear_view
-- Delete all rows of a view.
DELETE FROM view_rows WHERE name = :name;

-- name: count_view_rows
-- Number of the keys in a JSON array of [found by] that a view has, by one lookup per key.
SELECT COUNT(*) AS found FROM json_each(:keys) AS requested
CROSS JOIN view_rows AS r
WHERE r.name = :name AND r.found_by = requested.value ->> 0;

-- name: put_view_rows
-- Rows of a view, in a JSON array of [found by, place, key, row, version]. A row stays that has a greater version; of two
-- whose versions begin with o, and that were in one partition, the one with the greater offset, with the later of both
-- times.
INSERT INTO view_rows (name, found_by, place, row_key, row_text, version, batch)
SELECT CAST(:name AS TEXT), given.value ->> 0, given.value ->> 1, given.value ->> 2, given.value ->> 3,
       given.value ->> 4, CAST(:batch AS BIGINT)
FROM json_each(:rows) AS given
WHERE TRUE
ON CONFLICT (name, found_by) DO UPDATE SET
    place = excluded.place, row_key = excluded.row_key, row_text = excluded.row_text, batch = excluded.batch,
    version = CASE WHEN SUBSTR(excluded.version, 1, 1) = 'o' AND SUBSTR(view_rows.version, 1, 1) = 'o'
                        AND SUBSTR(excluded.version, 18, 8) = SUBSTR(view_rows.version, 18, 8)
                        AND SUBSTR(excluded.version, 2, 16) < SUBSTR(view_rows.version, 2, 16)
                   THEN SUBSTR(view_rows.version, 1, 17) || SUBSTR(excluded.version, 18)
                   ELSE excluded.version END
WHERE excluded.version IS NULL OR view_rows.version IS NULL
   OR CASE WHEN SUBSTR(excluded.version, 1, 1) = 'o' AND SUBSTR(view_rows.version, 1, 1) = 'o'
                AND SUBSTR(excluded.version, 18, 8) = SUBSTR(view_rows.version, 18, 8)
           THEN SUBSTR(excluded.version, 26) >= SUBSTR(view_rows.version, 26)
           ELSE SUBSTR(excluded.version, 2) >= SUBSTR(view_rows.version, 2) END;

-- name: drop_view_rows
-- Rows of a view with the keys in a JSON array of [found by].
DELETE FROM view_rows
WHERE name = :name AND found_by IN (SELECT requested.value ->> 0 FROM json_each(:keys) AS requested);

-- name: drop_older_view_rows
-- Delete the rows that a batch of the whole view doesn't have.
DELETE FROM view_rows WHERE name = :name AND batch < :batch;

-- name: find_view_row
-- One row of a view.
SELECT row_key, row_text FROM view_rows WHERE name = :name AND found_by = :found_by;

-- name: page_of_view
-- A page of rows of a view, in key order.
SELECT found_by, place, row_key, row_text FROM view_rows
WHERE name = :name AND (place, found_by) > (:place, :found_by)
ORDER BY place, found_by
LIMIT :limit;
