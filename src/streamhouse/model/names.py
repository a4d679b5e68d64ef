"""Names: ids of topics, partitions and sessions, and Kafka's rule for topic names.

Owns        the identity types and the rule for topic names (Kafka's)
Leaves      whether a topic exists to the metadata store
"""

import re
import uuid
from typing import Final, NamedTuple, NewType

from streamhouse.errors import InvalidTopicName
from streamhouse.model.tenant import bare

TopicId = NewType("TopicId", uuid.UUID)
SessionId = NewType("SessionId", str)
NodeId = NewType("NodeId", int)
Epoch = NewType("Epoch", int)

MAX_TOPIC_NAME: Final = 249
_LEGAL: Final = re.compile(r"[A-Za-z0-9._-]+")


class TopicPartition(NamedTuple):
    """A partition by topic name, as clients use it. A tuple, because it is a dictionary key on the hot path, and a
    tuple hashes in C."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


class PartitionId(NamedTuple):
    """A partition by topic id, as the stores use it, so that a recreated topic is distinct from the old one."""

    topic_id: TopicId
    partition: int

    def __str__(self) -> str:
        return f"{self.topic_id}-{self.partition}"


def check_topic_name(name: str) -> None:
    """Raise `InvalidTopicName` unless Kafka would accept the name; one of a tenant's, without the tenant."""
    name = bare(name)
    if not name:
        raise InvalidTopicName("topic name is empty; allowed=1 to 249 of [A-Za-z0-9._-]")
    if len(name) > MAX_TOPIC_NAME:
        raise InvalidTopicName(f"topic name is too long; length={len(name)} limit={MAX_TOPIC_NAME}")
    if name in (".", ".."):
        raise InvalidTopicName(f"topic name is reserved; name={name}")
    if not _LEGAL.fullmatch(name):
        raise InvalidTopicName(f"topic name has a character that is not allowed; name={name!r} allowed=[A-Za-z0-9._-]")
