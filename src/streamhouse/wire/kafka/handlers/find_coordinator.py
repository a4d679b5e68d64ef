"""FindCoordinator, API key 10, versions 0-6: the coordinator of a group or a transactional id.

Behaviour   the coordinator is the agent that holds the lease of the group's shard, or the one that will take it
            each key on its own (v4): an invalid group id is INVALID_GROUP_ID
            a transactional id's is chosen among the live agents, so that calls for one id meet; any other agent
            serves them too; an invalid transactional id is INVALID_REQUEST
            while the agent has no valid session, COORDINATOR_NOT_AVAILABLE, on which clients retry
            share groups are INVALID_REQUEST, as from a Kafka without them
Left out    share groups have no coordinator here
Versions    v1 key types · v3 flexible · v4 several keys · v6 share groups
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.find_coordinator import (
    Coordinator,
    FindCoordinatorRequest,
    FindCoordinatorResponse,
)

MANY_SINCE: Final = 4
GROUP: Final = 0
TRANSACTION: Final = 1
NO_NODE: Final = -1


@handles(
    FindCoordinatorRequest,
    (0, 6),
    needs=all_of(
        need((Operation.DESCRIBE, ResourceType.GROUP), when="for a group"),
        need((Operation.DESCRIBE, ResourceType.TRANSACTIONAL_ID), when="for a transactional id"),
    ),
)
async def handle(context: Context, request: FindCoordinatorRequest) -> HandlerResult:
    if context.version >= MANY_SINCE:
        keys = dict.fromkeys(request.coordinator_keys)
        coordinators = [await _find(context, request.key_type, key) async for key in iterate_fairly(keys)]
        return FindCoordinatorResponse(coordinators=coordinators)
    result = await _find(context, request.key_type, request.key)
    return FindCoordinatorResponse(
        error_code=result.error_code,
        error_message=result.error_message,
        node_id=result.node_id,
        host=result.host,
        port=result.port,
    )


async def _find(context: Context, key_type: int, key: str) -> Coordinator:
    if key_type not in (GROUP, TRANSACTION):
        code = context.count_error(ErrorCode.INVALID_REQUEST)
        return _rejection(key, code, f"only groups and transactions are coordinated; type={key_type}")
    kind = ResourceType.GROUP if key_type == GROUP else ResourceType.TRANSACTIONAL_ID
    coordinators = context.broker.groups if key_type == GROUP else context.broker.transactions
    try:
        context.check(Operation.DESCRIBE, kind, key)
        session = await coordinators.coordinator_of(key)
    except StreamhouseError as error:
        return _rejection(key, context.count_error(error), str(error))
    host, port = context.address_of(session)
    return Coordinator(key=key, node_id=session.node_id, host=host, port=port, error_message=None)


def _rejection(key: str, code: ErrorCode, text: str) -> Coordinator:
    return Coordinator(key=key, node_id=NO_NODE, host="", port=NO_NODE, error_code=code, error_message=text)
