"""Departed: agents that went a moment ago: still named to Kafka clients; after a death given nothing when back at once.

Data path   roll of sessions -> **departed** -> Metadata answers, connections, placement
Owns        how long a dead agent's address is told, and how long a departed agent's id leads to a living one; how long
            an agent that came back has to wait for partitions
Leaves      who is alive to `cluster`, who leads its partitions now to placement and leases

librdkafka drops a broker that an answer doesn't name, and what its partitions were waiting for with it: the leaders
that the same answer names are believed only after its next question, a second later. While the dead agent is named
beside them, its partitions move at once. An agent that left in order has given everything away before, and isn't kept.

Java clients, and librdkafka's admin calls, wait for an agent that they chose by its id until the call's deadline, a
minute, also when it is gone from the answers: for as long, the id of an agent that died or left is listed with a living
agent's address. When the id is an agent's own again, connections that were made to others for it are wrong, and Java
clients keep them: `misdirected` says which ones may be.

Clients don't knock at once again where they were refused: librdkafka waits for up to ten seconds, and whatever is led
there waits with it, although the agent is back. So its partitions stay with those who took them over for that long.
"""

from collections.abc import Collection, Mapping
from typing import Final, NamedTuple

from streamhouse.clock import Clock
from streamhouse.config import ClusterSettings
from streamhouse.model.cluster import Membership, Session
from streamhouse.model.names import NodeId, SessionId

REMEMBERED_S: Final = 3600.0
"""How long after it went an agent's id is remembered: longer than clients keep connections that they don't use."""
MAX_REMEMBERED: Final = 1000
MISDIRECTED_S: Final = 3.0
"""How long after an agent's return others may still name its id with a living agent's address."""


class _Departure(NamedTuple):
    session: Session
    noticed_at: float
    died: bool
    back_at: float | None = None


class DepartedAgents:
    def __init__(self, settings: ClusterSettings, *, clock: Clock) -> None:
        self._listed_s = settings.departed_listed_s
        self._redirected_s = settings.departed_redirected_s
        self._return_wait_s = settings.return_wait_s
        self._clock = clock
        self._departures: dict[NodeId, _Departure] = {}

    def __repr__(self) -> str:
        return f"<DepartedAgents nodes={sorted(self._departures)}>"

    def called(
        self, roll: Membership, *, before: Mapping[SessionId, Session], live: Mapping[SessionId, Session]
    ) -> None:
        """A new roll: those that were alive before and aren't went; those whose time has run out died."""
        now = self._clock.monotonic()
        self._forget(now)
        latest = {each.session_id: each for each in roll.sessions}
        for session_id, known in before.items():
            if session_id not in live:
                died = latest.get(session_id, known).expires_at_ms <= roll.now_ms
                self._departures[known.node_id] = _Departure(known, now, died)
        for node in {each.node_id for each in live.values()} & self._departures.keys():
            if self._departures[node].back_at is None:
                self._departures[node] = self._departures[node]._replace(back_at=now)

    def _forget(self, now: float) -> None:
        kept_s = max(self._listed_s, self._redirected_s, self._return_wait_s, REMEMBERED_S)
        kept = [(node, each) for node, each in self._departures.items() if now - each.noticed_at < kept_s]
        self._departures = dict(kept[-MAX_REMEMBERED:])

    def advertised(self, live: Collection[Session]) -> list[Session]:
        """The dead to be named beside the living, by node id; none whose number or address is a living agent's."""
        addresses = {each.kafka for each in live}
        return [
            each.session
            for each in self._gone(live, within_s=self._listed_s)
            if each.died and each.session.kafka not in addresses
        ]

    def redirected(self, live: Collection[Session]) -> list[Session]:
        """Those whose ids lead to a living agent, by node id; none whose number is a living agent's."""
        return [each.session for each in self._gone(live, within_s=self._redirected_s)]

    def _gone(self, live: Collection[Session], *, within_s: float) -> list[_Departure]:
        now, nodes = self._clock.monotonic(), {each.node_id for each in live}
        return [
            each
            for node, each in sorted(self._departures.items())
            if now - each.noticed_at < within_s and node not in nodes
        ]

    def misdirected(self) -> list[tuple[float, float]]:
        """From when to when connections were made to living agents for ids that now have agents of their own.

        Told when it is over: while not all agents know of a return, such connections are still made.
        """
        now = self._clock.monotonic()
        return [
            (each.noticed_at, each.back_at + MISDIRECTED_S)
            for each in self._departures.values()
            if each.back_at is not None and each.back_at + MISDIRECTED_S <= now
        ]

    def times(self) -> list[float]:
        """When it was noticed that agents went whose ids lead to a living one."""
        now = self._clock.monotonic()
        noticed = [each.noticed_at for each in self._departures.values() if each.back_at is None]
        return [at for at in noticed if now - at < self._redirected_s]

    def is_delayed(self, session: Session, *, now_ms: int) -> bool:
        """Whether clients may still shun this living agent's address, because somebody died there.

        Who has been there for long by the time its predecessor's death is noticed has been found again by everybody.
        """
        now, wait_s = self._clock.monotonic(), self._return_wait_s
        return now_ms - session.started_at_ms < wait_s * 1000 and any(
            each.died and each.session.kafka == session.kafka and now - each.noticed_at < wait_s
            for each in self._departures.values()
        )
