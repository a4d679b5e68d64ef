"""Supervision: supervisors say that they are alive and what they run, and learn what they should run.

Data path   a supervisor's heartbeat -> **supervision** -> one metadata transaction
Owns        limits of what a heartbeat may say
Leaves      who gets what to the metadata store, which has the clock
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, replace
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.errors import InvalidDefinition
from streamhouse.model.pipeline import Event, Heartbeat, KeptPipeline, Running, Supervisor, SupervisorId

MAX_LINE: Final = 10_000
"""Characters of one line of a log that are kept."""


class Supervision:
    def __init__(self, doors: Doors) -> None:
        self._metadata = doors.metadata
        self._settings = doors.settings.pipelines

    @property
    def ttl_s(self) -> float:
        """How long what a heartbeat says holds."""
        return self._settings.ttl_s

    async def beat(self, heartbeat: Heartbeat) -> Sequence[KeptPipeline]:
        """What the supervisor should run; whatever it runs beside that, it should stop, and list no more."""
        running = tuple(self._kept(each) for each in heartbeat.running)
        return await self._metadata.beat(
            replace(heartbeat, running=running),
            ttl_ms=round(self._settings.ttl_s * 1000),
            max_events=self._settings.max_events,
            max_supervisors=self._settings.max_supervisors,
        )

    async def all(self) -> Sequence[Supervisor]:
        return await self._metadata.supervisors()

    async def leave(self, supervisor: SupervisorId) -> None:
        await self._metadata.leave(supervisor)

    def _kept(self, running: Running) -> Running:
        limit = self._settings.max_status_bytes
        if running.status is not None and len(json.dumps(asdict(running.status))) > limit:
            raise InvalidDefinition(
                f"a status is too large; pipeline={running.name} limit_bytes={limit} setting=pipelines.max_status_bytes"
            )
        return replace(running, events=tuple(map(_kept_line, running.events)))


def _kept_line(event: Event) -> Event:
    """No database can keep every text."""
    return replace(event, text=event.text.replace("\0", " ")[:MAX_LINE])
