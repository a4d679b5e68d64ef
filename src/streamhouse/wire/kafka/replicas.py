"""Replicas: which brokers Metadata and DescribeTopicPartitions name as those that hold a partition.

Data path   the handlers of Metadata and DescribeTopicPartitions
Owns        lists of replicas as long as the replication factor that was asked for
Leaves      who leads to `broker.cluster`

Records are in the store and not with agents, and any agent can lead any partition. Tools compare how many replicas a
topic has with how many they asked for (Terraform, Strimzi, ksqlDB), so they are named as many: the leader, then other
agents that are alive, then, where there are fewer agents than were asked for, ids that no agent has. All are in sync:
no replica that is missing makes a record less durable, and nobody should be alarmed. No id is named twice; tools refuse
such lists.
"""

from collections.abc import Sequence
from itertools import chain, count, islice


def replicas_of(leader: int | None, *, factor: int, agents: Sequence[int]) -> list[int]:
    """As many node ids as `factor`, the leader's first; `agents` are those that are alive. Without a leader none."""
    if leader is None:
        return []
    others = sorted(node for node in agents if node != leader)
    others = [node for node in others if node > leader] + [node for node in others if node < leader]
    free = (node for node in count(1) if node != leader and node not in agents)
    return list(islice(chain((leader,), others, free), factor))
