"""Http: what an agent tells over its HTTP listener.

Data path   command line -> **http** -> an agent's HTTP listener
Owns        the routes that the client uses and the shapes they answer with
Leaves      the routes themselves to `wire.http`
"""

from collections.abc import Awaitable
from types import TracebackType
from typing import Self, TypeVar

import httpx
import msgspec

from streamhouse.client.nouns import AgentStatus, Examination, PartitionStatus, Segment
from streamhouse.errors import Rejected, Unavailable

T = TypeVar("T")


class _Segments(msgspec.Struct):
    segments: list[Segment]


class _Agents(msgspec.Struct):
    agents: list[AgentStatus]


class _Partitions(msgspec.Struct):
    partitions: list[PartitionStatus]


class Http:
    def __init__(
        self, address: str, *, timeout_s: float = 10.0, transport: httpx.AsyncBaseTransport | None = None
    ) -> None:
        self._address = address
        # Proxies of the environment are for the outside world, not for the agent next door.
        self._client = httpx.AsyncClient(
            base_url=f"http://{address}", timeout=timeout_s, trust_env=False, transport=transport
        )

    def __repr__(self) -> str:
        return f"<Http {self._address}>"

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.aclose()

    async def segments(self, topic: str | None = None, *, limit: int = 1000) -> list[Segment]:
        """The registered segments by topic, partition and offset; at most `limit` of each topic."""
        params: dict[str, str | int] = {"limit": limit} if topic is None else {"limit": limit, "topic": topic}
        answer = await self._get("/v1/segments", params, _Segments)
        return sorted(answer.segments, key=lambda s: (s.topic, s.partition, s.base))

    # --- the cluster

    async def agents(self) -> list[AgentStatus]:
        """Every agent whose session has not ended, by node."""
        return (await self._get("/v1/agents", {}, _Agents)).agents

    async def drain(self, node: int, *, draining: bool = True) -> list[AgentStatus]:
        """Have an agent hand everything over, or take its share again; returns the agents as they are then."""
        path = f"/v1/agents/{node}/drain"
        asking = self._client.post(path, json={}) if draining else self._client.delete(path)
        return (await self._answered(asking, path, _Agents)).agents

    async def partitions(self, topic: str | None = None, *, local: bool = False) -> list[PartitionStatus]:
        """Partitions by topic and number; with `local` only those that this agent leads."""
        params: dict[str, str | int] = {"local": int(local)} if topic is None else {"local": int(local), "topic": topic}
        return (await self._get("/v1/partitions", params, _Partitions)).partitions

    async def move(self, topic: str, partition: int, node: int | None) -> PartitionStatus:
        """Say who leads a partition from now on; None: whoever would otherwise. Returns it as it is then."""
        path, asked = "/v1/partitions/move", {"topic": topic, "partition": partition, "node": node}
        (moved,) = (await self._answered(self._client.post(path, json=asked), path, _Partitions)).partitions
        return moved

    async def examine(self, *, local: bool = False) -> Examination:
        """What the agent says about its health, and, unless `local`, about what all agents share."""
        return await self._get("/v1/doctor", {"local": int(local)}, Examination)

    # --- asking

    async def _get(self, path: str, params: dict[str, str | int], kind: type[T]) -> T:
        return await self._answered(self._client.get(path, params=params), path, kind)

    async def _answered(self, asking: Awaitable[httpx.Response], path: str, kind: type[T]) -> T:
        try:
            answer = await asking
        except (httpx.TransportError, OSError):
            raise Unavailable(
                f"no agent answers on http://{self._address}; start one with: streamhouse up, or name it with --http"
            ) from None
        if answer.status_code == httpx.codes.SERVICE_UNAVAILABLE:
            raise Unavailable(_why(answer))
        if answer.is_error:
            raise Rejected(_why(answer))
        try:
            return msgspec.json.decode(answer.content, type=kind)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected answer; url=http://{self._address}{path} why={error}") from None


def _why(answer: httpx.Response) -> str:
    """The agent's own sentence where it sent one: problem details, RFC 9457."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        told = None
    detail = told.get("detail") if isinstance(told, dict) else None
    return str(detail) if detail else answer.reason_phrase.lower() or "refused"
