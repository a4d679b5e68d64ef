"""Roles: which agent has which part in the transactions under way, so that one knows whom a fault has met in what.

Data path   PostgreSQL -> **roles** -> history
Owns        asking a few times a second, past all tunnels; who coordinates, leads and keeps offsets of open transactions
Leaves      what it means to `report`
"""

import asyncio
import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, Final, NamedTuple
from uuid import UUID

import asyncpg

from streamhouse.broker.transactions.checks import shard
from streamhouse.config.coordination import TransactionSettings
from streamhouse.model.cluster import partition_key, preferred_node
from streamhouse.model.names import NodeId

from .faults import JOIN
from .transactions import Struck, Transactional

EVERY_S: Final = 0.1
MOMENT_S: Final = 2.0
TIMEOUT_S: Final = 2.0
COORDINATOR: Final = "coordinator"
LEADER: Final = "leader of a partition"
GROUP: Final = "coordinator of the group"
ROLES: Final = (GROUP, COORDINATOR, LEADER)
UNDER_WAY: Final = "SELECT transactional_id, state, partitions FROM transactions WHERE due_at_ms IS NOT NULL"
PENDING: Final = "SELECT DISTINCT transactional_id, shard_topic_id, shard FROM pending_offsets"
AGENTS: Final = "SELECT node_id, kafka_port FROM sessions WHERE state = 'live'"
HOLDERS: Final = """
SELECT p.topic_id, p.partition, s.kafka_port FROM partitions AS p JOIN sessions AS s ON s.session_id = p.holder
"""


class Part(NamedTuple):
    agent: str
    role: str
    state: str


class Roles:
    def __init__(
        self, dsn: str, by_port: Mapping[int, str], transactional: Transactional, now: Callable[[], float]
    ) -> None:
        self._dsn = dsn
        self._by_port = by_port
        self._transactional = transactional
        self._now = now
        self._parts: frozenset[Part] = frozenset()
        self._times: Counter[str] = Counter()

    def strike(self, agent: str, kind: str) -> None:
        """Write down which parts the agent has, as of the last answer, before something is done to it."""
        if kind == JOIN:
            return
        at = self._now()
        for part in sorted(each for each in self._parts if each.agent == agent):
            self._transactional.struck.append(Struck(at, kind, agent, part.role, part.state))
            self._times[part.role] += 1

    async def moment(self, agent: str) -> None:
        """Wait, not for long, until the agent has the part in which agents were struck least often."""
        expected = min(ROLES, key=lambda role: self._times[role])
        until = self._now() + MOMENT_S
        while self._now() < until and not any(part[:2] == (agent, expected) for part in self._parts):  # noqa: ASYNC110 - a database has none
            await asyncio.sleep(EVERY_S / 2)

    async def watch(self) -> None:
        """For ever; a database that is away is asked again."""
        while True:
            try:
                connection = await asyncpg.connect(self._dsn, timeout=TIMEOUT_S)
                try:
                    while True:
                        request = (UNDER_WAY, PENDING, AGENTS, HOLDERS)
                        rows = [await connection.fetch(query, timeout=TIMEOUT_S) for query in request]
                        self._parts = frozenset(_parts(rows, self._by_port))
                        await asyncio.sleep(EVERY_S)
                finally:
                    connection.terminate()
            except (OSError, asyncpg.PostgresError, asyncpg.InterfaceError, TimeoutError):
                self._parts = frozenset()
                await asyncio.sleep(EVERY_S)


def _parts(rows: Sequence[Sequence[Any]], by_port: Mapping[int, str]) -> Iterator[Part]:
    under_way, pending, agents, holders = rows
    nodes = {NodeId(node): by_port.get(port, "") for node, port in agents}
    leads = {(UUID(topic), number): by_port.get(port, "") for topic, number, port in holders}
    states = {name: state for name, state, _ in under_way}
    for name, state, partitions in under_way:
        node = preferred_node(partition_key(shard(name, TransactionSettings())), list(nodes))
        if node is not None:
            yield Part(nodes[node], COORDINATOR, state)
        for topic, numbers in json.loads(partitions).items():
            for number in numbers:
                yield Part(leads.get((UUID(topic), number), ""), LEADER, state)
    for name, topic, number in pending:
        if name in states:
            yield Part(leads.get((UUID(topic), number), ""), GROUP, states[name])
