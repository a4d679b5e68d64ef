"""Departed: agents that died a moment ago, and are still named to Kafka clients.

Data path   roll of sessions -> **departed** -> Metadata answers
Owns        how long a dead agent's address is told
Leaves      who is alive to `cluster`, who leads its partitions now to placement and leases

librdkafka drops a broker that an answer doesn't name, and what its partitions were waiting for with it: the leaders
that the same answer names are believed only after its next question, a second later. While the dead agent is named
beside them, its partitions move at once. An agent that left in order has given everything away before, and isn't kept.
"""

from collections.abc import Collection, Mapping

from streamhouse.clock import Clock
from streamhouse.model.lease import RollCall, Session
from streamhouse.model.names import NodeId, SessionId


class Departed:
    def __init__(self, *, listed_s: float, clock: Clock) -> None:
        self._listed_s = listed_s
        self._clock = clock
        self._until: dict[NodeId, tuple[Session, float]] = {}

    def __repr__(self) -> str:
        return f"<Departed nodes={sorted(self._until)}>"

    def called(self, roll: RollCall, *, before: Mapping[SessionId, Session], live: Collection[SessionId]) -> None:
        """A new roll: those that were alive before, and whose time has run out since, died."""
        now = self._clock.monotonic()
        self._until = {node: each for node, each in self._until.items() if each[1] > now}
        latest = {each.session_id: each for each in roll.sessions}
        for session_id, known in before.items():
            if session_id not in live and latest.get(session_id, known).expires_at_ms <= roll.now_ms:
                self._until[known.node_id] = (known, now + self._listed_s)

    def told_beside(self, live: Collection[Session]) -> list[Session]:
        """Those to be named beside the living, by node id; none whose number or address is a living agent's."""
        now = self._clock.monotonic()
        nodes, addresses = {each.node_id for each in live}, {each.kafka for each in live}
        return [
            session
            for node, (session, until) in sorted(self._until.items())
            if until > now and node not in nodes and session.kafka not in addresses
        ]
