"""ElectLeaders, API key 43, versions 0-2: partitions get their preferred leader, or any at all.

Behaviour   the agent that is asked leads every partition and is the preferred one, so each partition that is named is
            ELECTION_NOT_NEEDED, also in an unclean election
            for all partitions (null) only those are told that something was done for, or went wrong with: none
            partitions that aren't there are UNKNOWN_TOPIC_OR_PARTITION
            an unknown kind of election is INVALID_REQUEST
Left out    timeout_ms: nothing takes time
Versions    v1 kind of election, top-level error · v2 flexible
"""

from typing import Final

from streamhouse.errors import StreamhouseError, UnknownTopic
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.elect_leaders import (
    ElectLeadersRequest,
    ElectLeadersResponse,
    PartitionResult,
    ReplicaElectionResult,
)
from streamhouse.wire.kafka.resources import find_topic
from streamhouse.wire.kafka.support import serves

PREFERRED: Final = 0
UNCLEAN: Final = 1


@serves(ElectLeadersRequest, (0, 2))
async def handle(context: Context, request: ElectLeadersRequest) -> Answer:
    if request.election_type not in (PREFERRED, UNCLEAN):
        return ElectLeadersResponse(error_code=context.refused(ErrorCode.INVALID_REQUEST))
    return ElectLeadersResponse(
        replica_election_results=[
            ReplicaElectionResult(
                topic=asked.topic,
                partition_result=[
                    await _elect(context, TopicPartition(asked.topic, number)) for number in asked.partitions
                ],
            )
            for asked in request.topic_partitions or ()
        ]
    )


async def _elect(context: Context, name: TopicPartition) -> PartitionResult:
    code, text = ErrorCode.ELECTION_NOT_NEEDED, "the preferred leader leads the partition already"
    try:
        topic = await find_topic(context, name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
    except StreamhouseError as error:
        code, text = context.refused(error), str(error)
    return PartitionResult(partition_id=name.partition, error_code=code, error_message=text)
