-- name: list_broker_settings
-- What was changed, for every agent (node 0) and for single ones: a row for each.
SELECT node_id, configs FROM broker_settings ORDER BY node_id;

-- name: find_broker_settings
-- What was changed for one node.
SELECT node_id, configs FROM broker_settings WHERE node_id = :node_id;

-- name: add_broker_settings
-- A node's row, with nothing changed, so that there is one to compare with.
INSERT INTO broker_settings (node_id, configs) VALUES (:node_id, '{}') ON CONFLICT DO NOTHING;

-- name: alter_broker_settings
-- Other settings; changes nothing unless those in force are the expected ones. Both are written with sorted names.
UPDATE broker_settings SET configs = :configs WHERE node_id = :node_id AND configs = :expected;
