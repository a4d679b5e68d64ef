"""Placement: who of the live agents should lead what.

Owns        the rule: rendezvous hashing, so that an agent that comes or goes moves only its own share
Leaves      who is alive to `broker.cluster.cluster`, the right to append to leases

A rule that everybody computes alike from the same list. Where lists differ for a moment, leases decide.
"""

from collections.abc import Sequence
from hashlib import blake2b

from streamhouse.model.names import NodeId, PartitionId


def preferred_node(key: bytes, nodes: Sequence[NodeId]) -> NodeId | None:
    """The node with the highest hash of key and node; None when there are no nodes."""
    return max(nodes, key=lambda node: (_weight(key, node), node), default=None)


def partition_key(partition: PartitionId) -> bytes:
    return partition.topic_id.bytes + partition.partition.to_bytes(4, "big")


def _weight(key: bytes, node: NodeId) -> bytes:
    return blake2b(key + node.to_bytes(8, "big"), digest_size=8).digest()
