-- name: fence_pipeline
-- As the shared statement; nobody gives it to somebody else meanwhile.
SELECT owner, epoch, query_id FROM pipelines WHERE name = :name FOR SHARE;
