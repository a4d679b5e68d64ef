-- name: fence_pipeline
-- As the shared statement; locks the row.
SELECT owner, epoch, query_id FROM pipelines WHERE name = :name FOR SHARE;
