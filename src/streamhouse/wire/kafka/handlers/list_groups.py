"""ListGroups, API key 16, versions 0-5: the groups that this agent coordinates.

Behaviour   by name; filters on states (v4) and types (v5) don't mind case, and an unknown word matches nothing
            every group is of type classic
            groups of other agents are left out: tools ask every broker
Left out    nothing
Versions    v3 flexible · v4 states · v5 types
"""

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.list_groups import ListedGroup, ListGroupsRequest, ListGroupsResponse


@handles(
    ListGroupsRequest,
    (0, 5),
    needs=all_of(need((Operation.DESCRIBE, ResourceType.CLUSTER), (Operation.DESCRIBE, ResourceType.GROUP))),
)
async def handle(context: Context, request: ListGroupsRequest) -> HandlerResult:
    try:
        result = await context.broker.groups.list(states=request.states_filter, types=request.types_filter)
    except StreamhouseError as error:
        return ListGroupsResponse(error_code=context.count_error(error))
    tells_all = context.allows_cluster(Operation.DESCRIBE)
    return ListGroupsResponse(
        groups=[
            ListedGroup(
                group_id=group.group_id,
                protocol_type=group.protocol_type,
                group_state=group.state,
                group_type=group.group_type,
            )
            for group in result
            if tells_all or context.allows(Operation.DESCRIBE, ResourceType.GROUP, group.group_id)
        ]
    )
