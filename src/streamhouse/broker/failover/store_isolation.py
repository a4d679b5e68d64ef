"""StoreIsolation: an agent whose writes don't reach the object store, while other agents' do, gives up its leases.

Data path   none; own writes and the other sessions' reports -> **store_isolation** -> session
Owns        when an agent counts as isolated; probe writes while there is nothing else to write
Leaves      counting writes to `stores.objects.watched`, reports to the heartbeat, ending the session to `agent_session`

If no agent's writes reach the store, the store is unavailable: no agent gives up its leases, because none could do
better.
"""

import asyncio
import logging
from collections.abc import Iterable
from contextlib import suppress
from typing import Final

from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.session.agent_session import AgentSession
from streamhouse.config import Settings
from streamhouse.errors import StreamhouseError
from streamhouse.model.cluster import Session
from streamhouse.stores.objects.startup_check import probe_store

log = logging.getLogger(__name__)

LEAST_HEARTBEATS: Final = 4
"""Minimum number of heartbeats to wait: the other agents' reports arrive with theirs."""
RECENT: Final = 0.75
"""Share of the limit within which another agent's write counts as current."""
PROBE: Final = 0.25
"""Share of the limit after which an agent without writes sends a probe."""


def isolation_limit_s(settings: Settings) -> float:
    return max(settings.cluster.cut_off_s, LEAST_HEARTBEATS * settings.lease.renew_s)


class IsolationRule:
    """The decision, as pure functions."""

    def __init__(self, limit_s: float) -> None:
        self._limit_s = limit_s
        self._others_since: float | None = None

    def __repr__(self) -> str:
        return f"<IsolationRule limit_s={self._limit_s:g} others_since={self._others_since}>"

    def is_isolated(self, now: float, *, failing_since: float | None, others_age_s: float | None) -> bool:
        """Whether during the whole limit no write of this agent succeeded while those of others did. `others_age_s` is
        the age of the newest successful write of another agent."""
        if failing_since is None or others_age_s is None or others_age_s >= RECENT * self._limit_s:
            self._others_since = None
            return False
        if self._others_since is None:
            self._others_since = now
        return now - max(failing_since, self._others_since) >= self._limit_s


def newest_write_age_s(others: Iterable[Session], now_ms: int) -> float | None:
    """Age of the newest successful write of another agent, by the metadata store's clock; None if there is none."""
    newest = max((each.put_at_ms for each in others), default=0)
    return max(0, now_ms - newest) / 1000 if newest else None


class StoreIsolation:
    def __init__(self, dependencies: Dependencies, *, cluster: Cluster) -> None:
        self._dependencies = dependencies
        self._cluster = cluster
        self._limit_s = isolation_limit_s(dependencies.settings)
        self._rule = IsolationRule(self._limit_s)
        self._probing: asyncio.Task[None] | None = None
        self.is_cut_off = False

    def __repr__(self) -> str:
        return f"<StoreIsolation {self.is_cut_off} {self._rule!r} {self._dependencies.puts!r}>"

    async def run(self, agent_session: AgentSession) -> None:
        """Until cancelled; returns at once where there are no others."""
        if self._dependencies.single_agent:
            return
        self._rule = IsolationRule(self._limit_s)
        try:
            while True:
                await self._dependencies.clock.sleep(self._dependencies.settings.cluster.refresh_s)
                self._look(agent_session)
        finally:
            if self._probing is not None:
                self._probing.cancel()
                await asyncio.gather(self._probing, return_exceptions=True)

    def _look(self, agent_session: AgentSession) -> None:
        now, puts = self._dependencies.clock.monotonic(), self._dependencies.puts
        if self._should_probe(now) and self._probing is None:
            self._probing = asyncio.get_running_loop().create_task(self._probe(), name="probe")
        age_s = newest_write_age_s(self._cluster.others(), self._cluster.roll.now_ms)
        was, self.is_cut_off = (
            self.is_cut_off,
            self._rule.is_isolated(now, failing_since=puts.failing_since, others_age_s=age_s),
        )
        if self.is_cut_off and not was:
            log.error("cut off from the object store, while other agents write to it", extra={"for_s": self._limit_s})
        if self.is_cut_off:
            agent_session.cut_off()

    def _should_probe(self, now: float) -> bool:
        """Whether a probe write is needed: for this agent, whose large writes may just be slow, or for the others,
        which need to know whether this one can write."""
        puts, soon_s = self._dependencies.puts, PROBE * self._limit_s
        if puts.failing_since is not None:
            return now - puts.failing_since >= soon_s
        is_quiet = puts.last_at is None or now - puts.last_at >= soon_s
        return is_quiet and any(each.put_failing for each in self._cluster.others())

    async def _probe(self) -> None:
        try:
            with suppress(StreamhouseError):
                await probe_store(self._dependencies.objects, self._dependencies.ids)
        finally:
            self._probing = None
