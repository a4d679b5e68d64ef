"""Assignments: brokers that were given to partitions by hand, as Kafka's tools do.

Data path   the handlers of CreateTopics, CreatePartitions and AlterPartitionReassignments
Owns        which lists of brokers make sense, and that the first of a list is who leads
Leaves      the pins themselves to `broker.cluster.oversight`

Records are in the store and not with brokers, so all but the first of a list mean nothing.
"""

from collections.abc import Sequence

from streamhouse.errors import InvalidAssignment
from streamhouse.model.names import PartitionId
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.answer import Context


def first_brokers(context: Context, assigned: Sequence[Sequence[int]]) -> list[int]:
    """The first broker of each list; raises `InvalidAssignment` when one is missing, repeated or unknown."""
    known = takers(context)
    for brokers in assigned:
        if not brokers or len(set(brokers)) < len(brokers) or not known.issuperset(brokers):
            raise InvalidAssignment(
                f"brokers of a partition are missing, repeated, unknown or draining; brokers={list(brokers)} "
                f"known={sorted(known)}"
            )
        if len(brokers) != len(assigned[0]):
            raise InvalidAssignment(f"partitions have different numbers of brokers; brokers={list(brokers)}")
    return [brokers[0] for brokers in assigned]


def takers(context: Context) -> set[int]:
    """The agents that take partitions."""
    return {int(agent.node_id) for agent in context.broker.agents() if not agent.draining}


async def pin_first(context: Context, topic: Topic, leaders: Sequence[int], *, at: int = 0) -> None:
    """Have these agents lead the partitions from number `at` on."""
    await context.broker.oversight.pin(
        {PartitionId(topic.topic_id, at + number): node for number, node in enumerate(leaders)}
    )
