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
    """An agent and what it said about itself, or why it said nothing."""

    agent: AgentStatus
    told: Examination | None
    why: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterHealth:
    shared: Sequence[Finding]
    agents: Sequence[AgentHealth]


class ClusterClient:
    """Begins at one address; the others are where the cluster says that they are."""

    def __init__(self, address: str, *, connect: Connect) -> None:
        self._address = address
        self._connect = connect

    def __repr__(self) -> str:
        return f"<ClusterClient from {self._address}>"

    async def partitions(self, topic: str | None = None) -> PartitionSurvey:
        """Every partition, with the high watermark where its leader answers."""
        async with self._connect(self._address) as http:
            agents, found = await http.agents(), await http.partitions(topic)
        wanted = {each.leader for each in found if each.high_watermark is None}
        asked = [agent for agent in agents if agent.node in wanted and agent.is_alive]
        answers = await asyncio.gather(*(self._local(agent, topic) for agent in asked))
        told = [each for answer in answers for each in answer or ()]
        silent = [agent for agent, answer in zip(asked, answers, strict=True) if answer is None]
        return PartitionSurvey(partitions=merge_partitions(found, told), silent=silent)

    async def _local(self, agent: AgentStatus, topic: str | None) -> list[PartitionStatus] | None:
        try:
            async with self._connect(self._url(agent)) as http:
                return await http.partitions(topic, local=True)
        except StreamhouseError:
            return None

    async def examine(self) -> ClusterHealth:
        """Ask everybody how it is; what agents should agree about, and don't, is among the findings."""
        async with self._connect(self._address) as http:
            agents, first = await http.agents(), await http.examine()
        others = [agent for agent in agents if agent.is_alive and agent.node != first.node]
        examined = [AgentHealth(agent=agent, told=first) for agent in agents if agent.node == first.node]
        examined += await asyncio.gather(*(self._examined(agent) for agent in others))
        examined.sort(key=lambda each: each.agent.node)
        return ClusterHealth(shared=[*first.shared, *compare_findings(examined)], agents=examined)

    async def _examined(self, agent: AgentStatus) -> AgentHealth:
        try:
            async with self._connect(self._url(agent)) as http:
                return AgentHealth(agent=agent, told=await http.examine(local=True))
        except StreamhouseError as error:
            return AgentHealth(agent=agent, told=None, why=str(error))

    def _url(self, agent: AgentStatus) -> str:
        return self._address if agent.asked else agent.http


def merge_partitions(found: Iterable[PartitionStatus], told: Iterable[PartitionStatus]) -> list[PartitionStatus]:
    """What leaders told of their partitions, in the place of what anybody knows; never of an older epoch."""
    best = {(each.topic, each.partition): each for each in found}
    for each in told:
        known = best.get((each.topic, each.partition))
        if each.local and known is not None and not known.local and each.epoch >= known.epoch:
            best[each.topic, each.partition] = each
    return [best[key] for key in sorted(best)]


def compare_findings(examined: Sequence[AgentHealth]) -> list[Finding]:
    """Whether the agents agree; nothing to say of a single one."""
    if len(examined) < 2:
        return []
    silent = [str(each.agent.node) for each in examined if each.told is None]
    told = [each.told for each in examined if each.told is not None]
    differing = [
        text
        for text, values in (
            ("who is in the cluster", [tuple(each.members) for each in told]),
            ("versions", [each.version for each in told]),
            ("lease.ttl_s", [each.lease_ttl_s for each in told]),
        )
        if len(set(values)) > 1
    ]
    if silent:
        text = f"alive, but not answering over HTTP: {', '.join(silent)}"
    elif differing:
        text = f"agents differ in {', '.join(differing)}"
    else:
        text = f"{len(told)} agents agree about who is there, versions and lease times"
    return [Finding(name="agreement", verdict="warning" if silent or differing else "ok", text=text)]
