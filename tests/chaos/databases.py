"""Databases: what agents do with a database that isn't theirs: an older copy, an empty one, another cluster's.

Data path   run -> **databases** -> cluster, history
Owns        copying the database and putting the copy in its place; the steps; which words an agent must find
Leaves      what is acknowledged meanwhile to `producers`; judging to `checker`

PostgreSQL fails over to a copy that lacks the last transactions. Every agent must notice, end its session with words,
and go on when the newest database is back; what it acknowledged meanwhile must be there. Then agents are started on
databases that don't belong to the bucket, and must refuse to.
"""

import asyncio
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Final

import asyncpg

from .cluster import ChaosAgent, ChaosCluster
from .consumers import read_log
from .history import Fault, History, Note
from .producers import make_pair

TOPIC: Final = "exchanged"
FAILOVER: Final = "PostgreSQL fails over, last transactions lost"
OLDER: Final = "an agent starts on the older database"
EMPTY: Final = "an agent starts on a second, empty database"
FOREIGN: Final = "an agent starts on another cluster's database"
WORDS: Final = {
    FAILOVER: ("older than the object store", "another database has begun this generation", "rows and log differ"),
    OLDER: ("older than the object store",),
    EMPTY: ("database is empty",),
    FOREIGN: ("belong to different clusters",),
}
NOTICED_S: Final = 60.0
LOAD_S: Final = 4.0
POLL_S: Final = 0.1
MIN_ACKS: Final = 100
COPY: Final = "copy"
SECOND: Final = "second"


class DatabaseExchange:
    def __init__(
        self, cluster: ChaosCluster, history: History, now: Callable[[], float], say: Callable[[str], None], logs: Path
    ) -> None:
        """`history` is one of its own: who reads groups and transactions is not asked about these."""
        self._cluster, self._history, self._now, self._say = cluster, history, now, say
        self._logs = logs
        history.min_acks = MIN_ACKS
        history.min_faults = len(WORDS)

    async def run(self) -> None:
        producers = list(make_pair(self._history, self._now, self._cluster.bootstrap, topic=TOPIC, logs=self._logs))
        for each in producers:
            each.start()
        try:
            await asyncio.sleep(LOAD_S)
            await self._fail_over()
            await asyncio.sleep(LOAD_S)
        finally:
            for each in producers:
                each.stop()
            await asyncio.gather(*(each.finished() for each in producers))
        await self._read(again=False)
        await self._start_elsewhere()
        for agent in self._cluster.regular:
            agent.kill()
        for agent in self._cluster.regular:
            agent.start()
        await self._cluster.wait_until_ready(self._cluster.regular)
        await self._read(again=True)

    async def _read(self, *, again: bool) -> None:
        log = await asyncio.to_thread(read_log, self._cluster.bootstrap, self._history.partitions, TOPIC)
        if again:
            self._history.log_again = log
        else:
            self._history.log = log
        self._say(f"after the exchange of databases the log has {sum(map(len, log.values()))} records")

    # --- a failover -----------------------------------------------------------------------------------------------

    async def _fail_over(self) -> None:
        """The copy is some seconds old: segments were registered since, and an agent has begun another session."""
        cluster = self._cluster
        restarted, *others = cluster.regular
        await asyncio.to_thread(cluster.postgres.copy, COPY)
        restarted.kill()
        restarted.start()
        await cluster.wait_until_ready([restarted])
        await asyncio.sleep(LOAD_S)
        fault = self._begin(FAILOVER, [agent.name for agent in cluster.regular])
        since = {agent.name: agent.log_end() for agent in cluster.regular}
        await asyncio.to_thread(cluster.postgres.exchange, COPY)
        await self._noticed(fault, cluster.regular, since)
        await self._refuse_older(others[0])
        await asyncio.to_thread(cluster.postgres.exchange, COPY)
        fault.ended_at = self._now()
        others[0].start()
        try:
            await cluster.wait_until_ready(cluster.regular)
        except TimeoutError:
            self._trouble("cluster", "was not ready in time after the newest database was back")
        fault.healed_at = self._now()

    async def _noticed(self, fault: Fault, agents: Sequence[ChaosAgent], since: dict[str, int]) -> None:
        """Until every agent has said that this isn't its database."""
        result: dict[str, str] = {}
        while len(result) < len(agents) and self._now() < fault.begun_at + NOTICED_S:
            for agent in agents:
                if agent.name not in result and any(
                    words in agent.lines(since[agent.name]) for words in WORDS[FAILOVER]
                ):
                    result[agent.name] = f"{agent.name} after {self._now() - fault.begun_at:.1f} s"
            await asyncio.sleep(POLL_S)
        fault.hits, fault.note = len(result), "noticed by " + ", ".join(result.values())
        for agent in agents:
            if agent.name not in result:
                self._trouble(agent.name, f"did not notice an older database within {NOTICED_S:g} s")

    async def _refuse_older(self, agent: ChaosAgent) -> None:
        agent.kill()
        await self._refuses(OLDER, agent)

    # --- databases that don't belong to the bucket ----------------------------------------------------------------

    async def _start_elsewhere(self) -> None:
        """With the spare agent: on a database with nothing in it, and on one that has another bucket's prefix."""
        cluster = self._cluster
        spare = next(agent for agent in cluster.agents.values() if agent not in cluster.regular)
        connection = await asyncpg.connect(cluster.dsn)
        await connection.execute(f"CREATE DATABASE {SECOND}")
        await connection.close()
        usual = spare.environment
        second = {
            **usual,
            "STREAMHOUSE_METADATA_URL": f"{usual['STREAMHOUSE_METADATA_URL'].rpartition('/')[0]}/{SECOND}",
        }
        spare.environment = second
        await self._refuses(EMPTY, spare)
        spare.environment = {**second, "STREAMHOUSE_STORE_URL": f"{usual['STREAMHOUSE_STORE_URL']}-of-another"}
        spare.start()
        await cluster.wait_until_ready([spare])
        await spare.stop()
        spare.environment = second
        await self._refuses(FOREIGN, spare)
        spare.environment = usual

    async def _refuses(self, kind: str, agent: ChaosAgent) -> None:
        fault = self._begin(kind, [agent.name])
        since = agent.log_end()
        agent.start()
        agent.should_run = False  # nobody starts it again
        while agent.running and self._now() < fault.begun_at + NOTICED_S:  # noqa: ASYNC110 - a process has no event
            await asyncio.sleep(POLL_S)
        is_refused = not agent.running and any(words in agent.lines(since) for words in WORDS[kind])
        fault.ended_at = fault.healed_at = self._now()
        fault.hits, fault.note = int(is_refused), f"{agent.ending}, {'with' if is_refused else 'without'} the words"
        if not is_refused:
            self._trouble(agent.name, f"{kind}: {agent.ending}; see {agent.log_path.name}")
        agent.kill()

    def _begin(self, kind: str, targets: Sequence[str]) -> Fault:
        self._say(kind)
        fault = Fault(kind=kind, targets=list(targets), begun_at=self._now(), hits=0)
        self._history.faults.append(fault)
        return fault

    def _trouble(self, who: str, text: str) -> None:
        self._say(f"{who} {text}")
        self._history.troubles.append(Note(self._now(), who, text))
