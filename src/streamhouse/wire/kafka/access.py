"""Access: rights as the Kafka protocol numbers them, and the authorised operations of KIP-430.

Owns        Kafka's codes of operations, resource types, patterns and permissions
Leaves      decisions to `broker.security`; which rights an API needs to its handler

Subjects, pipelines, views and tables, and the rights to run code and SQL, have no code: Kafka's tools can't name them.
"""

from collections.abc import Mapping
from typing import Final

from streamhouse.model.access import CLUSTER, Operation, PatternType, Permission, Resource, ResourceType
from streamhouse.wire.kafka.context import Context

ANY: Final = 1
"""In a filter: each operation, type, pattern or permission."""
MATCH: Final = 2
"""As the pattern of a filter: all rules that apply to the resource of this name."""

OPERATION_CODES: Final[Mapping[Operation, int]] = {
    Operation.ALL: 2,
    Operation.READ: 3,
    Operation.WRITE: 4,
    Operation.CREATE: 5,
    Operation.DELETE: 6,
    Operation.ALTER: 7,
    Operation.DESCRIBE: 8,
    Operation.CLUSTER_ACTION: 9,
    Operation.DESCRIBE_CONFIGS: 10,
    Operation.ALTER_CONFIGS: 11,
    Operation.IDEMPOTENT_WRITE: 12,
    Operation.CREATE_TOKENS: 13,
    Operation.DESCRIBE_TOKENS: 14,
}
TYPE_CODES: Final[Mapping[ResourceType, int]] = {
    ResourceType.TOPIC: 2,
    ResourceType.GROUP: 3,
    ResourceType.CLUSTER: 4,
    ResourceType.TRANSACTIONAL_ID: 5,
    ResourceType.DELEGATION_TOKEN: 6,
    ResourceType.USER: 7,
}
PATTERN_CODES: Final[Mapping[PatternType, int]] = {PatternType.LITERAL: 3, PatternType.PREFIXED: 4}
PERMISSION_CODES: Final[Mapping[Permission, int]] = {Permission.DENY: 2, Permission.ALLOW: 3}

NOT_REQUESTED: Final = -(2**31)
"""Authorised operations that the client did not ask for."""


def authorized_operations(context: Context, resource: Resource) -> int:
    """The caller's authorised operations on a resource, one bit each."""
    operations = context.broker.security.access.operations(context.caller, resource)
    return sum(1 << code for operation, code in OPERATION_CODES.items() if operation in operations)


def cluster_operations(context: Context) -> int:
    """What the caller may do to the cluster; nothing for those who may not describe it."""
    return authorized_operations(context, CLUSTER) if context.allows_cluster(Operation.DESCRIBE) else 0
