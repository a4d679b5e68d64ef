"""SyncGroup, API key 14, versions 0-5: the group's leader sends the assignments, every member gets its own.

Behaviour   answered when the leader's assignments are durable; a member that the leader forgot gets an empty one
            a member of a stable group gets its assignment at once, also repeatedly
            during a rebalance REBALANCE_IN_PROGRESS: the member must rejoin
            protocol type and name must be the group's, and be there from v5 on, else INCONSISTENT_GROUP_PROTOCOL
            members that don't sync within the rebalance timeout are removed from the group
            an agent that stops answers NOT_COORDINATOR
Left out    nothing
Versions    v3 static members · v4 flexible · v5 protocol type and name
"""

from typing import ClassVar, Final

from streamhouse.broker.groups import SyncRequest
from streamhouse.errors import InconsistentProtocol, StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.sync_group import SyncGroupRequest, SyncGroupResponse
from streamhouse.wire.kafka.schema import Response

PROTOCOL_SINCE: Final = 5


@handles(SyncGroupRequest, (0, 5), needs=needs(Operation.READ, ResourceType.GROUP))
async def handle(context: Context, request: SyncGroupRequest) -> HandlerResult:
    if not context.allows(Operation.READ, ResourceType.GROUP, request.group_id):
        return SyncGroupResponse(error_code=context.count_error(ErrorCode.GROUP_AUTHORIZATION_FAILED))
    if context.version >= PROTOCOL_SINCE and (request.protocol_type is None or request.protocol_name is None):
        error = InconsistentProtocol(request.group_id, why="protocol type and name are missing")
        return SyncGroupResponse(error_code=context.count_error(error))
    sync = SyncRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        generation=request.generation_id,
        protocol_type=request.protocol_type,
        protocol=request.protocol_name,
        assignments={each.member_id: bytes(each.assignment) for each in request.assignments},
    )
    return SyncResponse(context, request.group_id, sync)


class SyncResponse(PendingResponse):
    """Waits until the leader has sent the assignments and they are durable."""

    __slots__ = ("_context", "_group_id", "_sync")
    drain_on_stop: ClassVar[bool] = False

    def __init__(self, context: Context, group_id: str, sync: SyncRequest) -> None:
        self._context = context
        self._group_id = group_id
        self._sync = sync

    async def respond(self) -> Response:
        try:
            synced = await self._context.broker.groups.sync(self._group_id, self._sync)
        except StreamhouseError as error:
            return SyncGroupResponse(error_code=self._context.count_error(error))
        return SyncGroupResponse(
            protocol_type=synced.protocol_type, protocol_name=synced.protocol, assignment=synced.assignment
        )
