"""Flushing: everything that a topic has goes into segments now, because somebody is about to work on segments.

Data path   none: HTTP -> **flushing** -> each leader's flusher, here and at other agents
Owns        which agents are asked, how long they may take
Leaves      flushing itself to `broker.flush`, asking others to the door `holders`
"""

import asyncio
from collections.abc import Callable

from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.doors import Doors
from streamhouse.broker.tenure import Tenure
from streamhouse.errors import Unavailable
from streamhouse.model.lease import Session
from streamhouse.model.topic import Topic


class Flushing:
    def __init__(self, doors: Doors, *, catalogue: Catalogue, cluster: Cluster, tenancy: Callable[[], Tenure]) -> None:
        self._doors = doors
        self._catalogue = catalogue
        self._cluster = cluster
        self._tenancy = tenancy

    def __repr__(self) -> str:
        return f"<Flushing patience_s={self._doors.settings.records.patience_s}>"

    async def flush(self, name: str, *, everywhere: bool = True) -> None:
        """Return once segments hold all that was acknowledged before, by this agent or by any.

        Raises `Unavailable` where that takes too long. What an agent that is gone left in its log isn't waited for.
        """
        topic = await self._catalogue.find(name)
        patience_s = self._doors.settings.records.patience_s
        try:
            async with asyncio.timeout(patience_s):
                others = await self._others(topic) if everywhere else []
                asked = [self._doors.holders.flush(other.http, name, timeout_s=patience_s) for other in others]
                await asyncio.gather(self._here(topic), *asked)
        except TimeoutError:
            raise Unavailable(f"the topic is not flushed yet; topic={name} after_s={patience_s:g}") from None

    async def _others(self, topic: Topic) -> list[Session]:
        """Who else leads something of it."""
        holders = {state.holder for state in await self._doors.metadata.partitions([topic.topic_id])}
        return [session for session in self._cluster.others() if session.session_id in holders]

    async def _here(self, topic: Topic) -> None:
        tenure = self._tenancy()
        ours = [item for item in tenure.logs() if item.partition.topic_id == topic.topic_id]
        waiting = asyncio.gather(*(item.wait_flushed(item.high_watermark) for item in ours))
        tenure.flusher.hurry()
        await waiting
