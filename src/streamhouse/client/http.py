"""HTTP client of agents: the routes that the client uses and their response types.

Idempotent requests are retried at the next agent when one does not answer.
"""

import ssl
from collections.abc import AsyncIterator, Generator, Mapping, Sequence
from contextlib import asynccontextmanager
from types import TracebackType
from typing import Any, Final, NamedTuple, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec

from streamhouse.client.addresses import DEFAULT_PORT, agent_urls
from streamhouse.client.credentials import NO_CREDENTIALS, Credentials
from streamhouse.client.tls_errors import explain_tls, wants_tls
from streamhouse.client.types import (
    AgentStatus,
    DamagedLog,
    Examination,
    GroupStanding,
    GroupStandings,
    PartitionStatus,
    Segment,
    Transaction,
    TransactionAborted,
)
from streamhouse.clock import Clock, SystemClock
from streamhouse.errors import (
    AccessDenied,
    AnotherTable,
    ConcurrentTransactions,
    GroupAccessDenied,
    GroupNotFound,
    InvalidAcl,
    InvalidCredentials,
    InvalidDefinition,
    Misconfigured,
    NameTaken,
    NotAuthenticated,
    NoWorker,
    PipelineLimit,
    PipelineMoved,
    PlaceLost,
    Rejected,
    SecurityDisabled,
    SecurityLimit,
    StreamhouseError,
    TopicAccessDenied,
    TransactionalIdAccessDenied,
    TransactionalIdNotFound,
    Unavailable,
    UnknownKey,
    UnknownPipeline,
    UnknownQuery,
    UnknownTable,
    UnknownTopic,
    UnknownUser,
    UnknownView,
    UnknownViewRow,
    UserExists,
    ViewRefused,
)
from streamhouse.errors.base import from_text

T = TypeVar("T")

SEGMENTS_PAGE: Final = 10_000
"""Segments per request; agents accept no larger limit."""

_NO_TLS: Final = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
"""For clients without TLS, so that the system's certificate authorities need not be loaded."""

RETRIABLE: Final = (httpx.codes.SERVICE_UNAVAILABLE, httpx.codes.TOO_MANY_REQUESTS)
TOO_MANY_REQUESTS: Final = 429
REFUSED: Final[Mapping[int, type[StreamhouseError]]] = {401: NotAuthenticated, 403: AccessDenied}
"""The errors of logins and access rules, for responses that name none."""
DEFAULT_RETRY_AFTER_S: Final = 1.0
"""Wait after a 429 without a usable `Retry-After`."""
MIN_RETRY_AFTER_S: Final = 0.1
MAX_RETRY_AFTER_S: Final = 60.0
NAMED: Final[Mapping[str, type[StreamhouseError]]] = {
    kind.__name__: kind
    for kind in (
        AccessDenied,
        AnotherTable,
        ConcurrentTransactions,
        GroupAccessDenied,
        GroupNotFound,
        InvalidAcl,
        InvalidCredentials,
        InvalidDefinition,
        NameTaken,
        NoWorker,
        NotAuthenticated,
        PipelineLimit,
        PipelineMoved,
        PlaceLost,
        SecurityDisabled,
        SecurityLimit,
        TopicAccessDenied,
        TransactionalIdAccessDenied,
        TransactionalIdNotFound,
        UnknownKey,
        UnknownPipeline,
        UnknownQuery,
        UnknownTable,
        UnknownTopic,
        UnknownUser,
        UnknownView,
        UnknownViewRow,
        UserExists,
        ViewRefused,
    )
}
"""Errors of agents that callers distinguish by class."""


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
    """An agent in the response of `GET /v1/cluster`."""

    kafka: str
    http: str = ""


class _Cluster(msgspec.Struct, frozen=True, kw_only=True):
    agents: list[_AgentAddresses]
    bootstrap: str | list[str] = ""


SEARCH_TIMEOUT_S: Final = 120.0


class HttpResponse(NamedTuple):
    """`retry_after_s`: seconds until a retry if the agent is overloaded (429); else 0."""

    status: int
    content: bytes
    retry_after_s: float = 0.0


class _Login(httpx.Auth):
    """Adds the authentication header to each request; the token may change between requests."""

    def __init__(self, credentials: Credentials) -> None:
        self._credentials = credentials

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        request.headers.update(self._credentials.headers)
        yield request


class Http:
    """Sends to the address that responded last; if it fails, to the others given and those that the cluster listed."""

    def __init__(
        self,
        address: str,
        *,
        timeout_s: float = 10.0,
        credentials: Credentials = NO_CREDENTIALS,
        transport: httpx.AsyncBaseTransport | None = None,
        clock: Clock | None = None,
    ) -> None:
        self._timeout_s = timeout_s
        self._clock = clock or SystemClock()
        self._credentials = credentials.for_agents(address)
        self._configured = agent_urls(address, scheme=self._credentials.scheme)
        self._listed: list[str] = []
        self._first = self._configured[0]
        self._known: set[str] = set()
        # Proxies from the environment are not used for agents.
        self._client = httpx.AsyncClient(
            timeout=timeout_s,
            trust_env=False,
            transport=transport,
            auth=_Login(self._credentials),
            verify=self._credentials.ssl_context() if self._credentials.uses_tls else _NO_TLS,
        )

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
        response = await self.send("GET", "/v1/cluster")
        if response.status == httpx.codes.NOT_FOUND:  # an older agent without this route
            alive = [agent for agent in await self.agents() if agent.is_alive]
            kafka, http = [agent.kafka for agent in alive], [agent.http for agent in alive]
        else:
            cluster = self._decoded(response, "/v1/cluster", _Cluster)
            listed = cluster.bootstrap.split(",") if isinstance(cluster.bootstrap, str) else cluster.bootstrap
            kafka = [address for address in listed if address] or [agent.kafka for agent in cluster.agents]
            http = [agent.http for agent in cluster.agents if agent.http]
        if not kafka:
            raise Unavailable(f"no agent is alive, says {self._first}; start one with: streamhouse up")
        self._listed = [url for address in http for url in agent_urls(address, scheme=self._credentials.scheme)]
        return ",".join(kafka)

    async def segments(self, topic: str | None = None, *, limit: int = 1000) -> list[Segment]:
        """The first `limit` registered segments by topic, partition and offset, from as many pages as needed."""
        params: dict[str, str | int] = {} if topic is None else {"topic": topic}
        segments: list[Segment] = []
        while len(segments) < limit:
            params["limit"] = min(limit - len(segments), SEGMENTS_PAGE)
            page = await self._get("/v1/segments", params, _Segments)
            segments += page.segments
            if page.cursor is None:
                break
            params["cursor"] = page.cursor
        return sorted(segments, key=lambda s: (s.topic, s.partition, s.base))[:limit]

    # --- the cluster

    async def agents(self) -> list[AgentStatus]:
        """Every agent whose session has not ended, by node."""
        return (await self._get("/v1/agents", {}, _Agents)).agents

    async def metrics(self) -> str:
        """This agent's metrics, in the text format of Prometheus."""
        response = await self.send("GET", "/metrics")
        if response.status >= httpx.codes.BAD_REQUEST:
            raise error_from_response(response) if response.status in REFUSED else _by_status(response)
        return response.content.decode()

    async def drain(self, node: int, *, draining: bool = True) -> list[AgentStatus]:
        """Drain an agent or undo it; returns all agents."""
        path = f"/v1/agents/{node}/drain"
        response = await (self.send("POST", path, body={}) if draining else self.send("DELETE", path))
        return self._decoded(response, path, _Agents).agents

    async def partitions(self, topic: str | None = None, *, local: bool = False) -> list[PartitionStatus]:
        """Partitions by topic and number; with `local` only those that this agent leads."""
        params: dict[str, str | int] = {"local": int(local)} if topic is None else {"local": int(local), "topic": topic}
        return (await self._get("/v1/partitions", params, _Partitions)).partitions

    async def move(self, topic: str, partition: int, node: int | None) -> PartitionStatus:
        """Pin a partition to an agent; None removes the pin. Returns its new status."""
        path, body = "/v1/partitions/move", {"topic": topic, "partition": partition, "node": node}
        (moved,) = self._decoded(await self.send("POST", path, body=body), path, _Partitions).partitions
        return moved

    async def examine(self, *, local: bool = False) -> Examination:
        """Run the agent's checks on itself and, unless `local`, on the shared stores."""
        return await self._get("/v1/doctor", {"local": int(local)}, Examination)

    async def damaged_logs(self) -> list[DamagedLog]:
        """The damaged write-ahead logs that this agent can see."""
        return (await self._get("/v1/damaged-logs", {}, _DamagedLogs)).logs

    async def discard_log(self, session: str) -> int:
        """Delete a damaged log; returns the number of deleted files or objects."""
        path = f"/v1/damaged-logs/{quote(session, safe='')}"
        return self._decoded(await self.send("DELETE", path), path, _Discarded).files

    # --- records

    async def search(self, topic: str, body: Mapping[str, object]) -> dict[str, Any]:
        """One step of a search, as `POST /v1/topics/{topic}/search` answers it; raises `UnknownTopic`."""
        path = f"/v1/topics/{quote(topic, safe='')}/search"
        return self._named(await self.send("POST", path, body=body, timeout_s=SEARCH_TIMEOUT_S), path, dict[str, Any])

    # --- groups

    async def group_lags(self) -> list[GroupStanding]:
        """The lag of all groups as it was last measured, with its history."""
        return (await self._get("/v1/lag", {"history": "true"}, GroupStandings)).groups

    async def group_lag(self, group: str) -> GroupStanding:
        """The lag of a group now, in every partition; raises `GroupNotFound`."""
        path = f"/v1/groups/{quote(group, safe='')}/lag"
        return self._named(await self.send("GET", path), path, GroupStanding)

    # --- transactions

    async def transactions(
        self, *, state: str | None = None, open_for_ms: int = -1, limit: int = 1000
    ) -> list[Transaction]:
        """The first `limit` by transactional id, from as many pages as needed; `open_for_ms`: open for longer."""
        params: dict[str, str | int] = {"open_for_ms": open_for_ms}
        params |= {} if state is None else {"state": state}
        transactions: list[Transaction] = []
        while len(transactions) < limit:
            params["limit"] = min(limit - len(transactions), SEGMENTS_PAGE)
            page = await self._get("/v1/transactions", params, _Transactions)
            transactions += page.transactions
            if page.cursor is None:
                break
            params["cursor"] = page.cursor
        return transactions

    async def transaction(self, transactional_id: str) -> Transaction:
        """A transaction; raises `TransactionalIdNotFound`."""
        path = f"/v1/transactions/{quote(transactional_id, safe='')}"
        return self._named(await self.send("GET", path), path, Transaction)

    async def abort_transaction(self, transactional_id: str) -> TransactionAborted:
        """Fence the producer and abort its open transaction; raises `TransactionalIdNotFound`."""
        path = f"/v1/transactions/{quote(transactional_id, safe='')}/abort"
        return self._named(await self.send("POST", path, body={}), path, TransactionAborted)

    # --- requests

    async def send(
        self,
        method: str,
        path: str,
        *,
        params: Mapping[str, str | int] | None = None,
        body: object = None,
        timeout_s: float | None = None,
    ) -> HttpResponse:
        """Return the response, of any status, of the first agent that sends one; raises `Unavailable` if none does.

        A request is sent to another agent only if there was no connection, or if its method is GET: no request is
        executed twice. An overloaded agent (429) has done nothing: the request is retried after `Retry-After` within
        the timeout. A body of bytes is lines of JSON; anything else becomes JSON.
        """
        deadline = self._clock.monotonic() + (self._timeout_s if timeout_s is None else timeout_s)
        while True:
            response = await self._send_once(method, path, params=params, body=body, timeout_s=timeout_s)
            if response.status != TOO_MANY_REQUESTS or self._clock.monotonic() + response.retry_after_s > deadline:
                return response
            await self._clock.sleep(response.retry_after_s)

    async def _send_once(
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
        not_http: list[str] = []
        failures: list[tuple[str, BaseException]] = []
        for url in dict.fromkeys((self._first, *self._configured, *self._listed)):
            try:
                response = await self._client.request(
                    method, f"{url}{path}", params=params, content=content, headers=headers, timeout=timeout
                )
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.append((url, error))
                continue
            except (httpx.TransportError, OSError) as error:
                failures.append((url, error))
                if method == "GET":
                    if isinstance(error, httpx.RemoteProtocolError) and url not in self._known:
                        not_http.append(url)
                    continue
                raise await _explained([(url, error)]) or Unavailable(
                    f"the agent on {url} went away before it answered; why={str(error) or type(error).__name__};"
                    " the request may or may not have been executed"
                ) from None
            self._first = url
            self._known.add(url)
            return HttpResponse(response.status_code, response.content, retry_after_s(response))
        raise await _explained(failures) or self._no_agent(not_http)

    @asynccontextmanager
    async def lines(self, path: str, body: object) -> AsyncIterator[AsyncIterator[str]]:
        """The lines of a response as they arrive, without a timeout. Raises the agent's error; retries after 429."""
        headers = {"content-type": "application/json", "accept": "application/x-ndjson"}
        content = msgspec.json.encode(body)
        deadline = self._clock.monotonic() + self._timeout_s
        while True:
            async with self._lines_once(path, content, headers) as lines:
                if not isinstance(lines, HttpResponse):
                    yield lines
                    return
            if lines.status != TOO_MANY_REQUESTS or self._clock.monotonic() + lines.retry_after_s > deadline:
                raise error_from_response(lines)
            await self._clock.sleep(lines.retry_after_s)

    @asynccontextmanager
    async def _lines_once(
        self, path: str, content: bytes, headers: Mapping[str, str]
    ) -> AsyncIterator[AsyncIterator[str] | HttpResponse]:
        """The lines, or a response with an error."""
        failures: list[tuple[str, BaseException]] = []
        for url in dict.fromkeys((self._first, *self._configured, *self._listed)):
            stream = self._client.stream("POST", f"{url}{path}", content=content, headers=headers, timeout=None)
            try:
                async with stream as response:
                    self._first = url
                    if response.status_code >= httpx.codes.BAD_REQUEST:
                        yield HttpResponse(response.status_code, await response.aread(), retry_after_s(response))
                    else:
                        yield response.aiter_lines()
                    return
            except (httpx.ConnectError, httpx.ConnectTimeout) as error:
                failures.append((url, error))
                continue
            except (httpx.TransportError, OSError) as error:
                raise await _explained([(url, error)]) or Unavailable(
                    f"the agent on {url} went away; why={str(error) or type(error).__name__}"
                ) from None
        raise await _explained(failures) or self._no_agent()

    def _no_agent(self, not_http: Sequence[str] = ()) -> Unavailable:
        """The error when no agent responds. `not_http`: addresses that accepted the connection and closed it without an
        HTTP response, as a Kafka port does."""
        addresses = ", ".join(self._configured)
        if not_http:
            return Unavailable(
                f"no agent answers on {addresses}; what listens on {', '.join(not_http)} doesn't speak HTTP: is it a"
                " Kafka port? give the address of an agent's HTTP port, such as localhost:8080"
            )
        return Unavailable(
            f"no agent answers on {addresses}; start one with: streamhouse up, or give the address of one that runs"
        )

    async def _get(self, path: str, params: Mapping[str, str | int], kind: type[T]) -> T:
        return self._decoded(await self.send("GET", path, params=params), path, kind)

    def _named(self, response: HttpResponse, path: str, kind: type[T]) -> T:
        """As `_decoded`, with the agent's own error if callers distinguish it."""
        if response.status >= httpx.codes.BAD_REQUEST:
            raise error_from_response(response)
        return self._decoded(response, path, kind)

    def _decoded(self, response: HttpResponse, path: str, kind: type[T]) -> T:
        if response.status >= httpx.codes.BAD_REQUEST:
            raise error_from_response(response) if response.status in REFUSED else _by_status(response)
        try:
            return msgspec.json.decode(response.content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected response; url={self._first}{path} why={error}") from None


def retry_after_s(response: httpx.Response) -> float:
    """Seconds until a retry after 429; 0 for any other response."""
    if response.status_code != TOO_MANY_REQUESTS:
        return 0.0
    header = response.headers.get("retry-after", "")
    seconds = float(header) if header.isascii() and header.isdecimal() else DEFAULT_RETRY_AFTER_S
    return min(max(seconds, MIN_RETRY_AFTER_S), MAX_RETRY_AFTER_S)


def error_from_response(response: HttpResponse) -> StreamhouseError:
    """The error of a response: the class that it names if callers distinguish it, else by status."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        problem = None
    kind = NAMED.get(problem.get("title", "")) if isinstance(problem, dict) else None
    kind = kind or REFUSED.get(response.status)
    return _by_status(response) if kind is None else from_text(kind, _why(response))


def _by_status(response: HttpResponse) -> StreamhouseError:
    return (Unavailable if response.status in RETRIABLE else Rejected)(_why(response))


async def _explained(failures: Sequence[tuple[str, BaseException]]) -> StreamhouseError | None:
    """The first TLS problem among the failures, by address; None if there is none."""
    for url, error in failures:
        address = httpx.URL(url)
        if address.scheme == "https":
            explained = explain_tls(error, url)
            if explained is not None:
                return explained
        elif isinstance(error, httpx.RemoteProtocolError | httpx.ReadError) and await wants_tls(
            address.host, address.port or DEFAULT_PORT
        ):
            return Misconfigured(f"{url} wants TLS; give its address as https://{address.netloc.decode()}")
    return None


def _why(response: HttpResponse) -> str:
    """The detail of the problem (RFC 9457), if there is one."""
    try:
        problem = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        problem = None
    detail = problem.get("detail") if isinstance(problem, dict) else None
    return str(detail) if detail else _phrase(response.status)


def _phrase(status: int) -> str:
    return httpx.codes.get_reason_phrase(status).lower() or "refused"
