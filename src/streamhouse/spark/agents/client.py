"""The HTTP client of agents: topics, read plans, log bounds, and the records of the tail.

Data path   datasource, pipelines -> **client** -> an agent's HTTP listener
Owns        requests and responses, pages of long responses, retries while agents are away
Leaves      the choice of an agent that answers to `client.http`; what a plan means to `datasource.split_planner`
"""

from collections.abc import Awaitable, Callable, Coroutine, Iterable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec

from streamhouse.client.http import REFUSED, HttpResponse, error_from_response
from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Misconfigured, Rejected, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import AbortedTransaction
from streamhouse.spark.agents.address import AgentAddress, open_http

T = TypeVar("T")

RETRY_TIMEOUT_S: Final = 20.0
"""How long requests are retried: about as long as another agent needs to take over a partition."""
CHECK_S: Final = 2.0
"""How long the first request is retried: the address may be wrong."""
CHECK_TIMEOUT_S: Final = 5.0
FIRST_WAIT_S: Final = 0.1
MAX_WAIT_S: Final = 2.0
REQUEST_TIMEOUT_S: Final = 30.0
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
PAST_LOG_END: Final = 2**63 - 1
"""An offset beyond every log: a read plan from here has log ends, and no runs."""


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition; up to its end where `end` is None."""

    partition: TopicPartition
    start: int
    end: int | None = None


class RunLocation(msgspec.Struct, frozen=True):
    """Offsets [base, end) of a partition in an object, where they count from `stored_base`."""

    key: str
    base: int
    end: int
    stored_base: int
    position: int
    length: int
    index_position: int
    index_length: int
    records: int
    max_timestamp_ms: int


class AbortedRow(msgspec.Struct, frozen=True):
    """An aborted transaction; its marker is at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int

    @property
    def aborted(self) -> AbortedTransaction:
        return AbortedTransaction(self.producer_id, self.first_offset, self.last_offset)


class PartitionPlan(msgspec.Struct, frozen=True):
    """`end` is the last stable offset; records from `settled_end` on are with the partition's leader.

    Below that, runs have all records, those of `aborted` transactions among them.
    """

    topic: str
    partition: int
    log_start: int
    end: int
    flushed_end: int
    runs: list[RunLocation]
    topic_id: str = ""
    """Changes when a topic is deleted and created again; empty from an old agent."""
    settled_end: int | None = None
    """None from an old agent, which knows of no transactions: `flushed_end` then."""
    aborted: list[AbortedRow] = []

    @property
    def segments_end(self) -> int:
        """The offset up to which records are read from segments."""
        return self.flushed_end if self.settled_end is None else self.settled_end

    @property
    def aborted_transactions(self) -> AbortedTransactions:
        return AbortedTransactions(row.aborted for row in self.aborted)

    @property
    def topic_partition(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReadPlan(msgspec.Struct, frozen=True):
    store: str
    grace_s: float
    partitions: list[PartitionPlan]
    next: str | None = None
    can_sign: bool = False


class _Topic(msgspec.Struct, frozen=True):
    name: str
    partitions: int


class _Topics(msgspec.Struct, frozen=True):
    topics: list[_Topic]


class _OffsetAtTime(msgspec.Struct, frozen=True):
    partition: int
    offset: int | None


class _OffsetsAtTime(msgspec.Struct, frozen=True):
    offsets: list[_OffsetAtTime]


class AgentClient:
    """Use it in `async with`, on one event loop."""

    def __init__(
        self, address: AgentAddress, *, clock: Clock | None = None, retry_timeout_s: float = RETRY_TIMEOUT_S
    ) -> None:
        self._clock = clock or SystemClock()
        self._retry_timeout_s = retry_timeout_s
        self._address = address
        self.http = open_http(address, timeout_s=REQUEST_TIMEOUT_S)

    def __repr__(self) -> str:
        return f"<AgentClient {self.http!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.__aexit__(kind, error, trace)

    async def check_agent(self) -> None:
        """Check that an agent answers, before requests are retried for long.

        Raises `Unavailable` after `CHECK_S` without an agent, `Misconfigured` if another HTTP server answers: its 404s
        would look like unknown topics.
        """
        response = await self._retry(
            lambda: self.http.send("GET", "/v1/cluster", timeout_s=CHECK_TIMEOUT_S), retry_timeout_s=CHECK_S
        )
        if response.status in REFUSED:
            raise error_from_response(response)
        if response.status == 404 or (response.status < 400 and not _is_cluster(response)):
            raise Misconfigured(
                f"the server at {self._address} is not an agent; status={response.status};"
                " give the address of an agent's HTTP port, such as localhost:8080"
            )

    async def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        response = await self._request("GET", "/v1/topics", kind=_Topics)
        return {topic.name: topic.partitions for topic in response.topics}

    async def page(self, spans: Sequence[OffsetRange], cursor: str | None = None) -> ReadPlan:
        """One page of the read plan of these ranges."""
        body = {"topics": _plan_request_body(spans), "cursor": cursor}
        return await self._request("POST", "/v1/read-plans", body=body, kind=ReadPlan)

    async def plan(self, spans: Sequence[OffsetRange], *, first: ReadPlan | None = None) -> ReadPlan:
        """The read plan of these ranges, each partition once; `first` is the first page, if it was fetched already."""
        page = first or await self.page(spans)
        pages = [page]
        while page.next is not None:
            page = await self.page(spans, page.next)
            pages.append(page)
        return msgspec.structs.replace(page, partitions=merge_pages(pages), next=None)

    async def log_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionPlan]:
        """Where logs start and end now, without runs."""
        plan = await self.plan([OffsetRange(partition, PAST_LOG_END) for partition in partitions])
        return {each.topic_partition: each for each in plan.partitions}

    async def offsets_for_timestamp(self, topic: str, time_ms: int) -> dict[int, int | None]:
        """The first offset with this timestamp or a later one, by partition; None where there is none."""
        path, params = f"/v1/topics/{quote(topic, safe='')}/offsets", {"timestamp": time_ms}
        response = await self._request("GET", path, params=params, kind=_OffsetsAtTime)
        return {each.partition: each.offset for each in response.offsets}

    async def batches(self, partition: TopicPartition, offset: int) -> HttpResponse:
        """Whole record batches, the first of which has the offset; returns error responses, too."""
        path = f"/v1/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/batches"
        params = {"offset": offset, "max_bytes": MAX_BATCH_BYTES, "wait_ms": 1000}
        return await self._retry(lambda: self._send("GET", path, params=params))

    async def wait_for_records(self, partition: TopicPartition, offset: int, *, wait_s: float) -> bool:
        """Wait until a record is at the offset; False when the time is over. Not retried."""
        path = f"/v1/topics/{quote(partition.topic, safe='')}/partitions/{partition.partition}/batches"
        params = {"offset": offset, "max_bytes": 1, "wait_ms": round(wait_s * 1000)}
        response = await self._send("GET", path, params=params)
        if response.status >= 400:
            raise Unavailable(error_detail(response))
        return bool(response.content)

    async def send(self, method: str, path: str, *, body: object = None) -> HttpResponse:
        """Send an idempotent request until an agent responds; returns error responses, too."""
        return await self._retry(lambda: self._send(method, path, body=body))

    async def _request(
        self,
        method: str,
        path: str,
        *,
        kind: type[T],
        params: Mapping[str, str | int] | None = None,
        body: object = None,
    ) -> T:
        response = await self._retry(lambda: self._send(method, path, params=params, body=body))
        if response.status == 404:
            raise unknown_topic(response, "create it, or look at the options topic, subscribe, assign")
        if response.status >= 400:
            raise Rejected(error_detail(response))
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected response; path={path} error={error} do=use the agents' version here") from None

    async def _send(
        self, method: str, path: str, *, params: Mapping[str, str | int] | None = None, body: object = None
    ) -> HttpResponse:
        response = await self.http.send(method, path, params=params, body=body)
        if response.status in REFUSED:
            raise error_from_response(response)
        if response.status >= 500:
            raise Unavailable(error_detail(response))
        return response

    async def _retry(
        self, request: Callable[[], Awaitable[HttpResponse]], *, retry_timeout_s: float | None = None
    ) -> HttpResponse:
        """Repeat a request while no agent is available. Only for idempotent requests."""
        wait_s = FIRST_WAIT_S
        deadline = self._clock.monotonic() + (self._retry_timeout_s if retry_timeout_s is None else retry_timeout_s)
        while True:
            try:
                return await request()
            except Unavailable:
                if self._clock.monotonic() + wait_s > deadline:
                    raise
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)


def error_detail(response: HttpResponse) -> str:
    """The agent's own sentence."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        problem = None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return str(detail or f"refused; status={response.status}")


def error_type(response: HttpResponse) -> str:
    """The name of the agent's error class; empty if the response has none."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return ""
    return str(problem.get("title", "")) if isinstance(problem, dict) else ""


def _is_cluster(response: HttpResponse) -> bool:
    try:
        cluster = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        return False
    return isinstance(cluster, dict) and "agents" in cluster


def unknown_topic(response: HttpResponse, cure: str | None = None) -> UnknownTopic:
    """An `UnknownTopic` with the agent's message, which names what doesn't exist."""
    error = UnknownTopic.__new__(UnknownTopic)
    StreamhouseError.__init__(error, error_detail(response) if cure is None else f"{error_detail(response)} do={cure}")
    return error


def merge_pages(pages: Sequence[ReadPlan]) -> list[PartitionPlan]:
    """Every partition once, with the runs of all pages; the bounds of a later page are newer."""
    merged: dict[TopicPartition, PartitionPlan] = {}
    for plan in (plan for page in pages for plan in page.partitions):
        known = merged.get(plan.topic_partition)
        if known is not None:
            plan = msgspec.structs.replace(
                plan,
                runs=[*known.runs, *plan.runs],
                end=max(known.end, plan.end),
                aborted=[*known.aborted, *plan.aborted],
            )
        merged[plan.topic_partition] = plan
    return list(merged.values())


def _plan_request_body(spans: Sequence[OffsetRange]) -> list[dict[str, object]]:
    topics: dict[str, list[Mapping[str, object]]] = {}
    for span in spans:
        partition_range = {"partition": span.partition.partition, "from": span.start, "to": span.end}
        topics.setdefault(span.partition.topic, []).append(partition_range)
    return [{"topic": topic, "partitions": ranges} for topic, ranges in topics.items()]


MAX_CONNECTED: Final = 8
"""Clusters whose agents a process keeps connections to."""


class SyncAgentClient:
    """`AgentClient` for code without an event loop. Calls block; several threads may use it at once."""

    def __init__(self, address: AgentAddress) -> None:
        self._agents = run_on_loop(_connect(address))

    def __repr__(self) -> str:
        return f"<SyncAgentClient {self._agents!r}>"

    def topics(self) -> dict[str, int]:
        return run_on_loop(self._agents.topics())

    def log_bounds(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionPlan]:
        return run_on_loop(self._agents.log_bounds(partitions))

    def batches(self, partition: TopicPartition, offset: int) -> HttpResponse:
        return run_on_loop(self._agents.batches(partition, offset))

    def send(self, method: str, path: str, *, body: object = None) -> HttpResponse:
        return run_on_loop(self._agents.send(method, path, body=body))


@lru_cache(maxsize=MAX_CONNECTED)
def connect(address: AgentAddress) -> SyncAgentClient:
    """The client of an address, cached: Spark's Python workers serve many tasks, and keep their connections."""
    return SyncAgentClient(address)


async def _connect(address: AgentAddress) -> AgentClient:
    return AgentClient(address)


def run_on_loop(work: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine on the process's one event loop for requests to agents, and wait for it."""
    return _loop_thread().run(work)


@lru_cache(maxsize=1)
def _loop_thread() -> LoopThread:
    return LoopThread(name="streamhouse-agents")
