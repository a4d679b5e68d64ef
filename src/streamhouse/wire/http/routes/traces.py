"""What pipelines have read, for the traces of the records; not part of the OpenAPI document.

POST /v1/traces/reads    {"reads": [{"pipeline": "large", "topic": "orders", "partition": 0, "start": 5, "end": 9, …}]}

A supervisor reports the offsets that its pipelines have read in its heartbeat, to any agent. Leaders know the traced
records, so the agent tells the others. Nothing of this is done where tracing is off, and nothing waits for it.
"""

import asyncio
import logging
from collections.abc import Iterable, Mapping, Sequence
from typing import Annotated, Any, Final, Protocol

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.needs import processes_only
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.operations import MAX_INT, MAX_LONG, Call, NoQuery, Operation
from streamhouse.wire.http.routes.pipeline_types import StatusView

log = logging.getLogger(__name__)

MAX_READS: Final = 10_000
PEER_TIMEOUT_S: Final = 2.0


class TracedRead(Element, frozen=True, kw_only=True):
    """A pipeline has read the offsets [start, end) of a partition; its last micro-batch took `batch_ms`."""

    pipeline: Annotated[str, Meta(max_length=300)]
    topic: Annotated[str, Meta(max_length=249)]
    partition: Annotated[int, Meta(ge=0, le=MAX_INT)]
    start: Annotated[int, Meta(ge=0, le=MAX_LONG)]
    end: Annotated[int, Meta(ge=0, le=MAX_LONG)]
    batch_ms: Annotated[int, Meta(ge=0, le=MAX_LONG)] = 0


class TracedReads(msgspec.Struct, frozen=True, kw_only=True):
    reads: Annotated[list[TracedRead], Meta(max_length=MAX_READS)]


class TracePeers(Protocol):
    """The HTTP ports of other agents."""

    async def trace_reads(self, at: Address, body: msgspec.Struct, *, timeout_s: float) -> None:
        """`POST /v1/traces/reads`; raises `Unavailable`."""
        ...


class ReadRelay:
    """Passes reads on to the traces of this agent and of the others."""

    def __init__(self, broker: Broker, peers: TracePeers | None) -> None:
        self._broker = broker
        self._peers = peers
        self._telling: set[asyncio.Task[None]] = set()

    def __repr__(self) -> str:
        return f"<ReadRelay telling={len(self._telling)}>"

    def tell(self, statuses: Mapping[str, StatusView | None]) -> None:
        """`statuses`: what pipelines reported, by their names. Returns at once; does nothing without tracing."""
        if self._broker.traces is None or self._telling:
            return
        reads = [read for name, status in statuses.items() for read in reads_of(name, status)][:MAX_READS]
        if reads:
            task = asyncio.get_running_loop().create_task(self._tell(reads), name="trace-reads")
            self._telling.add(task)
            task.add_done_callback(self._telling.discard)

    async def _tell(self, reads: list[TracedRead]) -> None:
        others = [each for each in self._broker.agents() if each.node_id != self._broker.node_id]
        body = TracedReads(reads=reads)
        await asyncio.gather(note_reads(self._broker, reads), *(self._tell_peer(each.http, body) for each in others))

    async def _tell_peer(self, at: Address, body: TracedReads) -> None:
        if self._peers is None:
            return
        try:
            await self._peers.trace_reads(at, body, timeout_s=PEER_TIMEOUT_S)
        except Unavailable as error:
            log.debug("progress of pipelines not sent to an agent", extra={"why": str(error)})


def reads_of(pipeline: str, status: StatusView | None) -> Sequence[TracedRead]:
    """What a status says about offsets; nothing where it doesn't, or not in the form that runners write."""
    if status is None or status.progress is None:
        return []
    try:
        read = status.progress.get("read") or {}
        return [
            TracedRead(
                pipeline=pipeline,
                topic=topic,
                partition=int(partition),
                start=start,
                end=end,
                batch_ms=max(0, status.batch_ms or 0),
            )
            for topic, partitions in read.items()
            for partition, (start, end) in partitions.items()
        ]
    except (TypeError, ValueError, AttributeError):
        return []


async def note_reads(broker: Broker, reads: Iterable[TracedRead]) -> None:
    """Write spans for the traced records among these, as far as this agent follows them."""
    traces = broker.traces
    if traces is None:
        return
    for read in reads:
        try:
            topic = await broker.topic(read.topic)
        except StreamhouseError:
            continue
        traces.processed(
            read.pipeline,
            TopicPartition(read.topic, read.partition),
            PartitionId(topic.topic_id, read.partition),
            read.start,
            read.end,
            batch_ms=read.batch_ms,
        )


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def trace_reads(call: Call[NoQuery, TracedReads]) -> Response:
        await note_reads(broker, call.body.reads)
        return Response(status_code=204)

    return [
        Operation(
            method="POST",
            path="/v1/traces/reads",
            handler=trace_reads,
            needs=processes_only(),
            summary="Progress of pipelines (between agents)",
            tag="agents",
            query=NoQuery,
            body=TracedReads,
            status=204,
        )
    ]
