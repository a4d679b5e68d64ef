-- name: name_cluster
-- Set the cluster id, unless it is set.
INSERT INTO cluster (only_row, cluster_id) VALUES (1, :cluster_id) ON CONFLICT DO NOTHING;

-- name: cluster_name
-- The cluster id.
SELECT cluster_id FROM cluster WHERE only_row = 1;

-- name: newest_migration
-- The version of the tables, as the last migration left them.
SELECT COALESCE(MAX(version), 0) AS version FROM schema_version;
