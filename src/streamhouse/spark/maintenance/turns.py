"""Turns: which supervisor looks after a topic now, kept with the agents as commits of a query of its own.

Data path   none: rounds -> **turns** -> /v1/commits, without segments
Owns        taking, keeping and ending a turn; when a topic is looked after next
Leaves      what is done in a turn to `rounds`; that one of several commits with one number wins, to the agents

Commits of a query are numbered, and a number is given once: who takes the next one has the turn. Clocks that differ, or
a supervisor that goes on behind its turn, cost double work and nothing else: agents replace exactly the runs that a
job has read.
"""

import uuid
from typing import Any, Final, TypeVar

import msgspec

from streamhouse.client.http import Answer
from streamhouse.clock import Clock
from streamhouse.errors import Rejected
from streamhouse.spark.agents import Agents, told_why

T = TypeVar("T")

NAMESPACE: Final = uuid.UUID("6d61696e-7461-494e-8065-766572796461")
NOT_FOUND, CONFLICT = 404, 409


class State(msgspec.Struct, frozen=True, kw_only=True):
    """Whose turn it is, until when, and from when on the topic may be looked at again."""

    by: str
    until_ms: int
    next_at_ms: int


class Turn(msgspec.Struct, frozen=True, kw_only=True):
    query: str
    number: int


class _Commit(msgspec.Struct, frozen=True):
    epoch: int
    progress: Any


class _Placed(msgspec.Struct, frozen=True):
    replayed: bool


class Turns:
    """Those of one supervisor, on one event loop."""

    def __init__(self, agents: Agents, *, name: str, clock: Clock) -> None:
        self._agents, self._name, self._clock = agents, name, clock

    def __repr__(self) -> str:
        return f"<Turns {self._name}>"

    async def take(self, topic_id: str, *, for_s: float) -> Turn | None:
        """The turn, unless it is somebody else's, or the topic was looked after a short while ago."""
        query = str(uuid.uuid5(NAMESPACE, topic_id))
        last = await self._last(query)
        number, state = (0, None) if last is None else (last.epoch, _state(last.progress))
        if state is not None and not is_free(state, now_ms=self._clock.now_ms()):
            return None
        return await self._next(Turn(query=query, number=number), for_s=for_s, pause_s=0)

    async def keep(self, turn: Turn, *, for_s: float) -> Turn | None:
        """The same turn for longer; None where it is somebody else's by now."""
        return await self._next(turn, for_s=for_s, pause_s=0)

    async def end(self, turn: Turn, *, pause_s: float) -> None:
        """Nobody looks after the topic for a while."""
        await self._next(turn, for_s=0, pause_s=pause_s)

    async def _next(self, turn: Turn, *, for_s: float, pause_s: float) -> Turn | None:
        now_ms, number = self._clock.now_ms(), turn.number + 1
        state = State(by=self._name, until_ms=now_ms + round(for_s * 1000), next_at_ms=now_ms + round(pause_s * 1000))
        body = {"query": turn.query, "epoch": number, "progress": state, "segments": []}
        answer = await self._agents.answer("POST", "/v1/commits", body=body)
        if answer.status == CONFLICT:
            return None
        if _decoded(answer, _Placed).replayed:
            # Somebody was first, perhaps this supervisor itself, whose first answer was lost.
            last = await self._last(turn.query)
            if last is None or (last.epoch, _state(last.progress)) != (number, state):
                return None
        return Turn(query=turn.query, number=number)

    async def _last(self, query: str) -> _Commit | None:
        answer = await self._agents.answer("GET", f"/v1/commits/{query}")
        return None if answer.status == NOT_FOUND else _decoded(answer, _Commit)


def is_free(state: State, *, now_ms: int) -> bool:
    return now_ms >= max(state.until_ms, state.next_at_ms)


def _state(progress: object) -> State | None:
    try:
        return msgspec.convert(progress, State)
    except msgspec.ValidationError:
        return None


def _decoded(answer: Answer, kind: type[T]) -> T:
    if answer.status >= 400:
        raise Rejected(told_why(answer))
    try:
        return msgspec.json.decode(answer.content, type=kind)
    except msgspec.DecodeError as error:
        raise Rejected(f"unexpected answer of an agent; why={error} do=use the agents' version here") from None
