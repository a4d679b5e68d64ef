"""Succession: the tenure in force, and the beginning of the next one.

Data path   broker and its parts -> **succession** (which session acts?) -> tenure
Owns        the tenure in force; the beginning of another, and what is recovered before it may act
Leaves      leases and logs to `tenure`, reading what the dead left to `cluster.recovery`, running a tenure to `broker`
"""

import asyncio
import logging

from streamhouse.broker.budget import MemoryBudget
from streamhouse.broker.catalogue import Catalogue
from streamhouse.broker.cluster.cluster import Cluster
from streamhouse.broker.cluster.identity import Identity
from streamhouse.broker.cluster.recovery import Recovered, Recovery
from streamhouse.broker.doors import Doors
from streamhouse.broker.flush import wait_either
from streamhouse.broker.log import PartitionLog
from streamhouse.broker.reading.reader import SegmentReader
from streamhouse.broker.refusals import Refusals
from streamhouse.broker.tenure import Tenure
from streamhouse.errors import StreamhouseError, Unavailable
from streamhouse.model.names import PartitionId
from streamhouse.stores.metadata.waiting import patiently
from streamhouse.stores.objects.prove import probe_store

log = logging.getLogger(__name__)


class Succession:
    def __init__(
        self,
        doors: Doors,
        *,
        catalogue: Catalogue,
        cluster: Cluster,
        reader: SegmentReader,
        budget: MemoryBudget,
        refusals: Refusals,
    ) -> None:
        self._doors = doors
        self._catalogue = catalogue
        self._cluster = cluster
        self._reader = reader
        self._budget = budget
        self._refusals = refusals
        self._tenure: Tenure | None = None
        self.identity = Identity(doors)
        self.recovered = Recovered()

    def __repr__(self) -> str:
        return f"<Succession {self._tenure!r} {self.recovered!r}>"

    # --- the tenure in force

    def tenure(self) -> Tenure | None:
        return self._tenure

    def current(self) -> Tenure:
        """For whoever can't do without: raises `Unavailable` while there is none."""
        if self._tenure is None:
            raise Unavailable("the agent has no session yet")
        return self._tenure

    def vouches_for(self, opened: PartitionLog) -> bool:
        return self.current().vouches_for(opened)

    def log_start_moved(self, partition: PartitionId, offset: int) -> None:
        """Have the log know it, if it is open here."""
        for opened in self._tenure.logs() if self._tenure is not None else ():
            if opened.partition == partition:
                opened.start_at(offset)

    # --- the next one

    def recovery(self, tenure: Tenure) -> Recovery:
        return Recovery(self._doors, by=tenure.session.session_id, reader=self._reader)

    async def begin(self) -> None:
        """The first tenure; raises when the stores don't let it for long."""
        limit_s = self._doors.settings.metadata.start_wait_s
        self._tenure = await patiently(self._begin, clock=self._doors.clock, ids=self._doors.ids, limit_s=limit_s)

    async def begin_again(self, *, stopping: asyncio.Event) -> bool:
        """Try until there is a tenure to run; False when a stop was asked for before there was one. One that has begun
        to begin then gets `agent.stop_timeout_s` for it."""
        trying = asyncio.get_running_loop().create_task(self._try_to_begin(stopping), name="begin")
        limit = asyncio.get_running_loop().create_task(self._wait_limit(stopping), name="begin-limit")
        try:
            await asyncio.wait({trying, limit}, return_when=asyncio.FIRST_COMPLETED)
            if not trying.done():
                log.warning("no session began before the stop")
            return trying.result() if trying.done() else False
        finally:
            for task in (trying, limit):
                task.cancel()
            await asyncio.gather(trying, limit, return_exceptions=True)

    async def _wait_limit(self, stopping: asyncio.Event) -> None:
        await stopping.wait()
        await self._doors.clock.sleep(self._doors.settings.agent.stop_timeout_s)

    async def _try_to_begin(self, stopping: asyncio.Event) -> bool:
        flush = self._doors.settings.flush
        wait = flush.retry_s
        while not stopping.is_set():
            try:
                if self._doors.puts.failing_since is not None:  # or the next one would be cut off from the start
                    await probe_store(self._doors.objects, self._doors.ids)
                self._tenure = await self._begin()
            except (StreamhouseError, OSError) as error:
                log.warning("no new tenure yet", extra={"why": str(error), "after_s": wait})
                await wait_either(stopping.wait(), self._doors.clock.sleep(self._doors.ids.jitter(wait)))
                wait = min(wait * 2, flush.retry_max_s)
            else:
                return True
        return False

    async def _begin(self) -> Tenure:
        await self.identity.check()
        tenure = await Tenure.begin(
            self._doors,
            reader=self._reader,
            budget=self._budget,
            refusals=self._refusals,
            config_of=self._catalogue.config_of,
        )
        try:
            async with tenure.kept_alive():
                await self.identity.begin(tenure.session.session_id)
                await self._catalogue.dynamic.belong_to(tenure.session.node_id)
                self.recovered += await self.recovery(tenure).recover_all()
            await self._join(tenure)
        except BaseException:
            await tenure.abandon()
            raise
        return tenure

    async def _join(self, tenure: Tenure) -> None:
        self._cluster.joined(tenure.session)
        if not self._doors.alone:
            await self._cluster.refresh()
