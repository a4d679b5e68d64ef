"""Bodies: bytes of requests come in, within limits of size, time and memory.

Data path   socket -> **bodies** -> endpoint, or an upload piece by piece
Owns        the memory that bodies being read may take together; how long a body, and each piece of it, may take
Leaves      what the bytes mean to `endpoint` and the handlers
"""

import asyncio
from collections.abc import AsyncIterator

from starlette.requests import ClientDisconnect, Request

from streamhouse.config import HttpSettings
from streamhouse.wire.http.errors import BodyTimeout, BodyTooLarge, Malformed, TooManyRequests, UnsupportedMediaType


class Bodies:
    def __init__(self, settings: HttpSettings) -> None:
        self._settings = settings
        self.held_bytes = 0

    def __repr__(self) -> str:
        return f"<Bodies held={self.held_bytes}>"

    async def read(self, request: Request, *, limit: int | None = None) -> bytes:
        """A whole body."""
        allowed = self._settings.max_body_bytes if limit is None else min(limit, self._settings.max_body_bytes)
        self._check_declared(request, allowed)
        body = bytearray()
        held = 0
        try:
            async with asyncio.timeout(self._settings.body_timeout_s):
                async for piece in request.stream():
                    body += piece
                    if len(body) > allowed:
                        raise _too_large(allowed)
                    held += self._hold(len(piece))
        except TimeoutError:
            raise _too_slow(self._settings.body_timeout_s, "http.body_timeout_s") from None
        except ClientDisconnect:
            raise Malformed("the client left before its body was whole") from None
        finally:
            self.held_bytes -= held
        return bytes(body)

    async def pieces(self, request: Request) -> AsyncIterator[bytes]:
        """A body as it comes, for as long as it goes on; ends early, with `Malformed`, when the client leaves."""
        self._check_coding(request)
        stream = request.stream()
        while True:
            try:
                async with asyncio.timeout(self._settings.body_idle_timeout_s):
                    piece = await anext(stream)
            except StopAsyncIteration:
                return
            except TimeoutError:
                raise _too_slow(self._settings.body_idle_timeout_s, "http.body_idle_timeout_s") from None
            except ClientDisconnect:
                raise Malformed("the client left before its body was whole") from None
            yield piece

    def _hold(self, size: int) -> int:
        limit = self._settings.max_inflight_bytes
        if self.held_bytes + size > limit:
            raise TooManyRequests(f"too many bodies at once; limit_bytes={limit} setting=http.max_inflight_bytes")
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


def _too_slow(limit_s: float, setting: str) -> BodyTimeout:
    return BodyTimeout(f"the body came too slowly; limit_s={limit_s:g} setting={setting}")
