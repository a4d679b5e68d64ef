"""ListPartitionReassignments, API key 46, versions 0-0: which partitions are on the move.

Behaviour   none, whatever is asked for: records are in the store, and no partition is ever moved
Left out    timeout_ms: nothing takes time
Versions    v0 flexible
"""

from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.messages.list_partition_reassignments import (
    ListPartitionReassignmentsRequest,
    ListPartitionReassignmentsResponse,
)
from streamhouse.wire.kafka.support import serves


@serves(ListPartitionReassignmentsRequest, (0, 0))
async def handle(context: Context, request: ListPartitionReassignmentsRequest) -> Answer:
    return ListPartitionReassignmentsResponse(error_message=None)
