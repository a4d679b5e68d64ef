"""Fetch, API key 1, versions 4-18: record batches out of the log.

Behaviour   batches are returned as they were produced, byte for byte, beginning with the one that has the requested
            offset
            waits until min_bytes are available, a partition has an error or more than fits here, or max_wait_ms
            are over
            the first batch of a response is always whole; max_bytes and partition_max_bytes apply from the second
            one on
            read_committed gets nothing at or above the last stable offset, which is the first offset of the oldest
            transaction that is open, or the high watermark; aborted records are included, and the response lists the
            aborted transactions by producer and first offset (null for read_uncommitted)
            a partition that another agent leads is NOT_LEADER_OR_FOLLOWER, with its leader (v12) and address (v16)
            offsets that are missing or damaged in the store are CORRUPT_MESSAGE, after a delay; others are served
            an agent that stops ends long polls by closing the connection
            rights revoked while a request waits count: it gets TOPIC_AUTHORIZATION_FAILED and no records
Left out    fetch sessions (KIP-227): a client that opens one gets session id 0, which means that there is none and
            makes it send whole requests; continuing an unknown one is FETCH_SESSION_ID_NOT_FOUND
            replicas: a request with a replica id closes the connection
Versions    v5 log start · v7 sessions · v9 leader epoch · v12 flexible · v13 topics by id · v15 replica state
"""

from collections.abc import Iterator, Sequence
from typing import ClassVar, Final

from streamhouse.errors import NotLeader, StreamhouseError, TopicAccessDenied
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import CloseConnection, Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.errors import ErrorCode, read_error_code
from streamhouse.wire.kafka.messages.fetch import AbortedTransaction as ToldAborted
from streamhouse.wire.kafka.messages.fetch import (
    FetchableTopicResponse,
    FetchPartition,
    FetchRequest,
    FetchResponse,
    FetchTopic,
    LeaderIdAndEpoch,
    NodeEndpoint,
    PartitionData,
)
from streamhouse.wire.kafka.schema import Response

LEADERS_SINCE: Final = 12
IDS_SINCE: Final = 13
ADDRESSES_SINCE: Final = 16
READ_COMMITTED: Final = 1
FULL_EPOCHS: Final = (0, -1)
"""Session epochs of full fetch requests: to open a session, or without one."""


@handles(FetchRequest, (4, 18), needs=needs(Operation.READ, ResourceType.TOPIC))
async def handle(context: Context, request: FetchRequest) -> HandlerResult:
    replica = request.replica_state.replica_id if request.replica_state is not None else request.replica_id
    if replica >= 0:
        raise CloseConnection(f"fetch of a replica, but there are no replicas; replica={replica}")
    if request.session_epoch not in FULL_EPOCHS:
        return FetchResponse(error_code=context.count_error(ErrorCode.FETCH_SESSION_ID_NOT_FOUND))
    return PendingFetch(context, request)


class PendingFetch(PendingResponse):
    """Reads and waits when the response is due: no bytes are held for a response that can't be sent yet."""

    __slots__ = ("_context", "_request")
    drain_on_stop: ClassVar[bool] = False

    def __init__(self, context: Context, request: FetchRequest) -> None:
        self._context = context
        self._request = request

    async def respond(self) -> Response:
        request = self._request
        named = [(topic, await self._name_of(topic)) async for topic in iterate_fairly(request.topics)]
        committed = request.isolation_level == READ_COMMITTED
        requested = [
            item for topic, name in named if isinstance(name, str) for item in _fetch_request(name, topic, committed)
        ]
        # An error of a partition ends the long poll.
        patient = len(requested) > 0 and all(isinstance(name, str) for _, name in named)
        access = self._context.broker.security.access
        generation = access.generation
        result = await self._context.broker.fetch(
            requested,
            max_bytes=max(request.max_bytes, 0),
            min_bytes=max(request.min_bytes, 0) if patient else 0,
            max_wait_s=max(request.max_wait_ms, 0) / 1000 if patient else 0.0,
        )
        if access.generation != generation:
            result = self._still_permitted(requested, result)
        results = iter(result)
        return FetchResponse(
            responses=[self._topic(topic, name, results) async for topic, name in iterate_fairly(named)],
            node_endpoints=_endpoints(self._context, result) if self._context.version >= ADDRESSES_SINCE else [],
        )

    def _still_permitted(self, requested: Sequence[PartitionFetch], result: Sequence[FetchResult]) -> list[FetchResult]:
        """The result without the records of topics that the caller may not read any more: rules changed meanwhile."""
        checked: list[FetchResult] = []
        for part, each in zip(requested, result, strict=True):
            try:
                self._context.check_topic(Operation.READ, part.name.topic)
                checked.append(each)
            except TopicAccessDenied as error:
                checked.append(FetchResult(name=part.name, error=error))
        return checked

    async def _name_of(self, topic: FetchTopic) -> str | ErrorCode:
        try:
            name = topic.topic
            if self._context.version >= IDS_SINCE:
                name = (await self._context.topic_by_id(topic.topic_id)).name
            self._context.check_topic(Operation.READ, name)
        except StreamhouseError as error:
            return self._context.count_error(error)
        return name

    def _topic(
        self, topic: FetchTopic, name: str | ErrorCode, results: Iterator[FetchResult]
    ) -> FetchableTopicResponse:
        partitions = (
            [self._partition(part, next(results)) for part in topic.partitions]
            if isinstance(name, str)
            else [_rejection(part, name) for part in topic.partitions]
        )
        return FetchableTopicResponse(topic=topic.topic, topic_id=topic.topic_id, partitions=partitions)

    def _partition(self, part: FetchPartition, result: FetchResult) -> PartitionData:
        if result.error is not None:
            leader = _leader(result.error) if self._context.version >= LEADERS_SINCE else None
            return _rejection(part, self._context.count_error(read_error_code(result.error)), leader)
        return PartitionData(
            partition_index=part.partition,
            high_watermark=result.high_watermark,
            last_stable_offset=result.last_stable,
            log_start_offset=result.log_start,
            aborted_transactions=_aborted(result) if self._request.isolation_level == READ_COMMITTED else None,
            records=list(result.records),
        )


def _aborted(result: FetchResult) -> list[ToldAborted]:
    return [ToldAborted(producer_id=each.producer_id, first_offset=each.first_offset) for each in result.aborted]


def _fetch_request(name: str, topic: FetchTopic, committed: bool) -> Sequence[PartitionFetch]:
    return [
        PartitionFetch(
            TopicPartition(name, part.partition),
            part.fetch_offset,
            max(part.partition_max_bytes, 0),
            part.current_leader_epoch,
            committed,
        )
        for part in topic.partitions
    ]


def _rejection(part: FetchPartition, code: ErrorCode, leader: LeaderIdAndEpoch | None = None) -> PartitionData:
    return PartitionData(
        partition_index=part.partition,
        error_code=code,
        high_watermark=-1,
        aborted_transactions=None,
        records=b"",
        current_leader=leader,
    )


def _leader(error: StreamhouseError) -> LeaderIdAndEpoch | None:
    if not isinstance(error, NotLeader) or error.node_id is None:
        return None
    return LeaderIdAndEpoch(leader_id=error.node_id, leader_epoch=error.epoch)


def _endpoints(context: Context, result: Sequence[FetchResult]) -> list[NodeEndpoint]:
    """Addresses of the leaders that the response names."""
    leaders = {got.error.node_id: got.error.address for got in result if isinstance(got.error, NotLeader)}
    return [
        NodeEndpoint(node_id=node, host=address.host, port=address.port) for node, address in context.addresses(leaders)
    ]
