"""Run: a cluster, clients on it, faults for some minutes, peace, and then everything is read back.

Data path   **run** -> cluster, producers, consumers, nemesis, watch -> history
Owns        the phases of a run and their order
Leaves      each of them to its module; judging to `checker`
"""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Final

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from .cluster import ChaosCluster
from .consumers import GROUPS, AnyConsumer, make_consumers, read_log
from .copying import CopierSlot, make_copiers
from .databases import TOPIC as EXCHANGED_TOPIC
from .databases import DatabaseExchange
from .faults import PROFILES, plan
from .history import History, Life, Note
from .isolation import FOLLOWER, FOLLOWERS, AnyReader, make_readers, read_views, wait_until_stable
from .nemesis import Nemesis
from .producers import TOPIC, AnyProducer, make_producers, make_stubborn
from .roles import Roles
from .transacting import Single, Transactor, make_transactors
from .transactions import COMMITTED, COPIES, DEALS
from .watch import watch_leaders

WARM_UP_S: Final = 3.0
PEACE_S: Final = 8.0
CATCH_UP_S: Final = 60.0
COPY_S: Final = 120.0
POLL_S: Final = 0.2
ACKS_PER_MINUTE: Final = 500
FAULTS_PER_MINUTE: Final = 5
"""A third or less of what a run of any seed has had; with fewer it shows nothing."""
EXCHANGED: Final = ("everything", "databases")
"""Profiles at the end of which the database is exchanged."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    minutes: float
    seed: int
    folder: Path
    lease_ttl_s: float = 3.0
    agents: int = 3
    spare: int = 1
    partitions: int = 6
    per_second: float = 25.0
    """records per second of each producer; stubborn ones send a third of it"""
    transactions_per_second: float = 2.0
    """of each transactional producer"""
    profile: str = "everything"


AnyClient = AnyProducer | AnyConsumer | Transactor | Single | CopierSlot | AnyReader


async def run(options: Options, say: Callable[[str], None]) -> History:
    """One run; what it finds out is in the history, good or bad."""
    return await _Run(options, say).all_of_it()


class _Run:
    def __init__(self, options: Options, say: Callable[[str], None]) -> None:
        self._options = options
        self._say_plainly = say
        self._begun = time.monotonic()
        self._history = History(
            seed=options.seed,
            minutes=options.minutes,
            lease_ttl_s=options.lease_ttl_s,
            partitions=options.partitions,
            profile=options.profile,
            min_acks=round(options.minutes * ACKS_PER_MINUTE),
            min_faults=max(1, round(options.minutes * FAULTS_PER_MINUTE)),
            groups=list(GROUPS),
            followers=list(FOLLOWERS),
        )
        self._history.transactional.partitions = options.partitions
        self._cluster = ChaosCluster(
            options.folder, agents=options.agents, spare=options.spare, lease_ttl=f"{options.lease_ttl_s:g}s"
        )

    def _now(self) -> float:
        return time.monotonic() - self._begun

    def _say(self, text: str) -> None:
        self._say_plainly(f"{self._now():7.2f} s  {text}")

    async def all_of_it(self) -> History:
        history, cluster = self._history, self._cluster
        async with cluster:
            history.agents = list(cluster.agents)
            self._say(f"three agents are ready: {cluster.bootstrap}")
            self._all_live("ready")
            await asyncio.to_thread(create_topics, cluster.bootstrap, self._options.partitions)
            self._roles = Roles(cluster.dsn, cluster.by_port(), self._history.transactional, self._now)
            watchers = [
                asyncio.create_task(self._roles.watch()),
                asyncio.create_task(watch_leaders(cluster.dsn, cluster.by_port(), history, self._now)),
                asyncio.create_task(cluster.watch()),
            ]
            try:
                await self._with_clients()
                await self._read_back()
                if self._options.profile in EXCHANGED:
                    await self._exchange()
            except (KafkaException, TimeoutError) as error:  # what was recorded until then is worth a page
                self._trouble("run", f"could not be finished: {error!r}")
            finally:
                for watcher in watchers:
                    watcher.cancel()
                await asyncio.gather(*watchers, return_exceptions=True)
            history.ended_at = self._now()
        return history

    # --- phases ---------------------------------------------------------------------------------------------------

    async def _with_clients(self) -> None:
        producers, consumers = self._make_producers(), self._make_consumers()
        copiers, readers = self._make_copiers(), self._make_readers()
        for each in (*consumers, *readers, *copiers, *producers):
            each.start()
        try:
            await asyncio.sleep(WARM_UP_S)
            await self._faults()
            await asyncio.sleep(PEACE_S)
        finally:
            for copier in copiers:
                copier.calm_down()
            await self._finish(producers)
        await self._catch_up()
        await self._finish(consumers)
        await self._copy_all()
        await self._finish(copiers)
        await self._settle()
        await asyncio.sleep(1)  # for readers to come to the end
        await self._finish(readers)

    async def _faults(self) -> None:
        names = [agent.name for agent in self._cluster.regular]
        planned = plan(
            self._options.seed,
            duration_s=self._options.minutes * 60,
            agents=names,
            spare=[name for name in self._cluster.agents if name not in names],
            lease_ttl_s=self._options.lease_ttl_s,
            kinds=PROFILES[self._options.profile],
        )
        await Nemesis(self._cluster, self._history, self._now, self._roles).run(planned, self._say)
        try:
            await self._cluster.wait_until_ready(self._cluster.regular)
        except TimeoutError:
            self._trouble("cluster", "was not ready in time after the faults")
        self._history.healed_at = self._now()
        self._say(f"{len(self._history.faults)} faults are over; everybody is ready")

    async def _catch_up(self) -> None:
        """Until the groups have read up to the last acknowledged record."""
        deadline = self._now() + CATCH_UP_S
        while behind := self._behind():
            if self._now() > deadline:
                self._trouble("consumers", f"did not reach the end within {CATCH_UP_S:g} s: {behind}")
                return
            await asyncio.sleep(POLL_S)
        self._say("consumers have reached the end")
        await asyncio.sleep(2)  # for the last commits, and somebody to ask for them

    def _behind(self) -> dict[str, int]:
        ends = self._ends()
        read: dict[str, dict[int, int]] = {}
        for each in list(self._history.consumed):
            of_group = read.setdefault(each.group, {})
            of_group[each.partition] = max(of_group.get(each.partition, -1), each.offset)
        lag = {
            group: sum(max(0, end - of_group.get(part, -1)) for part, end in ends.items())
            for group, of_group in read.items()
        }
        return {group: count for group, count in lag.items() if count}

    def _ends(self) -> dict[int, int]:
        ends: dict[int, int] = {}
        for send in self._history.sends:
            if send.acked and send.offset is not None:
                ends[send.record.partition] = max(ends.get(send.record.partition, -1), send.offset)
        return ends

    async def _copy_all(self) -> None:
        """Until a reader has seen every transaction whose commit was acknowledged, and a copy of all that it saw."""
        deadline = self._now() + COPY_S
        while missing := self._not_copied():
            if self._now() > deadline:
                self._trouble("copiers", f"did not come to the end within {COPY_S:g} s: {len(missing)} are left")
                return
            await asyncio.sleep(POLL_S)
        self._say("copiers have reached the end")

    def _not_copied(self) -> list[str]:
        transactional = self._history.transactional
        seen = [each for each in list(transactional.seen) if each.reader == FOLLOWER and each.entry is not None]
        entries = {each.entry for each in seen}
        copied = {each.entry.source for each in seen if each.entry is not None and each.topic == COPIES}
        deals = [deal for deal in list(transactional.deals) if deal.outcome == COMMITTED]
        unseen = [str(entry) for deal in deals for entry in deal.entries if entry not in entries]
        places = [(each.partition, each.offset) for each in seen if each.topic == DEALS]
        return unseen + [f"{place} of {DEALS}" for place in places if place not in copied]

    async def _settle(self) -> None:
        transactional, bootstrap = self._history.transactional, self._cluster.bootstrap
        waited = await asyncio.to_thread(wait_until_stable, bootstrap, transactional.partitions)
        transactional.open_for_s = waited
        self._say(f"no transaction is open after {max((each or inf for each in waited.values()), default=0.0):.2f} s")

    async def _read_back(self) -> None:
        history, bootstrap, partitions = self._history, self._cluster.bootstrap, self._options.partitions
        history.log = await asyncio.to_thread(read_log, bootstrap, partitions)
        self._say(f"the log has {sum(map(len, history.log.values()))} records")
        transactional = history.transactional
        views = await asyncio.to_thread(read_views, bootstrap, partitions)
        transactional.committed, transactional.uncommitted = views
        for agent in self._cluster.regular:
            agent.kill()
        self._all_live("down")
        for agent in self._cluster.regular:
            agent.start()
        await self._cluster.wait_until_ready(self._cluster.regular)
        self._all_live("ready")
        history.log_again = await asyncio.to_thread(read_log, bootstrap, partitions)
        views = await asyncio.to_thread(read_views, bootstrap, partitions)
        transactional.committed_again, transactional.uncommitted_again = views
        self._say(f"after all agents were killed it has {sum(map(len, history.log_again.values()))}")

    async def _exchange(self) -> None:
        """With a history of its own: groups and transactions lose what stands in the database alone."""
        options = self._options
        self._history.exchanged = exchanged = History(
            seed=options.seed, minutes=0, lease_ttl_s=options.lease_ttl_s, partitions=options.partitions
        )
        logs = options.folder / "logs"
        try:
            await DatabaseExchange(self._cluster, exchanged, self._now, self._say, logs).run()
        finally:
            exchanged.ended_at = self._now()

    # --- clients --------------------------------------------------------------------------------------------------

    def _make_producers(self) -> list[AnyClient]:
        history, per_second = self._history, self._options.per_second
        logs, bootstrap = self._options.folder / "logs", self._cluster.bootstrap
        rate = self._options.transactions_per_second
        made: list[AnyClient] = list(make_transactors(history, self._now, bootstrap, per_second=rate, logs=logs))
        made += list(make_producers(history, self._now, self._cluster.bootstrap, per_second=per_second, logs=logs))
        for agent in self._cluster.regular:
            host, port = agent.kafka.host, agent.kafka.port
            made.append(make_stubborn(history, self._now, agent.name, host, port, per_second=per_second / 3))
        return made

    def _make_consumers(self) -> list[AnyClient]:
        return list(make_consumers(self._history, self._now, self._cluster.bootstrap))

    def _make_copiers(self) -> list[CopierSlot]:
        logs = self._options.folder / "logs"
        return list(make_copiers(self._history, self._now, self._cluster.bootstrap, logs=logs))

    def _make_readers(self) -> list[AnyClient]:
        return list(make_readers(self._history, self._now, self._cluster.bootstrap))

    async def _finish(self, clients: Sequence[AnyClient]) -> None:
        for each in clients:
            each.stop()
        await asyncio.gather(*(each.finished() for each in clients))

    def _all_live(self, state: str) -> None:
        at = self._now()
        self._history.lives += [Life(at, agent.name, state) for agent in self._cluster.regular]

    def _trouble(self, who: str, text: str) -> None:
        self._say(f"{who} {text}")
        self._history.troubles.append(Note(self._now(), who, text))


def create_topics(bootstrap: str, partitions: int) -> None:
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    topics = [NewTopic(name, partitions) for name in (TOPIC, DEALS, COPIES, EXCHANGED_TOPIC)]
    for created in admin.create_topics(topics).values():
        created.result(30)
