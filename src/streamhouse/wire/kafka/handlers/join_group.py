"""JoinGroup, API key 11, versions 0-9: a member wants to be part of the group's next generation.

Behaviour   answered when the generation begins: all members have joined, or the rebalance timeout is over; an empty
            group waits `groups.initial_rebalance_delay_s` for more members after each new one
            a new member gets its id with MEMBER_ID_REQUIRED (v4, KIP-394) and joins again with it
            a static member that rejoins without its id replaces itself, in a stable group without a rebalance, and its
            previous member id is FENCED_INSTANCE_ID (KIP-345)
            only the leader gets the list of members; a static leader that rejoins gets skip_assignment (v9,
            KIP-814), before v9 its former id as the leader
            a client that disconnects meanwhile stays a member until its session expires
            metadata above `groups.max_member_bytes` or `groups.max_group_bytes` is INVALID_REQUEST, a full group
            GROUP_MAX_SIZE_REACHED
            an agent that stops answers NOT_COORDINATOR
Left out    the reason for joining (v8) is not kept
Versions    v1 rebalance timeout · v4 member id required · v5 static members · v6 flexible · v7 protocol type
            v8 reason · v9 skipping the assignment
"""

from typing import ClassVar, Final

from streamhouse.broker.groups import JoinRequest, JoinResult
from streamhouse.errors import MemberIdRequired, StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.group import OfferedProtocol
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.messages.join_group import JoinGroupRequest, JoinGroupResponse, JoinGroupResponseMember
from streamhouse.wire.kafka.schema import Response

ID_REQUIRED_SINCE: Final = 4
NULLS_SINCE: Final = 7
SKIP_SINCE: Final = 9


@handles(JoinGroupRequest, (0, 9), needs=needs(Operation.READ, ResourceType.GROUP))
async def handle(context: Context, request: JoinGroupRequest) -> HandlerResult:
    join = JoinRequest(
        member_id=request.member_id,
        instance_id=request.group_instance_id,
        client_id=context.client_id,
        client_host=f"/{context.client_host}",  # Kafka's format, which its tools show
        session_timeout_ms=request.session_timeout_ms,
        rebalance_timeout_ms=request.rebalance_timeout_ms,
        protocol_type=request.protocol_type,
        protocols=tuple(OfferedProtocol(offered.name, bytes(offered.metadata)) for offered in request.protocols),
        learns_id=context.version >= ID_REQUIRED_SINCE,
        may_skip_assignment=context.version >= SKIP_SINCE,
    )
    return JoinResponse(context, request.group_id, join)


class JoinResponse(PendingResponse):
    """Waits for the other members. If the client disconnects, its member stays until the session expires."""

    __slots__ = ("_context", "_group_id", "_join")
    drain_on_stop: ClassVar[bool] = False

    def __init__(self, context: Context, group_id: str, join: JoinRequest) -> None:
        self._context = context
        self._group_id = group_id
        self._join = join

    async def respond(self) -> Response:
        try:
            self._context.check_group(Operation.READ, self._group_id)
            return _response(await self._context.broker.groups.join(self._group_id, self._join))
        except StreamhouseError as error:
            return self._refused(error)

    def _refused(self, error: StreamhouseError) -> JoinGroupResponse:
        return JoinGroupResponse(
            error_code=self._context.count_error(error),
            protocol_name=None if self._context.version >= NULLS_SINCE else "",
            member_id=error.member_id if isinstance(error, MemberIdRequired) else self._join.member_id,
        )


def _response(joined: JoinResult) -> JoinGroupResponse:
    return JoinGroupResponse(
        generation_id=joined.generation,
        protocol_type=joined.protocol_type,
        protocol_name=joined.protocol or "",
        leader=joined.leader,
        skip_assignment=joined.skip_assignment,
        member_id=joined.member_id,
        members=[
            JoinGroupResponseMember(
                member_id=member.member_id, group_instance_id=member.instance_id, metadata=member.metadata
            )
            for member in joined.members
        ],
    )
