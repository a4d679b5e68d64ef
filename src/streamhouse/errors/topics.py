"""Errors of topics: names, settings, partitions."""

from streamhouse.errors.base import Rejected


class UnknownTopic(Rejected):
    """No such topic or partition."""

    def __init__(self, what: object) -> None:
        super().__init__(f"unknown topic or partition; name={what}")


class UnknownTopicId(Rejected):
    """No topic has this id."""

    def __init__(self, topic_id: object) -> None:
        super().__init__(f"unknown topic id; id={topic_id}")


class TopicExists(Rejected):
    """A topic of this name is already there."""

    def __init__(self, name: str) -> None:
        super().__init__(f"topic already exists; name={name}")


class InvalidTopicName(Rejected):
    """The name can't be a topic's."""


class InvalidPartitions(Rejected):
    """The number of partitions is out of range."""


class InvalidReplication(Rejected):
    """The replication factor or the replica assignment makes no sense here."""


class InvalidAssignment(InvalidReplication):
    """Replicas assigned by hand contradict each other, or name agents that aren't there."""


class InvalidConfig(Rejected):
    """A setting is unknown or its value is not allowed."""


class PolicyViolation(Rejected):
    """The topic's settings don't allow this."""
