"""HTTP client of agents: the routes that the client uses and their response types.

Idempotent requests are retried at the next agent when one does not answer.
"""

from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from streamhouse.client.addresses import agent_urls
from streamhouse.client.types import (
    AgentStatus,
    DamagedLog,
    Examination,
    PartitionStatus,
    Segment,
    Transaction,
    TransactionAborted,
)
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import (
    AnotherTable,
    ConcurrentTransactions,
    InvalidDefinition,
    NameTaken,
    NoWorker,
    PipelineLimit,
    PipelineMoved,
    PlaceLost,
    Rejected,
    StreamhouseError,
    TransactionalIdNotFound,
    Unavailable,
    UnknownPipeline,
    UnknownQuery,
    UnknownTable,
    UnknownView,
    UnknownViewRow,
    ViewRefused,
)

T = TypeVar("T")

SEGMENTS_PAGE: Final = 10_000
"""Segments that one answer is asked for; agents take no larger number."""

RETRIABLE: Final = (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS)
TOO_MANY_REQUESTS: Final = 429
DEFAULT_RETRY_AFTER_S: Final = 1.0
"""How long to wait after a 429 that doesn't say it."""
MIN_RETRY_AFTER_S: Final = 0.1
MAX_RETRY_AFTER_S: Final = 60.0
NAMED: Final[Mapping[str, type[StreamhouseError]]] = {
    kind.__name__: kind
    for kind in (
        AnotherTable,
        ConcurrentTransactions,
        InvalidDefinition,
        NameTaken,
        NoWorker,
        PipelineLimit,
        PipelineMoved,
        PlaceLost,
        TransactionalIdNotFound,
        UnknownPipeline,
        UnknownQuery,
        UnknownTable,
        UnknownView,
        UnknownViewRow,
        ViewRefused,
    )
}
"""Errors of agents that a caller may want to tell from others."""


class _Segments(msgspec.Struct):
    segments: list[Segment]
    cursor: str | None = None


class _Transactions(msgspec.Struct):
    transactions: list[Transaction]
    cursor: str | None = None


class _Agents(msgspec.Struct):
    agents: list[AgentStatus]


class _DamagedLogs(msgspec.Struct):
    logs: list[DamagedLog]


class _Discarded(msgspec.Struct):
    files: int


class _Partitions(msgspec.Struct):
    partitions: list[PartitionStatus]


class _AgentAddresses(msgspec.Struct, frozen=True, kw_only=True):
    """An agent in the answer of `GET /v1/cluster`."""

    kafka: str
    http: str = ""


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[_AgentAddresses]
    bootstrap: str | list[str] = ""


class HttpResponse(NamedTuple):
    """`retry_after_s` is when to ask again, where an agent had too much to do (429); else 0."""

    status: int
    content: bytes
    retry_after_s: float = 0.0


class Http:
    """Asks the first address that answers; the others, and those that the cluster told, when it doesn't."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._given = agent_urls(address)
        self._told: list[str] = []
        self._first = self._given[0]
        self._met: set[str] = set()
        # Proxies of the environment are for the outside world, not for the agent next door.
        self._client = httpx.AsyncClient(timeout=timeout_s, trust_env=False, transport=transport)

    def __repr__(self) -> str:
        return f"<Http {self._first}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def bootstrap(self) -> str:
        """The Kafka addresses of the agents that are alive; their HTTP addresses are remembered."""
        answer = await self.ask("GET", "/v1/cluster")
        if answer.status == httpx.codes.NOT_FOUND:  # an agent from before there was this route
            alive = [agent for agent in await self.agents() if agent.is_alive]
            kafka, told = [agent.kafka for agent in alive], [agent.http for agent in alive]
        else:
            cluster = self._decoded(answer, "/v1/cluster", _Cluster)
            listed = cluster.bootstrap.split(",") if isinstance(cluster.bootstrap, str) else cluster.bootstrap
            kafka = [each for each in listed if each] or [agent.kafka for agent in cluster.agents]
            told = [agent.http for agent in cluster.agents if agent.http]
        if not kafka:
            raise Unavailable(f"no agent is alive, says {self._first}; start one with: streamhouse up")
        self._told = [url for each in told for url in agent_urls(each)]
        return ",".join(kafka)

    async def segments(self, topic: str | None = None, *, limit: int = 1000) -> list[Segment]:
        """The first `limit` registered segments by topic, partition and offset, of as many pages as it takes."""
        params: dict[str, str | int] = {} if topic is None else {"topic": topic}
        found: list[Segment] = []
        while len(found) < limit:
            params["limit"] = min(limit - len(found), SEGMENTS_PAGE)
            answer = await self._get("/v1/segments", params, _Segments)
            found += answer.segments
            if answer.cursor is None:
                break
            params["cursor"] = answer.cursor
        return sorted(found, key=lambda s: (s.topic, s.partition, s.base))[:limit]

    # --- the cluster

    async def agents(self) -> list[AgentStatus]:
        """Every agent whose session has not ended, by node."""
        return (await self._get("/v1/agents", {}, _Agents)).agents

    async def drain(self, node: int, *, draining: bool = True) -> list[AgentStatus]:
        """Have an agent hand everything over, or take its share again; returns the agents as they are then."""
        path = f"/v1/agents/{node}/drain"
        answer = await (self.ask("POST", path, body={}) if draining else self.ask("DELETE", path))
        return self._decoded(answer, path, _Agents).agents

    async def partitions(self, topic: str | None = None, *, local: bool = False) -> list[PartitionStatus]:
        """Partitions by topic and number; with `local` only those that this agent leads."""
        params: dict[str, str | int] = {"local": int(local)} if topic is None else {"local": int(local), "topic": topic}
        return (await self._get("/v1/partitions", params, _Partitions)).partitions

    async def move(self, topic: str, partition: int, node: int | None) -> PartitionStatus:
        """Say who leads a partition from now on; None: whoever would otherwise. Returns it as it is then."""
        path, asked = "/v1/partitions/move", {"topic": topic, "partition": partition, "node": node}
        (moved,) = self._decoded(await self.ask("POST", path, body=asked), path, _Partitions).partitions
        return moved

    async def examine(self, *, local: bool = False) -> Examination:
        """What the agent says about its health, and, unless `local`, about what all agents share."""
        return await self._get("/v1/doctor", {"local": int(local)}, Examination)

    async def damaged_logs(self) -> list[DamagedLog]:
        """The write-ahead logs that are kept because something in them was lost, as far as this agent sees them."""
        return (await self._get("/v1/damaged-logs", {}, _DamagedLogs)).logs

    async def discard_log(self, session: str) -> int:
        """Delete one of them; returns how many files or objects went."""
        path = f"/v1/damaged-logs/{quote(session, safe='')}"
        return self._decoded(await self.ask("DELETE", path), path, _Discarded).files

    # --- transactions

    async def transactions(
        self, *, state: str | None = None, open_for_ms: int = -1, limit: int = 1000
    ) -> list[Transaction]:
        """The first `limit` by transactional id, of as many pages as it takes; `open_for_ms`: open for longer."""
        params: dict[str, str | int] = {"open_for_ms": open_for_ms}
        params |= {} if state is None else {"state": state}
        found: list[Transaction] = []
        while len(found) < limit:
            params["limit"] = min(limit - len(found), SEGMENTS_PAGE)
            answer = await self._get("/v1/transactions", params, _Transactions)
            found += answer.transactions
            if answer.cursor is None:
                break
            params["cursor"] = answer.cursor
        return found

    async def transaction(self, transactional_id: str) -> Transaction:
        """One of them; raises `TransactionalIdNotFound`."""
        path = f"/v1/transactions/{quote(transactional_id, safe='')}"
        return self._named(await self.ask("GET", path), path, Transaction)

    async def abort_transaction(self, transactional_id: str) -> TransactionAborted:
        """Fence the producer, and abort what it has open; raises `TransactionalIdNotFound`."""
        path = f"/v1/transactions/{quote(transactional_id, safe='')}/abort"
        return self._named(await self.ask("POST", path, body={}), path, TransactionAborted)

    # --- asking

    async def ask(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        timeout_s: float | None = None,
    ) -> HttpResponse:
        """The answer, whatever it says, of the first agent that gives one; raises `Unavailable` where none does.

        Nothing is asked twice: another agent is asked only where there was no connection, or when asking does nothing.
        An agent that has too much to do (429) has done nothing: it is asked again when it says, while the time lasts.
        A body of bytes is lines of JSON; anything else becomes JSON. `timeout_s`: another one than usual.
        """
        deadline = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            answer = await self._ask_once(method, path, params=params, body=body, timeout_s=timeout_s)
            if answer.status != TOO_MANY_REQUESTS or self._clock.monotonic() + answer.retry_after_s > deadline:
                return answer
            await self._clock.sleep(answer.retry_after_s)

    async def _ask_once(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None,
        body: object,
        timeout_s: float | None,
    ) -> HttpResponse:
        content = body if body is None or isinstance(body, bytes) else msgspec.json.encode(body)
        kind = "application/x-ndjson" if isinstance(body, bytes) else "application/json"
        headers = {} if content is None else {"content-type": kind}
        timeout = self._client.timeout if timeout_s is None else httpx.Timeout(timeout_s)
        strangers: list[str] = []
        for url in dict.fromkeys((self._first, *self._given, *self._told)):
            try:
                answer = await self._client.request(
                    method, f"{url}{path}", params=params, content=content, headers=headers, timeout=timeout
                )
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except (httpx.TransportError, OSError) as error:
                if method == "GET":
                    if isinstance(error, httpx.RemoteProtocolError) and url not in self._met:
                        strangers.append(url)
                    continue
                raise Unavailable(
                    f"the agent on {url} went away before it answered; why={str(error) or type(error).__name__};"
                    " whether it did what was asked is not known"
                ) from None
            self._first = url
            self._met.add(url)
            return HttpResponse(answer.status_code, answer.content, retry_after_s(answer))
        raise self._nobody(strangers)

    @asynccontextmanager
    async def lines(self, path: str, body: object) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of an answer, as they come, however long that takes; a refusal is raised as `ask`'s callers do.
        After a 429 it is asked again as by `ask`."""
        headers = {"content-type": "application/json", "accept": "application/x-ndjson"}
        content = msgspec.json.encode(body)
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            async with self._lines_once(path, content, headers) as found:
                if not isinstance(found, HttpResponse):
                    yield found
                    return
            if found.status != TOO_MANY_REQUESTS or self._clock.monotonic() + found.retry_after_s > deadline:
                raise error_from_response(found)
            await self._clock.sleep(found.retry_after_s)

    @asynccontextmanager
    async def _lines_once(
        self, path: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[str] | HttpResponse]:
        """The lines, or a refusal."""
        for url in dict.fromkeys((self._first, *self._given, *self._told)):
            stream = self._client.stream("POST", f"{url}{path}", content=content, headers=headers, timeout=None)
            try:
                async with stream as answer:
                    self._first = url
                    if answer.status_code >= httpx.codes.BAD_REQUEST:
                        yield HttpResponse(answer.status_code, await answer.aread(), retry_after_s(answer))
                    else:
                        yield answer.aiter_lines()
                    return
            except (httpx.ConnectError, httpx.ConnectTimeout):
                continue
            except (httpx.TransportError, OSError) as error:
                raise Unavailable(f"the agent on {url} went away; why={str(error) or type(error).__name__}") from None
        raise self._nobody()

    def _nobody(self, strangers: Sequence[str] = ()) -> Unavailable:
        """In words for everybody: commands take addresses by different flags, programs by none. `strangers`: who took
        the connection, and ended it without a word of HTTP, as Kafka's port does."""
        given = ", ".join(self._given)
        if strangers:
            return Unavailable(
                f"no agent answers on {given}; what listens on {', '.join(strangers)} doesn't speak HTTP: is it a port"
                " for Kafka? give the address of an agent's HTTP port, such as localhost:8080"
            )
        return Unavailable(
            f"no agent answers on {given}; start one with: streamhouse up, or give the address of one that runs"
        )

    async def _get(self, path: str, params: Mapping[str, str | int], kind: type[T]) -> T:
        return self._decoded(await self.ask("GET", path, params=params), path, kind)

    def _named(self, answer: HttpResponse, path: str, kind: type[T]) -> T:
        """As `_decoded`, with the agent's own error where callers may want to tell it from others."""
        if answer.status >= httpx.codes.BAD_REQUEST:
            raise error_from_response(answer)
        return self._decoded(answer, path, kind)

    def _decoded(self, answer: HttpResponse, path: str, kind: type[T]) -> T:
        if answer.status in RETRIABLE:
            raise Unavailable(_why(answer))
        if answer.status >= httpx.codes.BAD_REQUEST:
            raise Rejected(_why(answer))
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected answer; url={self._first}{path} why={error}") from None


def retry_after_s(answer: httpx.Response) -> float:
    """When an agent that has too much to do wants to be asked again; 0 for any other answer."""
    if answer.status_code != TOO_MANY_REQUESTS:
        return 0.0
    said = answer.headers.get("retry-after", "")
    seconds = float(said) if said.isascii() and said.isdecimal() else DEFAULT_RETRY_AFTER_S
    return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)


def error_from_response(answer: HttpResponse) -> StreamhouseError:
    """What an agent's refusal means: the error that it names, where callers may want to tell it from others."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        told = None
    kind = NAMED.get(told.get("title", "")) if isinstance(told, dict) else None
    if kind is None:
        kind = Unavailable if answer.status in RETRIABLE else Rejected
    error = kind.__new__(kind)
    StreamhouseError.__init__(error, _why(answer))
    return error


def _why(answer: HttpResponse) -> str:
    """The agent's own sentence where it sent one: problem details, RFC 9457."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        told = None
    detail = told.get("detail") if isinstance(told, dict) else None
    return str(detail) if detail else _phrase(answer.status)


def _phrase(status: int) -> str:
    return httpx.codes.get_reason_phrase(status).lower() or "refused"
