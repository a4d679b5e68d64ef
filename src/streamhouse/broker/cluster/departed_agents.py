"""Departed agents: still advertised to Kafka clients; after a crash and a quick return, without partitions at first.

Data path   membership -> **departed_agents** -> Metadata responses, connections, preferred leaders
Owns        how long a dead agent's address is advertised, how long a departed agent's id is advertised with a live
            agent's address, how long a returned agent gets no partitions
Leaves      membership to `cluster`, the next leaders to preferred leaders and leases

librdkafka drops a broker that a metadata response doesn't list, together with the requests that wait for it, and uses
the new leaders of that response only after its next request, a second later. While the dead agent is listed besides
them, its partitions move at once. An agent that stopped orderly has transferred its partitions before, and isn't
listed.

Java clients, and librdkafka's admin calls, bind a call to a node id and wait for it until the call's deadline, a
minute, even if it is gone from the metadata. For that time, the id of a departed agent is listed with a live agent's
address. While it is listed, clients bind further calls to it, and the agent that they reach may die, too: so each
departure lists the ids of those shortly before it for longer. For the same reason all agents list the same ids: one
that starts learns who departed before. When the id's own agent is back, connections to others for this id are wrong,
and Java clients keep them: `misdirected` returns when they may have been opened.

Clients don't reconnect at once after a refused connection: librdkafka waits up to ten seconds, and so do the requests
for partitions of an agent that is back. So its partitions stay with the agents that took them over for that time.
"""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Final, NamedTuple

from streamhouse.clock import Clock
from streamhouse.config import ClusterSettings
from streamhouse.model.cluster import Departure, Membership, Session
from streamhouse.model.names import NodeId, SessionId

REMEMBERED_S: Final = 3600.0
"""How long a departed agent's id is remembered: longer than clients keep idle connections."""
MAX_REMEMBERED: Final = 1000
MISDIRECTED_S: Final = 3.0
"""How long after an agent's return other agents may still advertise its id with another address."""


class _Departure(NamedTuple):
    session: Session
    noticed_at: float
    died: bool
    back_at: float | None = None


class DepartedAgents:
    def __init__(self, settings: ClusterSettings, *, life_s: float, clock: Clock) -> None:
        """`life_s`: how long an agent may be dead before that is noticed."""
        self._listed_s = settings.departed_listed_s
        self._redirected_s = settings.departed_redirected_s
        self._return_wait_s = settings.return_wait_s
        self._life_s = life_s
        self._clock = clock
        self._departures: dict[NodeId, _Departure] = {}

    def __repr__(self) -> str:
        return f"<DepartedAgents nodes={sorted(self._departures)}>"

    def update(
        self, roll: Membership, *, before: Mapping[SessionId, Session], live: Mapping[SessionId, Session]
    ) -> None:
        """Apply a new membership: agents that are not live any more have departed; those with an expired session
        died."""
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

    def learn(self, departures: Sequence[Departure], *, live: Collection[Session]) -> None:
        """Add departures, newest first, that this agent didn't notice itself; none of an id that is in use again."""
        now, known = self._clock.monotonic(), {each.node_id for each in live} | self._departures.keys()
        for each in departures:
            if (node := each.session.node_id) not in known:
                known.add(node)
                self._departures[node] = _Departure(each.session, now - each.ago_ms / 1000, each.died)

    def _forget(self, now: float) -> None:
        remembered_s = max(self._listed_s, self._redirected_s, self._return_wait_s, REMEMBERED_S)
        remembered = [(node, each) for node, each in self._by_time() if now - each.noticed_at < remembered_s]
        self._departures = dict(remembered[:MAX_REMEMBERED])

    def _by_time(self) -> list[tuple[NodeId, _Departure]]:
        """The departures, newest first."""
        return sorted(self._departures.items(), key=lambda item: item[1].noticed_at, reverse=True)

    def advertised(self, live: Collection[Session]) -> list[Session]:
        """Dead agents to list besides live ones, by node id; none with the id or address of a live agent."""
        addresses = {each.kafka for each in live}
        now = self._clock.monotonic()
        recent = [(node, each) for node, each in self._departures.items() if now - each.noticed_at < self._listed_s]
        return [each.session for each in _gone(recent, live) if each.died and each.session.kafka not in addresses]

    def redirected(self, live: Collection[Session]) -> list[Session]:
        """Departed agents whose ids are advertised with a live agent's address, by node id; none with the id of a live
        agent."""
        series: list[tuple[NodeId, _Departure]] = []
        until, within_s = self._clock.monotonic(), self._redirected_s
        for node, each in self._by_time():
            if until - each.noticed_at >= within_s:
                break
            series.append((node, each))
            until, within_s = each.noticed_at, self._redirected_s + self._life_s
        return [each.session for each in _gone(series, live)]

    def misdirected(self) -> list[tuple[float, float]]:
        """Time ranges in which clients connected to other agents for ids whose agents are back. Returned when they are
        over: until all agents know of the return, clients still open such connections."""
        now = self._clock.monotonic()
        return [
            (each.noticed_at, each.back_at + MISDIRECTED_S)
            for each in self._departures.values()
            if each.back_at is not None and each.back_at + MISDIRECTED_S <= now
        ]

    def noticed_times(self) -> list[float]:
        """When the departures were noticed of agents whose ids are advertised with a live agent's address."""
        now = self._clock.monotonic()
        noticed = [each.noticed_at for each in self._departures.values() if each.back_at is None]
        return [at for at in noticed if now - at < self._redirected_s]

    def is_delayed(self, session: Session, *, now_ms: int) -> bool:
        """Whether clients may still avoid this live agent's address, because its predecessor died there. An agent that
        has been back for long when the death is noticed is known to all clients."""
        now, wait_s = self._clock.monotonic(), self._return_wait_s
        return now_ms - session.started_at_ms < wait_s * 1000 and any(
            each.died and each.session.kafka == session.kafka and now - each.noticed_at < wait_s
            for each in self._departures.values()
        )


def _gone(departures: Iterable[tuple[NodeId, _Departure]], live: Collection[Session]) -> list[_Departure]:
    """Those whose ids are not in use again, by node id."""
    nodes = {each.node_id for each in live}
    return [each for node, each in sorted(departures, key=lambda item: item[0]) if node not in nodes]
