"""Topics and partitions as transactions on SQLite.

Data path   topic administration; the listing that agents keep in memory
Owns        creating, deleting and listing topics
Leaves      leases to `sessions`, runs and dooming to `segments`
"""

from collections.abc import Sequence

from streamhouse.errors import InvalidPartitions, TopicExists
from streamhouse.model.lease import PartitionState
from streamhouse.model.names import TopicId
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.rows import state_of, text_list, topic_of, topic_params
from streamhouse.stores.metadata.sqlite.database import Transaction
from streamhouse.stores.metadata.sqlite.segments import doom_unused


def create_topic(tx: Transaction, topic: Topic) -> None:
    if topic.partitions < 1:
        raise InvalidPartitions(f"a topic needs at least one partition; name={topic.name} got={topic.partitions}")
    params = topic_params(topic)
    same = {row["topic_id"] for row in tx.rows(tx.sql.same_topics, params)}
    if str(topic.topic_id) in same:
        return
    if same:
        raise TopicExists(topic.name)
    tx.change(tx.sql.insert_topic, params)
    tx.change(tx.sql.insert_partitions, {"topic_id": str(topic.topic_id), "partitions": topic.partitions})


def delete_topic(tx: Transaction, topic_id: TopicId) -> None:
    params = {"topic_id": str(topic_id)}
    objects = [row["object_id"] for row in tx.rows(tx.sql.drop_runs_of_topic, params)]
    doom_unused(tx, objects)
    for statement in (
        tx.sql.drop_offsets_of_topic,
        tx.sql.drop_offsets_of_shards,
        tx.sql.drop_groups_of_topic,
        tx.sql.drop_shards_of_topic,
    ):
        tx.change(statement, params)
    tx.change(tx.sql.delete_partitions, params)
    tx.change(tx.sql.delete_topic, params)


def list_topics(tx: Transaction) -> Sequence[Topic]:
    return [topic_of(row) for row in tx.rows(tx.sql.list_topics)]


def list_partitions(tx: Transaction, topic_ids: Sequence[TopicId]) -> Sequence[PartitionState]:
    return [state_of(row) for row in tx.rows(tx.sql.partitions_of_topics, {"topic_ids": text_list(topic_ids)})]
