"""ConsumerGroupDescribe, API key 69, versions 0-1: groups of the newer protocol (KIP-848), which don't exist here.

Behaviour   every group is GROUP_ID_NOT_FOUND, and the message shows whether it is a classic one: tools then use
            DescribeGroups
Left out    the newer protocol: ConsumerGroupHeartbeat is not served, so clients use the classic one
Versions    v1 member type
"""

from streamhouse.errors import GroupNotFound, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.group import GroupState
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.consumer_group_describe import (
    ConsumerGroupDescribeRequest,
    ConsumerGroupDescribeResponse,
    DescribedGroup,
)
from streamhouse.wire.kafka.resources import split_groups


@handles(ConsumerGroupDescribeRequest, (0, 1), needs=needs(Operation.DESCRIBE, ResourceType.GROUP))
async def handle(context: Context, request: ConsumerGroupDescribeRequest) -> HandlerResult:
    allowed, denied = split_groups(context, Operation.DESCRIBE, request.group_ids)
    result = {**await context.broker.groups.describe(allowed), **denied}
    return ConsumerGroupDescribeResponse(
        groups=[
            _rejection(context, name, reported if isinstance(reported, StreamhouseError) else None)
            async for name, reported in iterate_fairly(result.items())
        ]
    )


def _rejection(context: Context, name: str, error: StreamhouseError | None) -> DescribedGroup:
    if error is not None and not isinstance(error, GroupNotFound):
        return DescribedGroup(group_id=name, error_code=context.count_error(error), error_message=str(error))
    return DescribedGroup(
        group_id=name,
        error_code=context.count_error(ErrorCode.GROUP_ID_NOT_FOUND),
        error_message=str(error) if error is not None else f"not a group of the consumer protocol; group={name!r}",
        group_state=GroupState.DEAD,
    )
