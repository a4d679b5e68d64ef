"""The HTTP client of agents: topics, read plans, log bounds, and the records of the tail.

Data path   datasource, pipelines -> **client** -> an agent's HTTP listener
Owns        requests and responses, pages of long responses, retries while agents are away
Leaves      the choice of an agent that answers to `client.http`; what a plan means to `datasource.split_planner`
"""

from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from functools import lru_cache
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

import msgspec

from streamhouse.client.http import Http, HttpResponse
from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import Misconfigured, Rejected, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.format.transactions import AbortedTransactions
from streamhouse.model.names import TopicPartition
from streamhouse.model.transaction import AbortedTransaction

T = TypeVar("T")

RETRY_TIMEOUT_S: Final = 20.0
"""How long an agent that is away is waited for: about as long as another one takes to lead in its place."""
CHECK_S: Final = 2.0
"""And how long until somebody has answered at all: an address may be wrong."""
CHECK_TIMEOUT_S: Final = 5.0
FIRST_WAIT_S: Final = 0.1
MAX_WAIT_S: Final = 2.0
REQUEST_TIMEOUT_S: Final = 30.0
MAX_BATCH_BYTES: Final = 8 * 1024 * 1024
PAST_LOG_END: Final = 2**63 - 1
"""An offset that no log reaches: whoever asks from here is told ends, and no runs."""


class OffsetRange(NamedTuple):
    """Offsets [start, end) of a partition; up to its end where `end` is None."""

    place: TopicPartition
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
    """An aborted transaction; its marker stands at `last_offset`."""

    producer_id: int
    first_offset: int
    last_offset: int

    @property
    def aborted(self) -> AbortedTransaction:
        return AbortedTransaction(self.producer_id, self.first_offset, self.last_offset)


class PartitionPlan(msgspec.Struct, frozen=True):
    """`end` is the last stable offset; records from `settled_end` on are with the partition's leader.

    Below that runs have all of them, and what the `aborted` transactions make void.
    """

    topic: str
    partition: int
    log_start: int
    end: int
    flushed_end: int
    runs: list[RunLocation]
    topic_id: str = ""
    """Another one where a topic was deleted and made again; empty where an agent doesn't tell."""
    settled_end: int | None = None
    """`flushed_end` where an agent doesn't tell: it knows of no transactions."""
    aborted: list[AbortedRow] = []

    @property
    def segments_end(self) -> int:
        """Up to where records are read from segments."""
        return self.flushed_end if self.settled_end is None else self.settled_end

    @property
    def void(self) -> AbortedTransactions:
        return AbortedTransactions(row.aborted for row in self.aborted)

    @property
    def place(self) -> TopicPartition:
        return TopicPartition(self.topic, self.partition)


class ReadPlan(msgspec.Struct, frozen=True):
    store: str
    grace_s: float
    partitions: list[PartitionPlan]
    next: str | None = None


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

    def __init__(self, address: str, *, clock: Clock | None = None, patience_s: float = RETRY_TIMEOUT_S) -> None:
        self._clock = clock or SystemClock()
        self._patience_s = patience_s
        self._address = address
        self.http = Http(address, timeout_s=REQUEST_TIMEOUT_S)

    def __repr__(self) -> str:
        return f"<Agents {self.http!r}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.http.__aexit__(kind, error, trace)

    async def meet(self) -> None:
        """See that an agent is there, before anything is asked with patience.

        Raises `Unavailable` soon where nobody is, `Misconfigured` where it is another server that speaks HTTP: what
        that doesn't know would be taken for topics that are not there.
        """
        answer = await self._patiently(
            lambda: self.http.ask("GET", "/v1/cluster", timeout_s=CHECK_TIMEOUT_S), patience_s=CHECK_S
        )
        if answer.status == 404 or (answer.status < 400 and not _is_cluster(answer)):
            raise Misconfigured(
                f"what answers on {self._address} is no agent; status={answer.status};"
                " give the address of an agent's HTTP port, such as localhost:8080"
            )

    async def topics(self) -> dict[str, int]:
        """How many partitions each topic has."""
        told = await self._asked("GET", "/v1/topics", kind=_Topics)
        return {topic.name: topic.partitions for topic in told.topics}

    async def page(self, spans: Sequence[OffsetRange], cursor: str | None = None) -> ReadPlan:
        """Where these spans stand, as much as fits into one answer."""
        body = {"topics": _plan_request_body(spans), "cursor": cursor}
        return await self._asked("POST", "/v1/read-plans", body=body, kind=ReadPlan)

    async def plan(self, spans: Sequence[OffsetRange], *, first: ReadPlan | None = None) -> ReadPlan:
        """Where these spans stand, every partition once; `first` is the first page, if that is there already."""
        page = first or await self.page(spans)
        pages = [page]
        while page.next is not None:
            page = await self.page(spans, page.next)
            pages.append(page)
        return ReadPlan(store=page.store, grace_s=page.grace_s, partitions=merge_pages(pages))

    async def log_bounds(self, places: Iterable[TopicPartition]) -> dict[TopicPartition, PartitionPlan]:
        """Where logs start and end now, without what lies between."""
        plan = await self.plan([OffsetRange(place, PAST_LOG_END) for place in places])
        return {each.place: each for each in plan.partitions}

    async def at_time(self, topic: str, time_ms: int) -> dict[int, int | None]:
        """The first offset of a time or later, by partition; None where there is none."""
        path, params = f"/v1/topics/{quote(topic, safe='')}/offsets", {"timestamp": time_ms}
        told = await self._asked("GET", path, params=params, kind=_OffsetsAtTime)
        return {each.partition: each.offset for each in told.offsets}

    async def batches(self, place: TopicPartition, offset: int) -> HttpResponse:
        """Whole record batches, the first of which has the offset; whatever the answer is."""
        path = f"/v1/topics/{quote(place.topic, safe='')}/partitions/{place.partition}/batches"
        params = {"offset": offset, "max_bytes": MAX_BATCH_BYTES, "wait_ms": 1000}
        return await self._patiently(lambda: self._answered("GET", path, params=params))

    async def wait_for_records(self, place: TopicPartition, offset: int, *, wait_s: float) -> bool:
        """Until something is at an offset, or until the time is over; says which. Asks once, without patience."""
        path = f"/v1/topics/{quote(place.topic, safe='')}/partitions/{place.partition}/batches"
        params = {"offset": offset, "max_bytes": 1, "wait_ms": round(wait_s * 1000)}
        answer = await self._answered("GET", path, params=params)
        if answer.status >= 400:
            raise Unavailable(error_detail(answer))
        return bool(answer.content)

    async def answer(self, method: str, path: str, *, body: object = None) -> HttpResponse:
        """Whatever the answer is, once somebody gives one; for what may be asked twice."""
        return await self._patiently(lambda: self._answered(method, path, body=body))

    async def _asked(
        self,
        method: str,
        path: str,
        *,
        kind: type[T],
        params: Mapping[str, str | int] | None = None,
        body: object = None,
    ) -> T:
        answer = await self._patiently(lambda: self._answered(method, path, params=params, body=body))
        if answer.status == 404:
            raise unknown_topic(answer, "create it, or look at the options topic, subscribe, assign")
        if answer.status >= 400:
            raise Rejected(error_detail(answer))
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected answer; path={path} why={error} do=use the agents' version here") from None

    async def _answered(
        self, method: str, path: str, *, params: Mapping[str, str | int] | None = None, body: object = None
    ) -> HttpResponse:
        answer = await self.http.ask(method, path, params=params, body=body)
        if answer.status >= 500:
            raise Unavailable(error_detail(answer))
        return answer

    async def _patiently(
        self, question: Callable[[], Awaitable[HttpResponse]], *, patience_s: float | None = None
    ) -> HttpResponse:
        """Ask again while agents are away: none of these questions changes anything."""
        wait_s = FIRST_WAIT_S
        deadline = self._clock.monotonic() + (self._patience_s if patience_s is None else patience_s)
        while True:
            try:
                return await question()
            except Unavailable:
                if self._clock.monotonic() + wait_s > deadline:
                    raise
            await self._clock.sleep(wait_s)
            wait_s = min(2 * wait_s, MAX_WAIT_S)


def error_detail(answer: HttpResponse) -> str:
    """The agent's own sentence."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        told = None
    detail = told.get("detail") if isinstance(told, dict) else None
    return str(detail or f"refused; status={answer.status}")


def error_type(answer: HttpResponse) -> str:
    """The name of the agent's error; empty where it says none."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        return ""
    return str(told.get("title", "")) if isinstance(told, dict) else ""


def _is_cluster(answer: HttpResponse) -> bool:
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        return False
    return isinstance(told, dict) and "agents" in told


def unknown_topic(answer: HttpResponse, cure: str | None = None) -> UnknownTopic:
    """The agent's sentence says already what it is that isn't there."""
    error = UnknownTopic.__new__(UnknownTopic)
    StreamhouseError.__init__(error, error_detail(answer) if cure is None else f"{error_detail(answer)} do={cure}")
    return error


def merge_pages(pages: Sequence[ReadPlan]) -> list[PartitionPlan]:
    """Every partition once, with the runs of all pages; what a later page says of its ends is newer."""
    found: dict[TopicPartition, PartitionPlan] = {}
    for plan in (plan for page in pages for plan in page.partitions):
        known = found.get(plan.place)
        if known is not None:
            plan = msgspec.structs.replace(
                plan,
                runs=[*known.runs, *plan.runs],
                end=max(known.end, plan.end),
                aborted=[*known.aborted, *plan.aborted],
            )
        found[plan.place] = plan
    return list(found.values())


def _plan_request_body(spans: Sequence[OffsetRange]) -> list[dict[str, object]]:
    topics: dict[str, list[Mapping[str, object]]] = {}
    for span in spans:
        wanted = {"partition": span.place.partition, "from": span.start, "to": span.end}
        topics.setdefault(span.place.topic, []).append(wanted)
    return [{"topic": topic, "partitions": wanted} for topic, wanted in topics.items()]


MAX_CONNECTED: Final = 4


@lru_cache(maxsize=MAX_CONNECTED)
def _connected(address: str) -> tuple[LoopThread, AgentClient]:
    loop = LoopThread(name="streamhouse-asking")
    return loop, loop.run(_connect(address))


async def _connect(address: str) -> AgentClient:
    return AgentClient(address)


def ask(address: str, method: str, path: str, body: Any = None) -> HttpResponse:
    """The answer, once agents are there; none of what is asked here does harm when it is asked twice."""
    loop, agents = _connected(address)
    return loop.run(agents.answer(method, path, body=body))
