"""Cluster client: requests to all agents of a cluster at once.

The agents are looked up at one of them. An agent that doesn't answer within the request timeout is reported as silent.
"""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from contextlib import AbstractAsyncContextManager
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

from streamhouse.client.types import AgentStatus, Examination, Finding, PartitionStatus
from streamhouse.errors import StreamhouseError

if TYPE_CHECKING:
    from streamhouse.client.http import Http

Connect: TypeAlias = "Callable[[str], AbstractAsyncContextManager[Http]]"


@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionSurvey:
    """Partitions by topic and number, and the agents that lead some of them and did not answer."""

    partitions: Sequence[PartitionStatus]
    silent: Sequence[AgentStatus]


@dataclass(frozen=True, slots=True, kw_only=True)
class AgentHealth:
    """An agent and the result of its checks, or why there is none."""

    agent: AgentStatus
    examination: Examination | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    shared: Sequence[Finding]
    agents: Sequence[AgentHealth]


class ClusterClient:
    """Connects to one agent, which knows the addresses of the others."""

    def __init__(self, address: str, *, connect: Connect) -> None:
        self._address = address
        self._connect = connect

    def __repr__(self) -> str:
        return f"<ClusterClient from {self._address}>"

    async def partitions(self, topic: str | None = None) -> PartitionSurvey:
        """Every partition, with the high watermark if its leader responds."""
        async with self._connect(self._address) as http:
            agents, listed = await http.agents(), await http.partitions(topic)
        leaders = {status.leader for status in listed if status.high_watermark is None}
        queried = [agent for agent in agents if agent.node in leaders and agent.is_alive]
        responses = await asyncio.gather(*(self._local(agent, topic) for agent in queried))
        from_leaders = [status for response in responses for status in response or ()]
        silent = [agent for agent, response in zip(queried, responses, strict=True) if response is None]
        return PartitionSurvey(partitions=merge_partitions(listed, from_leaders), silent=silent)

    async def _local(self, agent: AgentStatus, topic: str | None) -> list[PartitionStatus] | None:
        try:
            async with self._connect(self._url(agent)) as http:
                return await http.partitions(topic, local=True)
        except StreamhouseError:
            return None

    async def examine(self) -> ClusterHealth:
        """Run the checks of every agent; the findings include what agents should agree about and do not."""
        async with self._connect(self._address) as http:
            agents, first = await http.agents(), await http.examine()
        others = [agent for agent in agents if agent.is_alive and agent.node != first.node]
        examined = [AgentHealth(agent=agent, examination=first) for agent in agents if agent.node == first.node]
        examined += await asyncio.gather(*(self._examined(agent) for agent in others))
        examined.sort(key=lambda health: health.agent.node)
        return ClusterHealth(shared=[*first.shared, *compare_findings(examined)], agents=examined)

    async def _examined(self, agent: AgentStatus) -> AgentHealth:
        try:
            async with self._connect(self._url(agent)) as http:
                return AgentHealth(agent=agent, examination=await http.examine(local=True))
        except StreamhouseError as error:
            return AgentHealth(agent=agent, examination=None, why=str(error))

    async def metrics(self) -> dict[int, str]:
        """The metrics page of every agent that answers, by node id."""
        async with self._connect(self._address) as http:
            alive = [agent for agent in await http.agents() if agent.is_alive]
        pages = await asyncio.gather(*(self._metrics(agent) for agent in alive))
        return {agent.node: page for agent, page in zip(alive, pages, strict=True) if page is not None}

    async def _metrics(self, agent: AgentStatus) -> str | None:
        try:
            async with self._connect(self._url(agent)) as http:
                return await http.metrics()
        except StreamhouseError:
            return None

    def _url(self, agent: AgentStatus) -> str:
        return self._address if agent.is_responder else agent.http


def merge_partitions(
    listed: Iterable[PartitionStatus], from_leaders: Iterable[PartitionStatus]
) -> list[PartitionStatus]:
    """Prefer the status from the leader of a partition, unless its epoch is older."""
    best = {(status.topic, status.partition): status for status in listed}
    for status in from_leaders:
        known = best.get((status.topic, status.partition))
        if status.local and known is not None and not known.local and status.epoch >= known.epoch:
            best[status.topic, status.partition] = status
    return [best[key] for key in sorted(best)]


def compare_findings(examined: Sequence[AgentHealth]) -> list[Finding]:
    """Check that the agents agree; there is no finding for a single agent."""
    if len(examined) < 2:
        return []
    silent = [str(health.agent.node) for health in examined if health.examination is None]
    examinations = [health.examination for health in examined if health.examination is not None]
    differing = [
        text
        for text, values in (
            ("who is in the cluster", [tuple(health.members) for health in examinations]),
            ("versions", [health.version for health in examinations]),
            ("lease.ttl_s", [health.lease_ttl_s for health in examinations]),
        )
        if len(set(values)) > 1
    ]
    if silent:
        text = f"alive, but not answering over HTTP: {', '.join(silent)}"
    elif differing:
        text = f"agents differ in {', '.join(differing)}"
    else:
        text = f"{len(examinations)} agents agree about who is there, versions and lease times"
    return [Finding(name="agreement", verdict="warning" if silent or differing else "ok", text=text)]
