"""Rescue: sessions whose agents died are recovered by those that live.

Data path   dead session's WAL -> **rescue** -> recovery -> segments, free leases
Owns        which dead session is whose turn, when others step in, how long a disk that nobody reaches is waited for
Leaves      who is dead to the metadata store's clock, the claim to its transaction, the work to `recovery`
"""

import logging

from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.cluster.recovery import Recovered, Recovery
from streamhouse.broker.doors import Doors
from streamhouse.errors import StreamhouseError
from streamhouse.model.lease import Session
from streamhouse.model.names import SessionId

log = logging.getLogger(__name__)


class Rescue:
    def __init__(self, doors: Doors, *, cluster: Cluster) -> None:
        self._doors = doors
        self._settings = doors.settings.cluster
        self._cluster = cluster
        self._seen: dict[SessionId, float] = {}
        self.recovered = Recovered()

    def __repr__(self) -> str:
        return f"<Rescue waiting={len(self._seen)} recovered={self.recovered.sessions}>"

    async def run(self, recovery: Recovery) -> None:
        """Recover what died, one after the other, until cancelled."""
        if self._doors.alone:
            return
        while True:
            for dead in self._due():
                await self._recover(recovery, dead)
            await self._cluster.wait_news(self._settings.refresh_s)

    @property
    def _patience_s(self) -> float:
        """How long others have their turn: part of the time that is kept for taking over, not all of it."""
        return min(self._settings.rescue_delay_s, self._doors.settings.lease.takeover_s / 4)

    def _due(self) -> list[Session]:
        """Those whose turn is ours, and those that somebody else should have recovered by now."""
        now = self._doors.clock.monotonic()
        dead = self._cluster.dead()
        self._seen = {each.session_id: self._seen.get(each.session_id, now) for each in dead}
        return [
            each
            for each in dead
            if self._cluster.does(each.session_id) or now - self._seen[each.session_id] >= self._patience_s
        ]

    def _is_past_hope(self, dead: Session) -> bool:
        """Whether its agent had its time to come back with its disk; by the store's clock, as it was last told."""
        return self._cluster.roll.now_ms - dead.expires_at_ms >= self._settings.disk_wait_s * 1000

    async def _recover(self, recovery: Recovery, dead: Session) -> None:
        try:
            self.recovered += await recovery.recover(dead, may_abandon=self._is_past_hope(dead))
        except (StreamhouseError, OSError) as error:
            log.warning("session not recovered yet", extra={"session": dead.session_id, "why": str(error)})
        self._cluster.ask()
