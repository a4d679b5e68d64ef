"""Peer: one other agent, the connections to it, and how much of it is asked at once.

Data path   peers -> **peer** -> link
Owns        a shared connection for appends, one for questions, one for markers, one per read; limits; when an agent is
            taken for gone
Leaves      bytes to `link`, what is asked to `appends`, `reads`, `groups` and `markers`

Answers come in order, so a read that waits for records has a connection to itself: nothing waits behind it. When its
reader gives up the connection is closed, and the other agent forgets the read.
"""

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from typing import Final, TypeVar

from streamhouse.broker.records.gate import Gate
from streamhouse.clock import Clock
from streamhouse.config import PeerSettings
from streamhouse.errors import Unavailable
from streamhouse.model.lease import Address
from streamhouse.wire.kafka.codec import MalformedMessage
from streamhouse.wire.kafka.peers.link import Link, connect
from streamhouse.wire.kafka.schema import Request, Response

R = TypeVar("R", bound=Response)

AWAY: Final = (OSError, EOFError, TimeoutError, MalformedMessage)

Connect = Callable[[], Awaitable[Link]]


class Peer:
    def __init__(self, at: Address, settings: PeerSettings, clock: Clock) -> None:
        self.at = at
        self._settings = settings
        self._clock = clock
        self._shared: dict[str, asyncio.Task[Link]] = {}
        self._idle: list[Link] = []
        self._away_since: float | None = None
        self._gate = Gate(
            f"requests forwarded to {at}",
            max_items=settings.max_inflight_requests,
            max_bytes=settings.max_inflight_bytes,
            max_waiting=settings.max_waiting,
        )
        self._reads = Gate(
            f"reads at {at}", max_items=settings.max_polls, max_bytes=0, max_waiting=settings.max_waiting
        )

    def __repr__(self) -> str:
        return f"<Peer {self.at} links={self.links} {self._gate!r} {self._reads!r}>"

    @property
    def links(self) -> int:
        return len(self._shared) + len(self._idle) + self._reads.items

    @property
    def is_unused(self) -> bool:
        return not self.links and not self._gate.items

    async def ask(
        self, kind: str, request: Request, version: int, answer: type[R], *, timeout_s: float, size_bytes: int = 0
    ) -> R:
        """On the connection that all requests of this kind share."""
        link: asyncio.Task[Link] | None = None
        try:
            async with asyncio.timeout(timeout_s), self._gate.inside(size_bytes):
                link = self._link(kind)
                return await (await asyncio.shield(link)).ask(request, version, answer)
        except TimeoutError as error:
            if link is not None and self._is_gone(link):
                self._drop(kind, link)
            raise self._no_answer(error) from error
        except AWAY as error:
            if link is not None:
                self._drop(kind, link)
            raise self._no_answer(error) from error

    async def read(self, request: Request, version: int, answer: type[R], *, timeout_s: float) -> R:
        """On a connection of its own."""
        try:
            async with asyncio.timeout(timeout_s), self._reads.inside(0):
                link = self._take_idle() or await self._connect()
                try:
                    response = await link.ask(request, version, answer)
                except BaseException:
                    link.close()
                    raise
                self._keep(link)
                return response
        except AWAY as error:
            raise self._no_answer(error) from error

    def _take_idle(self) -> Link | None:
        while self._idle:
            if (link := self._idle.pop()).is_open:
                return link
        return None

    def _keep(self, link: Link) -> None:
        if len(self._idle) < self._settings.idle_links and link.is_open:
            self._idle.append(link)
        else:
            link.close()

    def _link(self, kind: str) -> "asyncio.Task[Link]":
        link = self._shared.get(kind)
        if link is None:
            work = self._connect()
            link = self._shared[kind] = asyncio.get_running_loop().create_task(work, name="peer")
        return link

    async def _connect(self) -> Link:
        """One that could not be reached a moment ago is not tried by everybody who wants something of it."""
        if self._away_since is not None and self._clock.monotonic() - self._away_since < self._settings.reconnect_s:
            raise ConnectionRefusedError("it could not be reached a moment ago")
        try:
            link = await connect(self.at, clock=self._clock, max_unsent_bytes=self._settings.max_inflight_bytes)
        except OSError:
            self._away_since = self._clock.monotonic()
            raise
        self._away_since = None
        return link

    def _is_gone(self, link: "asyncio.Task[Link]") -> bool:
        """A caller with little time says nothing about the agent; a long silence does."""
        if not link.done():
            return True
        made = not link.cancelled() and link.exception() is None
        return not made or link.result().silent_s >= self._settings.timeout_s

    def _drop(self, kind: str, link: "asyncio.Task[Link]") -> None:
        if self._shared.get(kind) is link:
            del self._shared[kind]
        link.add_done_callback(_close)

    def _no_answer(self, error: BaseException) -> Unavailable:
        why = str(error) or type(error).__name__
        return Unavailable(f"another agent doesn't answer; address={self.at} why={why}")

    async def aclose(self) -> None:
        links, self._shared = list(self._shared.values()), {}
        idle, self._idle = self._idle, []
        for link in links:
            link.cancel()
        for made in await asyncio.gather(*links, return_exceptions=True):
            if isinstance(made, Link):
                await made.aclose()
        for each in idle:
            with suppress(asyncio.CancelledError):
                await each.aclose()


def _close(link: "asyncio.Task[Link]") -> None:
    """Also one that is only being made: others may wait for it, so it is closed when it is there."""
    if not link.cancelled() and link.exception() is None:
        link.result().close()
