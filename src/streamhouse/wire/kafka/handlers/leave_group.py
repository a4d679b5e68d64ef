"""LeaveGroup, API key 13, versions 0-5: remove members, which starts a rebalance.

Behaviour   each member on its own (v3); a static one may be named by its instance id alone, as tools do to remove it
            an unknown member is UNKNOWN_MEMBER_ID, a replaced static one FENCED_INSTANCE_ID
            applied even if the client closes its connection without waiting for the response
Left out    the reason for leaving (v5) is not kept
Versions    v3 several members · v4 flexible · v5 reason
"""

from typing import Final

from streamhouse.broker.groups import LeaveRequest
from streamhouse.errors import StreamhouseError, UnknownMember
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.leave_group import LeaveGroupRequest, LeaveGroupResponse, MemberResponse

MANY_SINCE: Final = 3


@handles(LeaveGroupRequest, (0, 5), needs=needs(Operation.READ, ResourceType.GROUP))
async def handle(context: Context, request: LeaveGroupRequest) -> HandlerResult:
    leavers = (
        [LeaveRequest(member_id=member.member_id, instance_id=member.group_instance_id) for member in request.members]
        if context.version >= MANY_SINCE
        else [LeaveRequest(member_id=request.member_id)]
    )
    try:
        context.check_group(Operation.READ, request.group_id)
        outcomes = await context.broker.groups.leave(request.group_id, leavers)
    except UnknownMember as error:  # the group doesn't exist
        outcomes = [error] * len(leavers)
    except StreamhouseError as error:
        return LeaveGroupResponse(error_code=context.count_error(error))
    codes = [
        ErrorCode.NONE if outcome is None else context.count_error(outcome)
        async for outcome in iterate_fairly(outcomes)
    ]
    if context.version < MANY_SINCE:
        return LeaveGroupResponse(error_code=codes[0])
    return LeaveGroupResponse(
        members=[
            MemberResponse(member_id=leaver.member_id, group_instance_id=leaver.instance_id, error_code=code)
            for leaver, code in zip(leavers, codes, strict=True)
        ]
    )
