"""Heartbeat, API key 12, versions 0-4: a member is alive, and learns when it must join again.

Behaviour   keeps the member's session alive, also while the answer is REBALANCE_IN_PROGRESS
            another generation is ILLEGAL_GENERATION, an unknown member UNKNOWN_MEMBER_ID, a static member that was
            replaced FENCED_INSTANCE_ID
Left out    nothing
Versions    v3 static members · v4 flexible
"""

from streamhouse.broker.groups import MemberRef
from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.heartbeat import HeartbeatRequest, HeartbeatResponse


@handles(HeartbeatRequest, (0, 4), needs=needs(Operation.READ, ResourceType.GROUP))
async def handle(context: Context, request: HeartbeatRequest) -> HandlerResult:
    caller = MemberRef(
        member_id=request.member_id, instance_id=request.group_instance_id, generation=request.generation_id
    )
    try:
        context.check_group(Operation.READ, request.group_id)
        await context.broker.groups.heartbeat(request.group_id, caller)
    except StreamhouseError as error:
        return HeartbeatResponse(error_code=context.count_error(error))
    return HeartbeatResponse()
