"""Request bodies within limits of size, time and memory, and media types of requests and responses.

Owns        the memory that all bodies use together; timeouts of a body and of each chunk, the end of waiting when the
            agent stops; 415 and 406
Leaves      what a body contains to `endpoint` and `records`
"""

import asyncio
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager
from typing import NamedTuple

from starlette.requests import ClientDisconnect, Request

from streamhouse.config import HttpSettings
from streamhouse.errors import Stopping, StreamhouseError
from streamhouse.wire.http.errors import (
    BodyTimeout,
    BodyTooLarge,
    Malformed,
    NotAcceptable,
    TooManyRequests,
    UnsupportedMediaType,
)


class RequestBodies:
    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self._waiting: set[asyncio.Timeout] = set()
        self._is_stopping = False
        self.held_bytes = 0

    def __repr__(self) -> str:
        return f"<RequestBodies held={self.held_bytes}>"

    async def read(self, request: Request, *, limit: int | None = None) -> bytes:
        """Read a body completely."""
        allowed = self._settings.max_body_bytes if limit is None else min(limit, self._settings.max_body_bytes)
        self._check_declared(request, allowed)
        body = bytearray()
        held = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout_s) as timer:
                with self._ended_by_stop(timer):
                    async for piece in request.stream():
                        body += piece
                        if len(body) > allowed:
                            raise _too_large(allowed)
                        held += self._hold(len(piece))
        except TimeoutError:
            raise self._too_slow(self._settings.body_timeout_s, "http.body_timeout_s") from None
        except ClientDisconnect:
            raise Malformed("the client disconnected before the body was complete") from None
        finally:
            self.held_bytes -= held
        return bytes(body)

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """The chunks of a body as they arrive; raises `Malformed` if the client disconnects."""
        self._check_coding(request)
        stream = request.stream()
        while True:
            try:
                async with asyncio.timeout(self._settings.body_idle_timeout_s) as timer:
                    with self._ended_by_stop(timer):
                        piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise self._too_slow(self._settings.body_idle_timeout_s, "http.body_idle_timeout_s") from None
            except ClientDisconnect:
                raise Malformed("the client disconnected before the body was complete") from None
            yield piece

    def stop(self) -> None:
        """Wait for no more bytes: `read` and `pieces` raise `Stopping`."""
        self._is_stopping = True
        for timer in self._waiting:
            end_now(timer)

    @contextmanager
    def _ended_by_stop(self, timer: asyncio.Timeout) -> Iterator[None]:
        if self._is_stopping:
            raise Stopping("the agent is stopping; the body was not complete")
        self._waiting.add(timer)
        try:
            yield
        finally:
            self._waiting.discard(timer)

    def _too_slow(self, limit_s: float, setting: str) -> StreamhouseError:
        if self._is_stopping:
            return Stopping("the agent is stopping; the body was not complete")
        return BodyTimeout(f"the body came too slowly; limit_s={limit_s:g} setting={setting}")

    def _hold(self, size: int) -> int:
        limit = self._settings.max_inflight_bytes
        if self.held_bytes + size > limit:
            raise TooManyRequests(f"too many bodies in flight; limit_bytes={limit} setting=http.max_inflight_bytes")
        self.held_bytes += size
        return size

    def _check_declared(self, request: Request, allowed: int) -> None:
        self._check_coding(request)
        declared = request.headers.get("content-length", "")
        if declared.isdecimal() and len(declared) < 20 and int(declared) > allowed:
            raise _too_large(allowed)

    @staticmethod
    def _check_coding(request: Request) -> None:
        coding = request.headers.get("content-encoding", "identity")
        if coding.strip().lower() != "identity":
            raise UnsupportedMediaType(f"the body must not be compressed; content-encoding={coding[:100]!r}")


def _too_large(limit: int) -> BodyTooLarge:
    return BodyTooLarge(f"the body is too large; limit={limit} setting=http.max_body_bytes")


def end_now(timer: asyncio.Timeout) -> None:
    if not timer.expired():
        timer.reschedule(asyncio.get_running_loop().time())


MAX_NAMED = 200


class _AcceptedType(NamedTuple):
    type: str
    weight: float


def content_type(header: str | None, allowed: Sequence[str]) -> str:
    """The media type of a body; raises `UnsupportedMediaType` if it is not allowed or not UTF-8."""
    media_type, _, parameters = (header or "").partition(";")
    media_type = media_type.strip().lower()
    charset = _parameter(parameters, "charset")
    if media_type not in allowed or charset not in (None, "utf-8", "utf8", "us-ascii"):
        raise UnsupportedMediaType(
            f"the body's media type is not supported; content-type={(header or '')[:MAX_NAMED]!r} "
            f"allowed={' or '.join(allowed)}"
        )
    return media_type


def negotiate_type(header: str | None, offered: Sequence[str]) -> str:
    """The media type of the response: the client's preference among those offered, by default the first."""
    if not header or not offered or header == "*/*":
        return offered[0] if offered else ""
    wishes = [_accepted_type(part) for part in header.split(",")]
    weights = {each: _weight(each, wishes) for each in offered}
    best = max(offered, key=lambda each: weights[each])  # the first of equals
    if weights[best] <= 0:
        raise NotAcceptable(f"no acceptable media type; accept={header[:MAX_NAMED]!r} offered={' or '.join(offered)}")
    return best


def _accepted_type(part: str) -> _AcceptedType:
    media_type, _, parameters = part.partition(";")
    try:
        weight = float(_parameter(parameters, "q") or 1.0)
    except ValueError:
        weight = 0.0
    return _AcceptedType(media_type.strip().lower(), weight)


def _weight(offered: str, wishes: Sequence[_AcceptedType]) -> float:
    """The client's weight of a media type; the most specific entry decides."""
    for pattern in (offered, offered.partition("/")[0] + "/*", "*/*"):
        weights = [wish.weight for wish in wishes if wish.type == pattern]
        if weights:
            return max(weights)
    return 0.0


def _parameter(parameters: str, name: str) -> str | None:
    for each in parameters.split(";"):
        key, _, value = each.partition("=")
        if key.strip().lower() == name:
            return value.strip().strip('"').lower()
    return None
