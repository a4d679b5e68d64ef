"""Topic creation by writing: what HTTP and gRPC check before records go to a topic that may not exist yet.

Owns        the right to create the topic, and the caller's quota of creations
Leaves      the creation itself to the broker, which publishing calls
"""

from streamhouse.broker.broker import Broker
from streamhouse.errors import UnknownTopic
from streamhouse.model.access import Operation, ResourceType
from streamhouse.wire.authorization import RequestAccess


async def check_creation(broker: Broker, access: RequestAccess, topic: str) -> None:
    """Raise `UnknownTopic` for a topic that isn't there, and that the caller may not create by writing to it, and
    `QuotaExceeded` while the caller has created too many."""
    may_create = access.allows(Operation.CREATE, ResourceType.TOPIC, topic) or access.allows_cluster(Operation.CREATE)
    if may_create and not access.quotas.is_active:
        return
    try:
        await broker.topic(topic)
    except UnknownTopic:
        if not may_create:
            raise
        if broker.settings.topics.auto_create:
            access.charge_mutations(broker.settings.topics.default_partitions)
