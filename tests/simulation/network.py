"""Network: a client's connection to an agent, as the Kafka server treats one.

Owns        order and delay of requests and answers, what a client sees of an agent that dies
Leaves      what is asked to the clients

Like the server: the first stage of requests runs one at a time and in order, also after the client has gone; the
second stage one at a time, in the same order, and only while the client is there. Both run in the agent's process.
"""

import asyncio
import random
from collections import deque
from collections.abc import Callable, Coroutine
from contextvars import Context
from typing import Any, Generic, Protocol, TypeAlias, TypeVar

from streamhouse.broker.broker import Broker
from streamhouse.errors import StreamhouseError

from .loop import Process, SimLoop

T = TypeVar("T")

Finish: TypeAlias = Callable[[], Coroutine[Any, Any, T]]
Begin: TypeAlias = Callable[[Broker], Coroutine[Any, Any, Finish[T]]]

HOP_S = 0.0005


class Lost(Exception):
    """The connection is gone, or nobody answered in time; the request may or may not have happened."""


class Server(Protocol):
    """What a connection leads to."""

    broker: Broker
    process: Process
    is_listening: bool
    connections: "list[Connection]"


class _Request(Generic[T]):
    def __init__(self, begin: Begin[T], response: asyncio.Future[T]) -> None:
        self.begin = begin
        self.response = response


class Connection:
    def __init__(self, loop: SimLoop, server: Server, chance: random.Random) -> None:
        self._loop = loop
        self._server = server
        self._chance = chance
        self._arrives_at = 0.0
        self._answers_at = 0.0
        self._going: deque[_Request[Any]] = deque()
        self._coming: deque[tuple[_Request[Any], Any, StreamhouseError | None]] = deque()
        """On the wire in either direction. Timers may ring in any order; the wire keeps its own."""
        self._arrived: deque[_Request[Any]] = deque()
        self._begun: deque[tuple[_Request[Any], Finish[Any]]] = deque()
        self._unanswered: list[_Request[Any]] = []
        self._worker: asyncio.Task[None] | None = None
        self._responder: asyncio.Task[None] | None = None
        self.is_lost = False
        server.connections.append(self)

    def leads_to(self, server: Server) -> bool:
        return self._server is server

    def leads_where(self, other: "Connection") -> bool:
        return self._server is other._server

    # --- the client's end

    def send(self, begin: Begin[T]) -> asyncio.Future[T]:
        """Send a request; its answer comes as the future's result, a refusal or `Lost` as its exception."""
        response = self._loop.create_future()
        request = _Request(begin, response)
        self._unanswered.append(request)
        if self.is_lost:
            self._fail()
        else:
            self._arrives_at = self._later(self._arrives_at)
            self._going.append(request)
            self._loop.call_at(self._arrives_at, self._arrive, context=Context())
        return response

    def close(self) -> None:
        """The client has lost deadline or interest; the server notices soon."""
        if not self.is_lost:
            self.is_lost = True
            self._fail()
            self._loop.call_at(self._later(self._arrives_at), self._client_gone, context=Context())

    def _later(self, after: float) -> float:
        return max(after, self._loop.time() + self._chance.expovariate(1 / HOP_S)) + 1e-6

    def _fail(self) -> None:
        for request in self._unanswered:
            if not request.response.done():
                request.response.set_exception(Lost())
                request.response.exception()  # seen: a client that has moved on need not look
        self._unanswered.clear()

    # --- the server's end

    def _arrive(self) -> None:
        request = self._going.popleft()
        if self._server.process.is_dead or not self._server.is_listening:
            self.is_lost = True
            self._fail()
            return
        self._arrived.append(request)
        if self._worker is None:
            self._worker = self._loop.spawn(self._server.process, self._work(), name="connection")

    async def _work(self) -> None:
        while self._arrived:
            request = self._arrived.popleft()
            try:
                finish = await request.begin(self._server.broker)
            except StreamhouseError as error:
                self._loop.note(f"refused {error}")
                finish = _refusal(error)
            except Exception as error:
                self._loop.fail(error)
                raise
            if not self.is_lost:
                self._begun.append((request, finish))
            if self._begun and self._responder is None:
                self._responder = self._loop.spawn(self._server.process, self._respond(), name="responder")
        self._worker = None

    async def _respond(self) -> None:
        try:
            while self._begun:
                request, finish = self._begun.popleft()
                try:
                    self._answer(request, await finish(), None)
                except StreamhouseError as error:
                    self._answer(request, None, error)
                except Exception as error:
                    self._loop.fail(error)
                    raise
        finally:
            self._responder = None

    def _answer(self, request: _Request[Any], value: Any, error: StreamhouseError | None) -> None:
        self._answers_at = self._later(self._answers_at)
        self._coming.append((request, value, error))
        self._loop.call_at(self._answers_at, self._deliver, context=Context())

    def _deliver(self) -> None:
        request, value, error = self._coming.popleft()
        if request not in self._unanswered:
            return
        self._unanswered.remove(request)
        if request.response.done():
            return
        if error is None:
            request.response.set_result(value)
        else:
            request.response.set_exception(error)
            request.response.exception()

    def _client_gone(self) -> None:
        self._begun.clear()
        if self._responder is not None and not self._server.process.is_dead:
            self._responder.cancel()

    def server_gone(self) -> None:
        """The agent is dead: what it had answered still arrives, then the client notices."""
        self._loop.call_at(self._later(self._answers_at), self._reset, context=Context())

    def _reset(self) -> None:
        self.is_lost = True
        self._fail()

    def shut(self) -> list["asyncio.Task[None]"]:
        """The server stops: nothing more is begun or answered."""
        self._arrived.clear()
        self._begun.clear()
        tasks = [task for task in (self._worker, self._responder) if task is not None]
        for task in tasks:
            task.cancel()
        return tasks


def _refusal(error: StreamhouseError) -> Finish[Any]:
    async def refuse() -> Any:
        raise error

    return refuse
