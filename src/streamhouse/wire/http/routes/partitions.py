"""Partitions: who leads them, how far they are, and where they should go.

GET  /v1/partitions?topic=…&local=1    all partitions, of one topic or of all; with `local` those that are open here
POST /v1/partitions/move               {"topic": "orders", "partition": 3, "node": 2}; node null: wherever it belongs

The high watermark is null where another agent leads: that agent tells it with `local=1`.
"""

import msgspec
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamhouse.broker.broker import Broker
from streamhouse.broker.cluster.oversight import PartitionStatus
from streamhouse.model.lease import Session
from streamhouse.model.names import TopicPartition
from streamhouse.wire.http.exchange import json_answer, read_body, read_flag


class PartitionView(msgspec.Struct, frozen=True, kw_only=True):
    """A partition, as `streamhouse partitions list` shows it.

    `leader` holds the lease, `owner` should; `local` says that this agent leads it and knows how far it is.
    """

    topic: str
    partition: int
    leader: int | None
    owner: int | None
    pinned_to: int | None
    epoch: int
    lease_expires_in_ms: int | None
    log_start: int
    flushed_end: int
    high_watermark: int | None
    bytes: int
    local: bool


class Partitions(msgspec.Struct, frozen=True, kw_only=True):
    partitions: list[PartitionView]


class Move(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    topic: str
    partition: int
    node: int | None


def routes(broker: Broker) -> list[Route]:
    async def partitions(request: Request) -> Response:
        name = request.query_params.get("topic")
        topics = [await broker.topic(name)] if name else await broker.topics()
        found = await broker.oversight.partitions(topics, local=read_flag(request, "local"))
        return json_answer(Partitions(partitions=[_view(each) for each in found]))

    async def move(request: Request) -> Response:
        asked = await read_body(request, Move)
        name = TopicPartition(asked.topic, asked.partition)
        await broker.oversight.move(name, asked.node)
        return json_answer(Partitions(partitions=[_view(await broker.oversight.partition(name))]))

    return [Route("/v1/partitions", partitions), Route("/v1/partitions/move", move, methods=["POST"])]


def _view(status: PartitionStatus) -> PartitionView:
    return PartitionView(
        topic=status.name.topic,
        partition=status.name.partition,
        leader=_node(status.leader),
        owner=_node(status.owner),
        pinned_to=status.state.pinned_to,
        epoch=status.state.epoch,
        lease_expires_in_ms=status.expires_in_ms,
        log_start=status.log_start,
        flushed_end=status.flushed_end,
        high_watermark=status.high_watermark,
        bytes=status.size_bytes,
        local=status.is_local,
    )


def _node(session: Session | None) -> int | None:
    return session.node_id if session is not None else None
