"""Following: what other agents did to topics and schemas holds here, too.

Data path   metadata store -> cluster (what was heard) -> **following** -> catalogue, schemas, the logs that are open
Owns        reading topics again when others changed them, and dropping the logs of those that they deleted
Leaves      who is there and who leads to `cluster`, what is known of topics to `catalogue`, of schemas to `schemas`
"""

import asyncio
import logging

from streamhouse.broker.ground import Ground
from streamhouse.broker.schemas import Schemas
from streamhouse.errors import Unavailable

log = logging.getLogger(__name__)


class Following:
    def __init__(self, ground: Ground, *, schemas: Schemas) -> None:
        self._doors = ground.doors
        self._catalogue = ground.catalogue
        self._cluster = ground.cluster
        self._tenancy = ground.succession.current
        self._schemas = schemas
        self._topics_changed = asyncio.Event()

    def __repr__(self) -> str:
        return f"<Following topics_changed={self._topics_changed.is_set()}>"

    async def run(self) -> None:
        """Until cancelled; returns at once where there are no others."""
        if not self._doors.alone:
            unsubscribe = self._doors.metadata.subscribe(self._schemas.heard)
            try:
                async with asyncio.TaskGroup() as loops:
                    loops.create_task(self._cluster.run(topics_changed=self._topics_changed.set), name="roll")
                    loops.create_task(self._follow_topics(), name="topics")
            finally:
                unsubscribe()

    async def _follow_topics(self) -> None:
        while True:
            await self._topics_changed.wait()
            self._topics_changed.clear()
            try:
                await self._catalogue.reload()
            except Unavailable as error:
                log.warning("topics not read again yet", extra={"why": str(error)})
                self._topics_changed.set()
                await self._doors.clock.sleep(self._doors.ids.jitter(self._doors.settings.cluster.refresh_s))
            else:
                await self._tenancy().drop_unknown(self._catalogue.known)
