"""Rows: conversion of model values to rows and back.

Data path   between the engines and `procedures`
Owns        both directions
Leaves      column names to `sql/`, running statements to the engines
"""

import json
import uuid
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import Any, Protocol

from streamhouse.config.fields import Address
from streamhouse.format.metadata_values import decode_members, encode_members
from streamhouse.model.cluster import AbandonedRange, PartitionState, Session, SessionState
from streamhouse.model.external_commit import CommittedRange, QueryId, StoredCommit
from streamhouse.model.group import CommittedOffset, GroupOffset, StoredGroup
from streamhouse.model.names import Epoch, NodeId, PartitionId, SessionId, TopicId
from streamhouse.model.segment import CarriedProducers, Run
from streamhouse.model.topic import Topic
from streamhouse.stores.metadata.base import NewSession, OffsetStored, PendingDeletion, StoredObject

Params = Mapping[str, str | int | bytes | None]


class Row(Protocol):
    """A row with columns by name, as both engines' drivers return it."""

    def __getitem__(self, key: str, /) -> Any: ...


def topic_params(topic: Topic) -> Params:
    return {
        "topic_id": str(topic.topic_id),
        "name": topic.name,
        "partitions": topic.partitions,
        "configs": configs_text(topic.overrides),
        "created_at_ms": topic.created_at_ms,
    }


def configs_text(overrides: Mapping[str, str]) -> str:
    """Canonical text of settings, so that they can be compared in SQL."""
    return json.dumps(dict(overrides), sort_keys=True)


def topic_of(row: Row) -> Topic:
    return Topic(
        topic_id=topic_id_of(row),
        name=row["name"],
        partitions=row["partitions"],
        overrides=json.loads(row["configs"]),
        created_at_ms=row["created_at_ms"],
    )


def partition_params(partition: PartitionId) -> Params:
    return {"topic_id": str(partition.topic_id), "partition": partition.partition}


def topic_id_of(row: Row) -> TopicId:
    return TopicId(uuid.UUID(row["topic_id"]))


def partition_of(row: Row) -> PartitionId:
    return PartitionId(topic_id_of(row), row["partition"])


def partition_list(partitions: Iterable[PartitionId]) -> str:
    """A JSON array for `find_partitions`, each partition once."""
    return json.dumps([[str(topic_id), partition] for topic_id, partition in dict.fromkeys(partitions)])


def offset_list(offsets: Mapping[PartitionId, int]) -> str:
    """A JSON array for `runs_of`."""
    return json.dumps([[str(topic_id), partition, offset] for (topic_id, partition), offset in offsets.items()])


def text_list(texts: Iterable[object]) -> str:
    """A JSON array of texts, each once and in an array of its own, so that every list is read in the same way."""
    return json.dumps([[text] for text in dict.fromkeys(map(str, texts))])


def number_list(numbers: Iterable[int]) -> str:
    """A JSON array of numbers, each once and in an array of its own."""
    return json.dumps([[number] for number in dict.fromkeys(numbers)])


def state_of(row: Row) -> PartitionState:
    replicas = () if row["replicas"] is None else tuple(map(NodeId, json.loads(row["replicas"])))
    return PartitionState(
        partition=partition_of(row),
        epoch=Epoch(row["epoch"]),
        holder=None if row["holder"] is None else SessionId(row["holder"]),
        log_start=row["log_start"],
        flushed_end=row["flushed_end"],
        pinned_to=None if row["pinned_to"] is None else NodeId(row["pinned_to"]),
        # An agent of an older version changes only the leader: the list is outdated then.
        replicas=replicas if replicas[:1] == (row["pinned_to"],) else (),
        reserved_until=row["reserved_until"],
    )


def session_params(session: NewSession) -> Params:
    return {
        "session_id": session.session_id,
        "kafka_host": session.kafka.host,
        "kafka_port": session.kafka.port,
        "http_host": session.http.host,
        "http_port": session.http.port,
        "wal": session.wal,
        "listeners": json.dumps([[name, address.host, address.port] for name, address in session.listeners]),
        "zone": session.zone,
    }


def session_of(row: Row) -> Session:
    return Session(
        session_id=SessionId(row["session_id"]),
        node_id=NodeId(row["node_id"]),
        kafka=Address(host=row["kafka_host"], port=row["kafka_port"]),
        http=Address(host=row["http_host"], port=row["http_port"]),
        state=SessionState(row["state"]),
        started_at_ms=row["started_at_ms"],
        expires_at_ms=row["expires_at_ms"],
        claim=row["claim"],
        claimed_by=None if row["claimed_by"] is None else SessionId(row["claimed_by"]),
        draining=bool(row["draining"]),
        wal=row["wal"],
        wal_start=row["wal_start"],
        wal_durable=row["wal_durable"],
        put_at_ms=row["put_at_ms"],
        put_failing=bool(row["put_failing"]),
        listeners=tuple((name, Address(host, port)) for name, host, port in json.loads(row["listeners"])),
        zone=row["zone"],
    )


def abandoned_of(row: Row) -> AbandonedRange:
    return AbandonedRange(
        session_id=SessionId(row["session_id"]),
        partition=partition_of(row),
        epoch=Epoch(row["epoch"]),
        from_offset=row["from_offset"],
        until=row["until_offset"],
    )


def run_params(run: Run) -> Params:
    return {
        **partition_params(run.partition),
        "base_offset": run.base,
        "end_offset": run.end,
        "stored_base": run.stored_base,
        "epoch": run.epoch,
        "object_key": run.object_key,
        "position": run.position,
        "length": run.length,
        "index_position": run.index_position,
        "index_length": run.index_length,
        "records": run.records,
        "max_timestamp_ms": run.max_timestamp_ms,
    }


def run_of(row: Row) -> Run:
    return Run(
        partition=partition_of(row),
        base=row["base_offset"],
        end=row["end_offset"],
        stored_base=row["stored_base"],
        epoch=Epoch(row["epoch"]),
        object_key=row["object_key"],
        position=row["position"],
        length=row["length"],
        index_position=row["index_position"],
        index_length=row["index_length"],
        records=row["records"],
        max_timestamp_ms=row["max_timestamp_ms"],
    )


def last_run_of(row: Row) -> Run:
    """A newest run, with the location of its producer snapshot."""
    run = run_of(row)
    if row["producers_key"] is None:
        return run
    carried_producers = CarriedProducers(
        object_key=row["producers_key"],
        position=row["producers_position"],
        length=row["producers_length"],
        is_doubtful=bool(row["producers_doubtful"]),
    )
    return replace(run, carried=carried_producers)


def commit_of(row: Row) -> StoredCommit:
    return StoredCommit(
        query=QueryId(row["query"]),
        epoch=row["epoch"],
        progress=row["progress"],
        placed=tuple(
            CommittedRange(topic=topic, partition=PartitionId(TopicId(uuid.UUID(topic_id)), number), base=base, end=end)
            for topic, topic_id, number, base, end in json.loads(row["placed"])
        ),
        covers=row["covers"],
    )


def committed_ranges_text(ranges: Iterable[CommittedRange]) -> str:
    return json.dumps([[p.topic, str(p.partition.topic_id), p.partition.partition, p.base, p.end] for p in ranges])


def group_params(group: StoredGroup) -> Params:
    return {
        "group_id": group.group_id,
        "generation": group.generation,
        "protocol_type": group.protocol_type,
        "protocol": group.protocol,
        "leader": group.leader,
        "changed_at_ms": group.changed_at_ms,
        "members": encode_members(group.members),
    }


def group_of(row: Row) -> StoredGroup:
    return StoredGroup(
        group_id=row["group_id"],
        generation=row["generation"],
        protocol_type=row["protocol_type"],
        protocol=row["protocol"],
        leader=row["leader"],
        members=decode_members(row["members"]),
        changed_at_ms=row["changed_at_ms"],
    )


def group_offset_params(at: GroupOffset) -> Params:
    return {"group_id": at.group_id, **partition_params(at.partition)}


def offset_params(at: GroupOffset, committed: CommittedOffset) -> Params:
    return {
        **group_offset_params(at),
        "committed_offset": committed.offset,
        "leader_epoch": committed.leader_epoch,
        "metadata": committed.metadata,
        "committed_at_ms": committed.committed_at_ms,
        "expires_at_ms": committed.expires_at_ms,
    }


def offset_of(row: Row) -> OffsetStored:
    committed = CommittedOffset(
        offset=row["committed_offset"],
        leader_epoch=row["leader_epoch"],
        metadata=row["metadata"],
        committed_at_ms=row["committed_at_ms"],
        expires_at_ms=row["expires_at_ms"],
    )
    return OffsetStored(GroupOffset(row["group_id"], partition_of(row)), committed)


def pending_deletion_of(row: Row) -> PendingDeletion:
    return PendingDeletion(key=row["key"], marked_at_ms=row["doomed_at_ms"])


def stored_object_of(row: Row) -> StoredObject:
    return StoredObject(number=row["object_id"], key=row["key"], size_bytes=row["size_bytes"])
