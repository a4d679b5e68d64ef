"""DescribeLogDirs, API key 35, versions 1-5: how large partitions are.

Behaviour   one directory, the store; a partition's size is what its segments hold for it plus what is still in memory
            null asks for all topics; of others, topics and partitions that aren't there are left out
            trouble of the metadata store is the directory's error
Left out    size and free space of the volume (v4): not known, -1
Versions    v2 flexible · v3 top-level error · v4 volume sizes · v5 cordoned directories
"""

from collections.abc import Collection, Sequence

from streamhouse.errors import StreamhouseError
from streamhouse.model.names import TopicPartition
from streamhouse.model.topic import Topic
from streamhouse.wire.kafka.answer import Answer, Context
from streamhouse.wire.kafka.messages.describe_log_dirs import (
    DescribeLogDirsPartition,
    DescribeLogDirsRequest,
    DescribeLogDirsResponse,
    DescribeLogDirsResult,
    DescribeLogDirsTopic,
)
from streamhouse.wire.kafka.support import serves


@serves(DescribeLogDirsRequest, (1, 5))
async def handle(context: Context, request: DescribeLogDirsRequest) -> Answer:
    result = DescribeLogDirsResult(log_dir=context.broker.administration.store)
    try:
        result.topics = await _topics(context, request)
    except StreamhouseError as error:
        result.error_code = context.refused(error)
    return DescribeLogDirsResponse(results=[result])


async def _topics(context: Context, request: DescribeLogDirsRequest) -> list[DescribeLogDirsTopic]:
    topics: Sequence[Topic] = await context.broker.topics()
    wanted: dict[str, Collection[int]] = {topic.name: range(topic.partitions) for topic in topics}
    if request.topics is not None:
        asked: dict[str, set[int]] = {}
        for each in request.topics:
            asked.setdefault(each.topic, set()).update(each.partitions)
        topics = [topic for topic in topics if topic.name in asked]
        wanted = {topic.name: sorted(asked[topic.name] & set(range(topic.partitions))) for topic in topics}
    sizes = await context.broker.administration.sizes(topics)
    return [
        DescribeLogDirsTopic(
            name=topic.name,
            partitions=[
                DescribeLogDirsPartition(
                    partition_index=number, partition_size=sizes[TopicPartition(topic.name, number)]
                )
                for number in wanted[topic.name]
            ],
        )
        for topic in topics
    ]
