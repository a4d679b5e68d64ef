"""Replicas: which brokers Metadata and DescribeTopicPartitions name as those that hold a partition.

Data path   the handlers of Metadata and DescribeTopicPartitions
Owns        lists of replicas as long as the replication factor that was asked for
Leaves      who leads to `broker.cluster`

Records are in the store and not with agents, and any agent can lead any partition. Tools compare how many replicas a
topic has with how many they asked for (Terraform, Strimzi, ksqlDB), so they are named as many: the leader, then other
agents that are alive, all in sync. Where there are fewer agents than were asked for, ids that no agent has follow, as
offline replicas: what Kafka tells while brokers are down. No id is named twice; tools refuse such lists.
"""

from collections.abc import Sequence
from itertools import count, islice
from typing import NamedTuple


class Replicas(NamedTuple):
    """By node id, the leader first; `offline` are those of `nodes` that aren't in sync."""

    nodes: list[int]
    in_sync: list[int]
    offline: list[int]


NO_REPLICAS = Replicas([], [], [])


def replicas_of(leader: int | None, *, factor: int, agents: Sequence[int]) -> Replicas:
    """As many replicas as `factor`; `agents` are the ids of those that are alive. Without a leader there are none."""
    if leader is None:
        return NO_REPLICAS
    others = sorted(node for node in agents if node != leader)
    others = [node for node in others if node > leader] + [node for node in others if node < leader]
    in_sync = [leader, *others[: factor - 1]]
    free = (node for node in count(1) if node != leader and node not in agents)
    offline = list(islice(free, factor - len(in_sync)))
    return Replicas(in_sync + offline, in_sync, offline)
