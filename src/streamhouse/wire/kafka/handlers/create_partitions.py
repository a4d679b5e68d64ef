"""CreatePartitions, API key 37, versions 0-3: add partitions to topics.

Behaviour   each topic on its own; the request has the new total number, which can't be lower than the current one
            all new partitions exist when the response is sent
            assignments by hand are checked as Kafka does; the first broker of each new partition leads it as long as
            it lives
            a topic that occurs twice in a request is INVALID_REQUEST
            the topic of consumer groups keeps its number, by which groups find their coordinator: INVALID_PARTITIONS
            validate_only checks everything and creates nothing
Left out    timeout_ms: the partitions exist when the response is sent
Versions    v2 flexible
"""

from collections import Counter

from streamhouse.errors import InvalidAssignment, Rejected, StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages.create_partitions import (
    CreatePartitionsAssignment,
    CreatePartitionsRequest,
    CreatePartitionsResponse,
    CreatePartitionsTopic,
    CreatePartitionsTopicResult,
)
from streamhouse.wire.kafka.resources import assign, check_assigned, find_topic


@handles(CreatePartitionsRequest, (0, 3), needs=needs(Operation.ALTER, ResourceType.TOPIC))
async def handle(context: Context, request: CreatePartitionsRequest) -> HandlerResult:
    counts = Counter(topic.name for topic in request.topics)
    unique = {topic.name: topic for topic in request.topics}
    return CreatePartitionsResponse(
        results=[
            await _add_partitions(context, topic, twice=counts[name] > 1, dry_run=request.validate_only)
            async for name, topic in iterate_fairly(unique.items())
        ]
    )


async def _add_partitions(
    context: Context, requested: CreatePartitionsTopic, *, twice: bool, dry_run: bool
) -> CreatePartitionsTopicResult:
    try:
        if twice:
            raise Rejected(f"topic occurs twice in the request; name={requested.name}")
        context.check_topic(Operation.ALTER, requested.name)
        topic = await find_topic(context, requested.name)
        assigned: list[list[int]] = []
        if requested.assignments is not None and requested.count > topic.partitions:
            assigned = _assigned(context, requested.assignments, new=requested.count - topic.partitions)
        if not dry_run:
            context.charge_mutations(max(0, requested.count - topic.partitions))
        grown = await context.broker.topic_admin.grow_topic(requested.name, requested.count, dry_run=dry_run)
        if assigned and not dry_run:
            await assign(context, grown, assigned, at=topic.partitions)
    except StreamhouseError as error:
        return CreatePartitionsTopicResult(
            name=requested.name, error_code=context.count_error(error), error_message=str(error)
        )
    return CreatePartitionsTopicResult(name=requested.name)


def _assigned(context: Context, assignments: list[CreatePartitionsAssignment], *, new: int) -> list[list[int]]:
    """The brokers of each new partition; raises for an invalid assignment."""
    if len(assignments) != new:
        raise InvalidAssignment(f"each new partition needs one assignment; new={new} assignments={len(assignments)}")
    assigned = [assignment.broker_ids for assignment in assignments]
    check_assigned(context, assigned)
    return assigned
