"""DescribeGroups, API key 15, versions 0-6: groups, their members and assignments.

Behaviour   each group on its own; an unknown one is GROUP_ID_NOT_FOUND (v6), before it a group in state Dead
            one that another agent coordinates is NOT_COORDINATOR
            protocol, metadata and assignments are returned for a stable group
            authorised operations are what the caller may do (KIP-430)
Left out    nothing
Versions    v3 authorised operations · v4 static members · v5 flexible · v6 error text
"""

from typing import Final

from streamhouse.broker import groups as broker
from streamhouse.errors import GroupNotFound, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, Resource, ResourceType
from streamhouse.model.group import GroupState
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.access import NOT_REQUESTED, authorized_operations
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.describe_groups import (
    DescribedGroup,
    DescribedGroupMember,
    DescribeGroupsRequest,
    DescribeGroupsResponse,
)
from streamhouse.wire.kafka.resources import split_groups

NOT_FOUND_SINCE: Final = 6


@handles(DescribeGroupsRequest, (0, 6), needs=needs(Operation.DESCRIBE, ResourceType.GROUP))
async def handle(context: Context, request: DescribeGroupsRequest) -> HandlerResult:
    allowed, denied = split_groups(context, Operation.DESCRIBE, request.groups)
    result = {**await context.broker.groups.describe(allowed), **denied}
    tells = request.include_authorized_operations
    groups = [
        _group(context, name, reported, tells_operations=tells)
        async for name, reported in iterate_fairly(result.items())
    ]
    return DescribeGroupsResponse(groups=groups)


def _group(
    context: Context, name: str, reported: broker.DescribedGroup | StreamhouseError, *, tells_operations: bool
) -> DescribedGroup:
    if isinstance(reported, StreamhouseError):
        return _rejection(context, name, reported)
    return DescribedGroup(
        group_id=name,
        group_state=reported.state,
        protocol_type=reported.protocol_type,
        protocol_data=reported.protocol,
        members=[
            DescribedGroupMember(
                member_id=member.member_id,
                group_instance_id=member.instance_id,
                client_id=member.client_id,
                client_host=member.client_host,
                member_metadata=member.metadata,
                member_assignment=member.assignment,
            )
            for member in reported.members
        ],
        authorized_operations=(
            authorized_operations(context, Resource(ResourceType.GROUP, name)) if tells_operations else NOT_REQUESTED
        ),
    )


def _rejection(context: Context, name: str, error: StreamhouseError) -> DescribedGroup:
    if not isinstance(error, GroupNotFound):
        return DescribedGroup(group_id=name, error_code=context.count_error(error))
    if context.version < NOT_FOUND_SINCE:
        return DescribedGroup(group_id=name, group_state=GroupState.DEAD)
    return DescribedGroup(
        group_id=name, error_code=context.count_error(error), error_message=str(error), group_state=GroupState.DEAD
    )
