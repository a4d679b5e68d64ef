-- name: list_broker_settings
-- Dynamic settings of all agents (node 0) and of single ones.
SELECT node_id, configs FROM broker_settings ORDER BY node_id;

-- name: find_broker_settings
-- Dynamic settings of one node.
SELECT node_id, configs FROM broker_settings WHERE node_id = :node_id;

-- name: add_broker_settings
-- Insert an empty row for a node, so that the compare-and-set below finds one.
INSERT INTO broker_settings (node_id, configs) VALUES (:node_id, '{}') ON CONFLICT DO NOTHING;

-- name: alter_broker_settings
-- Compare-and-set of settings; both sides are serialized with sorted names.
UPDATE broker_settings SET configs = :configs WHERE node_id = :node_id AND configs = :expected;
