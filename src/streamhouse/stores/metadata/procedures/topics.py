"""Procedures for topics, partitions and dynamic settings.

Owns        creating, altering, deleting and listing topics; changing and listing settings, per node and for all agents
Leaves      leases to `sessions`, runs and deletion of objects to `segments`, the meaning of settings to `broker`
"""

import json
from collections.abc import Mapping, Sequence
from typing import Final

from streamhouse.errors import Internal, InvalidPartitions, TopicExists, UnknownTopicId
from streamhouse.model.cluster import Change, ChangeKind, PartitionState
from streamhouse.model.names import NodeId, PartitionId, TopicId
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.engine import Lock, Transaction
from streamhouse.stores.metadata.procedures.segments import advance_log_start, mark_unused_for_deletion, objects_of
from streamhouse.stores.metadata.rows import (
    Params,
    configs_text,
    partition_of,
    state_of,
    text_list,
    topic_of,
    topic_params,
)

EVERY_NODE: Final = 0
"""The node id of settings for all agents; node ids begin at 1."""


async def list_broker_settings(tx: Transaction) -> Mapping[NodeId | None, Mapping[str, str]]:
    rows = await tx.rows(tx.sql.list_broker_settings)
    result = {row["node_id"]: json.loads(row["configs"]) for row in rows}
    return {None if node == EVERY_NODE else NodeId(node): configs for node, configs in result.items() if configs}


async def alter_broker_settings(
    tx: Transaction, node_id: NodeId | None, *, expected: Mapping[str, str], configs: Mapping[str, str]
) -> Mapping[str, str]:
    node = EVERY_NODE if node_id is None else int(node_id)
    params: Params = {"node_id": node}
    await tx.change(tx.sql.add_broker_settings, params)
    texts = {"expected": configs_text(expected), "configs": configs_text(configs)}
    if await tx.change(tx.sql.alter_broker_settings, {**params, **texts}):
        tx.announce(Change(ChangeKind.SETTINGS))
    row = await tx.row(tx.sql.find_broker_settings, params)
    result: Mapping[str, str] = {} if row is None else json.loads(row["configs"])
    return result


async def cluster_id(tx: Transaction, proposed: str) -> str:
    await tx.change(tx.sql.name_cluster, {"cluster_id": proposed})
    row = await tx.row(tx.sql.cluster_name)
    return proposed if row is None else str(row["cluster_id"])


async def schema_version(tx: Transaction) -> int:
    row = await tx.row(tx.sql.newest_migration)
    return 0 if row is None else int(row["version"])


async def create_topic(tx: Transaction, topic: Topic) -> None:
    if topic.partitions < 1:
        raise InvalidPartitions(f"a topic needs at least one partition; name={topic.name} got={topic.partitions}")
    params = topic_params(topic)
    if not await tx.change(tx.sql.insert_topic, params):
        same = {row["topic_id"] for row in await tx.rows(tx.sql.same_topics, params)}
        if str(topic.topic_id) in same:
            return
        raise TopicExists(topic.name)
    await tx.change(
        tx.sql.insert_partitions, {"topic_id": str(topic.topic_id), "first": 0, "partitions": topic.partitions}
    )
    tx.announce(Change(ChangeKind.TOPICS, topic.topic_id))


async def alter_topic(
    tx: Transaction, topic_id: TopicId, *, expected: Mapping[str, str], overrides: Mapping[str, str]
) -> Topic:
    params = {"topic_id": str(topic_id), "expected": configs_text(expected), "configs": configs_text(overrides)}
    if await tx.change(tx.sql.alter_topic, params):
        tx.announce(Change(ChangeKind.TOPICS, topic_id))
    return await find_topic(tx, topic_id)


async def add_partitions(tx: Transaction, topic_id: TopicId, *, from_count: int, to_count: int) -> Topic:
    if to_count <= from_count:
        raise Internal(f"partitions are only ever added; topic={topic_id} from={from_count} to={to_count}")
    params: Params = {"topic_id": str(topic_id), "from_count": from_count, "to_count": to_count}
    if await tx.change(tx.sql.grow_topic, params):
        await tx.change(
            tx.sql.insert_partitions, {"topic_id": str(topic_id), "first": from_count, "partitions": to_count}
        )
        tx.announce(Change(ChangeKind.TOPICS, topic_id))
    return await find_topic(tx, topic_id)


async def find_topic(tx: Transaction, topic_id: TopicId) -> Topic:
    row = await tx.row(tx.sql.find_topic, {"topic_id": str(topic_id)})
    if row is None:
        raise UnknownTopicId(topic_id)
    return topic_of(row)


async def empty_topic(tx: Transaction, topic_id: TopicId, limit: int) -> bool:
    """Delete some runs of a topic with more than `limit`; returns whether to continue. The rest is deleted with the
    topic in one transaction."""
    counted = await tx.row(tx.sql.count_runs, {"topic_id": str(topic_id), "limit": limit + 1})
    if counted is None or counted["runs"] <= limit:
        return False
    states = await list_partitions(tx, [topic_id])
    return await advance_log_start(tx, {state.partition: state.flushed_end for state in states}, limit)


async def delete_topic(tx: Transaction, topic_id: TopicId) -> None:
    params = {"topic_id": str(topic_id)}
    await tx.lock(Lock.TOPIC, params)
    await tx.lock(Lock.PARTITIONS_OF_TOPIC, params)
    await mark_unused_for_deletion(tx, objects_of(await tx.rows(tx.sql.drop_runs_of_topic, params)))
    for statement in (
        tx.sql.drop_offsets_of_topic,
        tx.sql.drop_offsets_of_shards,
        tx.sql.drop_pending_of_topic,
        tx.sql.drop_pending_of_shards,
        tx.sql.drop_groups_of_topic,
        tx.sql.drop_shards_of_topic,
        tx.sql.drop_abandoned_of_topic,
        tx.sql.drop_aborted_of_topic,
    ):
        await tx.change(statement, params)
    await tx.change(tx.sql.delete_partitions, params)
    if await tx.change(tx.sql.delete_topic, params):
        tx.announce(Change(ChangeKind.TOPICS, topic_id))


async def list_topics(tx: Transaction) -> Sequence[Topic]:
    return [topic_of(row) for row in await tx.rows(tx.sql.list_topics)]


async def list_partitions(tx: Transaction, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
    return [state_of(row) for row in await tx.rows(tx.sql.partitions_of_topics, {"topic_ids": text_list(topic_ids)})]


async def list_sizes(tx: Transaction, topic_ids: Sequence[TopicId]) -> Mapping[PartitionId, int]:
    rows = await tx.rows(tx.sql.sizes_of_topics, {"topic_ids": text_list(topic_ids)})
    return {partition_of(row): int(row["size_bytes"]) for row in rows}
