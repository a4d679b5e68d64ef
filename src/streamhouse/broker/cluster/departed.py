"""Departed: agents that died a moment ago: still named to Kafka clients, and given nothing when they are back at once.

Data path   roll of sessions -> **departed** -> Metadata answers, placement
Owns        how long a dead agent's address is told; how long one that came back has to wait for partitions
Leaves      who is alive to `cluster`, who leads its partitions now to placement and leases

librdkafka drops a broker that an answer doesn't name, and what its partitions were waiting for with it: the leaders
that the same answer names are believed only after its next question, a second later. While the dead agent is named
beside them, its partitions move at once. An agent that left in order has given everything away before, and isn't kept.

Clients don't knock at once again where they were refused: librdkafka waits for up to ten seconds, and whatever is led
there waits with it, although the agent is back. So its partitions stay with those who took them over for that long.
"""

from collections.abc import Collection, Mapping
from typing import NamedTuple

from streamhouse.clock import Clock
from streamhouse.config import ClusterSettings
from streamhouse.model.lease import RollCall, Session
from streamhouse.model.names import NodeId, SessionId


class _Death(NamedTuple):
    session: Session
    noticed_at: float


class Departed:
    def __init__(self, settings: ClusterSettings, *, clock: Clock) -> None:
        self._listed_s = settings.departed_listed_s
        self._return_wait_s = settings.return_wait_s
        self._clock = clock
        self._deaths: dict[NodeId, _Death] = {}

    def __repr__(self) -> str:
        return f"<Departed nodes={sorted(self._deaths)}>"

    def called(self, roll: RollCall, *, before: Mapping[SessionId, Session], live: Collection[SessionId]) -> None:
        """A new roll: those that were alive before, and whose time has run out since, died."""
        now = self._clock.monotonic()
        kept_s = max(self._listed_s, self._return_wait_s)
        self._deaths = {node: each for node, each in self._deaths.items() if now - each.noticed_at < kept_s}
        latest = {each.session_id: each for each in roll.sessions}
        for session_id, known in before.items():
            if session_id not in live and latest.get(session_id, known).expires_at_ms <= roll.now_ms:
                self._deaths[known.node_id] = _Death(known, now)

    def told_beside(self, live: Collection[Session]) -> list[Session]:
        """Those to be named beside the living, by node id; none whose number or address is a living agent's."""
        now = self._clock.monotonic()
        nodes, addresses = {each.node_id for each in live}, {each.kafka for each in live}
        return [
            session
            for node, (session, noticed_at) in sorted(self._deaths.items())
            if now - noticed_at < self._listed_s and node not in nodes and session.kafka not in addresses
        ]

    def keeps_waiting(self, session: Session, *, now_ms: int) -> bool:
        """Whether clients may still shun this living agent's address, because somebody died there.

        Who has been there for long by the time its predecessor's death is noticed has been found again by everybody.
        """
        now, wait_s = self._clock.monotonic(), self._return_wait_s
        return now_ms - session.started_at_ms < wait_s * 1000 and any(
            death.session.kafka == session.kafka and now - death.noticed_at < wait_s for death in self._deaths.values()
        )
