"""Settings that were changed while agents run, as transactions.

Data path   administration of agents; the values that agents keep in memory
Owns        changing and listing them, per node and for every agent
Leaves      which there are, and what they mean, to `broker`
"""

import json
from collections.abc import Mapping
from typing import Final

from streamhouse.model.change import Change, ChangeKind
from streamhouse.model.names import NodeId
from streamhouse.stores.metadata.rows import Params, configs_text
from streamhouse.stores.metadata.transaction import Transaction

EVERY_NODE: Final = 0
"""Stands in the place of a node's number; those begin at 1."""


async def list_settings(tx: Transaction) -> Mapping[NodeId | None, Mapping[str, str]]:
    rows = await tx.rows(tx.sql.list_broker_settings)
    found = {row["node_id"]: json.loads(row["configs"]) for row in rows}
    return {None if node == EVERY_NODE else NodeId(node): configs for node, configs in found.items() if configs}


async def alter_settings(
    tx: Transaction, node_id: NodeId | None, expected: Mapping[str, str], configs: Mapping[str, str]
) -> Mapping[str, str]:
    node = EVERY_NODE if node_id is None else int(node_id)
    params: Params = {"node_id": node}
    await tx.change(tx.sql.add_broker_settings, params)
    texts = {"expected": configs_text(expected), "configs": configs_text(configs)}
    if await tx.change(tx.sql.alter_broker_settings, {**params, **texts}):
        tx.announce(Change(ChangeKind.SETTINGS))
    row = await tx.row(tx.sql.find_broker_settings, params)
    found: Mapping[str, str] = {} if row is None else json.loads(row["configs"])
    return found
