-- name: name_cluster
-- The first proposal becomes the cluster's name for ever.
INSERT INTO cluster (only_row, cluster_id) VALUES (1, :cluster_id) ON CONFLICT DO NOTHING;

-- name: cluster_name
-- The one row.
SELECT cluster_id FROM cluster WHERE only_row = 1;
