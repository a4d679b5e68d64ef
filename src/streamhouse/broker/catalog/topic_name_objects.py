"""Topic names in the object store: segments contain only topic ids, so the names would be lost with the database.

Data path   none: written when a generation begins, read by orphan adoption
Owns        the objects `topics/…`
Leaves      topics to the metadata store; settings are not written, because they may change
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from streamhouse.format.object_keys import TOPICS_PREFIX, parse_topic_key, topic_key
from streamhouse.model.names import TopicId
from streamhouse.stores.metadata.base import MetadataStore
from streamhouse.stores.objects.base import ObjectExists, ObjectStore

MAX_BODY = 4096


@dataclass(frozen=True, slots=True, kw_only=True)
class TopicName:
    name: str
    partitions: int
    created_at_ms: int


async def write_topic_names(metadata: MetadataStore, objects: ObjectStore) -> None:
    """Write the names of topics that are missing in the object store."""
    topics = await metadata.topics()
    if not topics:
        return
    written = {parse_topic_key(meta.key) async for meta in objects.list(TOPICS_PREFIX)}
    for topic in topics:
        if topic.topic_id not in written:
            body = {"name": topic.name, "partitions": topic.partitions, "created_at_ms": topic.created_at_ms}
            try:
                await objects.put_new(topic_key(topic.topic_id), [json.dumps(body).encode()])
            except ObjectExists:
                continue  # another agent has written it


async def read_topic_names(objects: ObjectStore) -> Mapping[TopicId, TopicName]:
    """The topic names in the object store; unreadable objects are skipped."""
    topic_names: dict[TopicId, TopicName] = {}
    async for meta in objects.list(TOPICS_PREFIX):
        topic_id = parse_topic_key(meta.key)
        if topic_id is None:
            continue
        try:
            content = json.loads(await objects.get_range(meta.key, 0, MAX_BODY))
            topic_names[topic_id] = TopicName(
                name=str(content["name"]),
                partitions=int(content["partitions"]),
                created_at_ms=int(content["created_at_ms"]),
            )
        except (ValueError, KeyError, TypeError):
            continue
    return topic_names
