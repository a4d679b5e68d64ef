"""Http: what an agent tells over its HTTP listener.

Data path   command line -> **http** -> an agent's HTTP listener
Owns        the routes that the client uses and the shapes they answer with
Leaves      the routes themselves to `wire.http`
"""

from types import TracebackType
from typing import Self, TypeVar

import httpx
import msgspec

from streamhouse.client.nouns import Segment
from streamhouse.errors import Rejected, Unavailable

T = TypeVar("T")


class _Segments(msgspec.Struct):
    segments: list[Segment]


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

    async def _get(self, path: str, params: dict[str, str | int], kind: type[T]) -> T:
        try:
            answer = await self._client.get(path, params=params)
        except (httpx.TransportError, OSError):
            raise Unavailable(
                f"no agent answers on http://{self._address}; start one with: streamhouse up, or name it with --http"
            ) from None
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
