"""Leading: the logs of partitions that this agent leads, opened when they are first wanted, and who leads the others.

Data path   broker, appending, fetch -> **leading** -> catalogue (is it there?), cluster (is it ours?), tenure (its log)
Owns        which partitions are opened here, how long a request waits for a lease that is on its way
Leaves      leases and snapshots to `tenure`, who should lead and who does elsewhere to `cluster`

Succession: the tenure in force, and the beginning of the next one.

Data path   broker and its parts -> **succession** (which session acts?) -> tenure
Owns        the tenure in force; the beginning of another, and what is recovered before it may act
Leaves      leases and logs to `tenure`, reading what the dead left to `cluster.recovery`, running a tenure to `broker`
"""

import asyncio
import logging
import math
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Final

from streamhouse.broker.catalog.topic_catalog import Catalogue
from streamhouse.broker.cluster.cluster import Cluster, Leader
from streamhouse.broker.cluster.store_identity import Identity
from streamhouse.broker.dependencies import Doors
from streamhouse.broker.partition.backpressure import MemoryBudget
from streamhouse.broker.partition.log import PartitionLog
from streamhouse.broker.produce.checks import Refusals
from streamhouse.broker.segments.reader import SegmentReader
from streamhouse.broker.session.agent_session import MAX_TOGETHER, Tenure
from streamhouse.broker.session.flush import wait_either
from streamhouse.broker.session.recovery import Recovered, Recovery
from streamhouse.errors import LeaseHeld, StreamhouseError, Unavailable, UnknownTopic
from streamhouse.limits import in_turns
from streamhouse.model.cluster import Session
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.topic import Topic
from streamhouse.retry import patiently
from streamhouse.stores.objects.startup_check import probe_store

MAX_IMPATIENT: Final = 10_000

LEASE_LOOK_S: Final = 0.1
"""How often a lease that is on its way is asked for, where its coming isn't heard."""


class Leading:
    def __init__(self, doors: Doors, *, catalogue: Catalogue, cluster: Cluster, tenancy: Callable[[], Tenure]) -> None:
        self._doors = doors
        self._catalogue = catalogue
        self._cluster = cluster
        self._tenancy = tenancy
        self._impatient: dict[PartitionId, float] = {}
        """Partitions whose lease was waited for in vain, and when."""

    def __repr__(self) -> str:
        return f"<Leading impatient={len(self._impatient)}>"

    async def open_log(self, name: TopicPartition) -> PartitionLog:
        """The log of a partition that exists; opened under a lease when it isn't open yet."""
        topic = await self._catalogue.find(name.topic)
        if not 0 <= name.partition < topic.partitions:
            raise UnknownTopic(name)
        if (found := self._tenancy().find_open(name, topic)) is not None:
            return found
        return await self._open_ours(name, topic)

    async def _open_ours(self, name: TopicPartition, topic: Topic) -> PartitionLog:
        """Take the lease of a partition that this agent should lead; waits a little for one that is on its way."""
        partition = PartitionId(topic.topic_id, name.partition)
        asked = self._doors.clock.monotonic()
        while True:
            await self._cluster.require_ours(name, partition)
            try:
                opened = await self._tenancy().open_log(topic, name.partition)
            except LeaseHeld:
                left = self._patience_s(partition, asked)
                if left <= 0:
                    self._cluster.forget_leases(topic.topic_id)
                    raise
                await self._cluster.wait_news(min(left, LEASE_LOOK_S))
            else:
                self._impatient.pop(partition, None)
                self._cluster.took(partition, opened.epoch)
                return opened

    def _patience_s(self, partition: PartitionId, asked: float) -> float:
        """How much longer a request waits for a lease. When one has waited in vain, those behind it don't."""
        wait_s, now = self._doors.settings.cluster.handover_wait_s, self._doors.clock.monotonic()
        left = asked + wait_s - now
        if self._doors.alone or now - self._impatient.get(partition, -math.inf) < wait_s:
            return 0.0
        if left <= 0:
            if len(self._impatient) >= MAX_IMPATIENT:
                self._impatient.clear()
            self._impatient[partition] = now
        return left

    async def open_ahead(self, names: Sequence[TopicPartition]) -> None:
        """Open together what a request is about to ask for one by one. What can't be opened says so when it is."""
        tenure = self._tenancy()
        missing = [name for name in names if tenure.find_log(name) is None]
        if len(missing) <= 1:
            return
        with suppress(StreamhouseError):  # first what all of them need, so that they come to their leases together
            asked = dict.fromkeys(name.topic for name in missing)
            found = {name: await self._catalogue.find_if_any(name) async for name in in_turns(asked)}
            await self.leaders([topic for topic in found.values() if topic is not None])
            missing = [name for name in missing if _has(found[name.topic], name.partition)]
        for start in range(0, len(missing), MAX_TOGETHER):
            some = missing[start : start + MAX_TOGETHER]
            await asyncio.gather(*(self.open_log(name) for name in some), return_exceptions=True)

    async def leaders(self, topics: Sequence[Topic]) -> Mapping[PartitionId, Leader]:
        """Who leads the partitions of these topics, or will when the first request comes.

        An agent whose session is late for its heartbeat, or is ending, doesn't name itself: another one may lead by
        now, and clients that ask elsewhere find it.
        """
        own = self._tenancy()
        known = {} if self._doors.alone else await self._cluster.leaders(topics)
        nobody = Leader(own.session if self._doors.alone else None, -1)
        if not (self._doors.alone or own.may_lead):
            return {at: nobody if _is_led_by(each, own.session) else each for at, each in known.items()}
        found: dict[PartitionId, Leader] = {}
        for topic in topics:
            for number in range(topic.partitions):
                partition = PartitionId(topic.topic_id, number)
                opened = own.find_open(TopicPartition(topic.name, number), topic)
                mine = opened is not None and opened.closed is None
                found[partition] = (
                    Leader(own.session, opened.epoch) if opened is not None and mine else known.get(partition, nobody)
                )
        return found


def _has(topic: Topic | None, partition: int) -> bool:
    return topic is not None and 0 <= partition < topic.partitions


def _is_led_by(leader: Leader, session: Session) -> bool:
    return leader.session is not None and leader.session.session_id == session.session_id


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
