"""World: the machine, the stores and the lives of agents, in one process under one seed.

Owns        agents built from the product's own parts with simulated dependencies; their starts, deaths and restarts
Leaves      when they die to `nemesis`, what clients do to `workload`, what must hold to `history`

Each slot is a machine on which one life of an agent follows the other. Alone, there is one slot and a data folder on
its disk, whose lock demands that the next life begins when the one before it is dead. A team has several slots and
stores that all share, each slot in its own weather; whoever died is succeeded by those who live, or, where each has a
disk with its log, by the next life in the same slot.
"""

import asyncio
import random
import socket
import uuid
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Final, cast

from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import AgentClient, Dependencies, FreezeClient, WalFactory, no_agents, no_freezes
from streamhouse.broker.wal.disk_recovery import DiskWalFactory
from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids
from streamhouse.config.fields import Address
from streamhouse.errors import StreamhouseError
from streamhouse.format.object_keys import WAL_PREFIX
from streamhouse.model.names import PartitionId, TopicId, TopicPartition
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.retrying import RetryingStore, RetrySettings
from streamhouse.wire.kafka.server import KafkaServer
from streamhouse.wire.listener import OpenListener

from .clocks import SimClock
from .files import SimFiles
from .group_history import GroupHistory
from .history import Fact, History, PartitionHistory, Sent
from .leadership import Leadership
from .loop import SimLoop
from .metadata import MetadataDoor, SimDatabase, as_store
from .network import Connection
from .objects import ObjectDoor
from .options import ALL_PROFILES, Options
from .retention_model import RetentionModel
from .sockets import ListeningSocket, SimServer
from .transaction_history import TransactionHistory
from .weather import Weather
from .wire_client import WireConnection

WAL_ROOT: Final = Path("/data/wal")
PORT: Final = 9092
FATEFUL: Final = frozenset({"claim_recovery", "finish_recovery", "acquire", "release", "commit_external_segments"})
RETRIES: Final = RetrySettings(attempts=3, total_s=1.0, attempt_timeout_s=0.3, first_wait_s=0.02, max_wait_s=0.1)


class Agent:
    """One life of an agent."""

    def __init__(self, world: "World", number: int, slot: int) -> None:
        self.world = world
        self.number = number
        self.slot = slot
        self.address = Address(host="127.0.0.1", port=PORT + slot)
        self.weather = world.weathers[slot]
        self.process = world.loop.new_process(f"agent-{number}")
        self.files = world.disks[slot]
        self.is_listening = False
        self.connections: list[Connection] = []
        self.wire: SimServer | None = None
        """Where clients reach the product's server, if they speak its protocol."""
        self.over: asyncio.Future[str] = world.loop.create_future()
        self.broker = self.process.context.run(Broker, self._dependencies())
        self.main = world.loop.spawn(self.process, self._live(), name="agent")

    def __repr__(self) -> str:
        return f"<Agent {self.process!r} {self.broker!r}>"

    def _dependencies(self) -> Dependencies:
        world = self.world
        settings = world.options.settings
        ids = Ids(random.Random(f"ids-{world.options.seed}-{self.number}"))
        team = world.options.team > 0
        objects: ObjectStore = ObjectDoor(
            world.loop,
            world.bucket,
            world.database,
            self.weather,
            damaged=world.damaged,
            detached=0.3 if team else 0.0,
            sending=self._sending if team else None,
        )
        if world.options.retries:
            objects = RetryingStore(objects, world.clock, ids, RETRIES)
        self.metadata = MetadataDoor(
            world.loop,
            world.database.store(),
            self.weather,
            world.database.locks,
            detached=team,
            happened=self._happened if team else None,
        )
        wals: WalFactory = (
            ObjectWalFactory(objects, settings.wal, clock=world.clock, ids=ids)
            if not world.options.has_disks
            else DiskWalFactory(WAL_ROOT, settings.wal, files=self.files, clock=world.clock, ids=ids)
        )
        return Dependencies(
            settings=settings,
            objects=objects,
            metadata=as_store(self.metadata),
            wal_factory=wals,
            clock=world.clock,
            ids=ids,
            kafka=self.address,
            http=self.address,
            single_agent=not team,
            freezes=self._holders(),
            agents=self.world.make_peers(self) if self.world.make_peers is not None else no_agents(),
        )

    def _holders(self) -> FreezeClient:
        return self.world.make_holders(self) if self.world.make_holders is not None else no_freezes()

    def _happened(self, call: str) -> None:
        """Some die, or fall asleep, soon after they have begun something that others must be able to finish."""
        world = self.world
        if call not in FATEFUL or world.is_quiet or world.chance.random() >= world.options.doom:
            return
        steps = int(world.chance.choice((10, 60, 200)) * world.chance.random())
        world.loop.note(f"{self.process.name} has done {call}, and {steps} steps to go")
        self.process.fuse = (steps, self._doomed)

    def _doomed(self) -> None:
        if self.world.chance.random() < 0.5:
            self.world.kill(self, power=False)
        else:
            self.sleep(self.world.chance)

    def _sending(self, key: str) -> None:
        """Some fall asleep with a PUT of their log under way, which arrives when they are long succeeded."""
        world = self.world
        if key.startswith(WAL_PREFIX) and not world.is_quiet and world.chance.random() < world.options.sleepy_puts:
            self.sleep(world.chance)

    def sleep(self, chance: random.Random) -> None:
        """About as long as it takes others to recover it, or longer; it goes on as if nothing had happened."""
        if not self.process.is_paused:
            shortest_s = self.world.options.settings.lease.life_ms / 1000
            seconds = shortest_s + (chance.uniform(0.0, 2.0) if chance.random() < 0.7 else chance.uniform(-1.0, 8.0))
            self.world.loop.note(f"{self.process.name} sleeps for {seconds:.1f} s")
            self.world.loop.pause(self.process, seconds)

    async def _live(self) -> None:
        try:
            await self.broker.start()
        except (StreamhouseError, OSError) as error:
            self._end(f"did not start: {error}")
            return
        except Exception as error:
            self.world.loop.fail(error)
            raise
        self.world.loop.note(f"started recovered={self.broker.recovered.records}")
        kafka = await self._serve() if self.world.options.is_wired else None
        self.is_listening = True
        try:
            await self.broker.run()
        except Exception as error:
            self.world.loop.fail(error)
            raise
        self.is_listening = False
        if kafka is not None:
            await kafka.stop()
        await self._shut()
        self._end("stopped")

    async def _serve(self) -> KafkaServer:
        """Kafka's protocol, by the product's server, at the agent's port."""
        server = KafkaServer(
            self.world.options.settings.kafka,
            self.broker,
            listeners=[OpenListener.plain(cast(socket.socket, ListeningSocket(self.address.host, self.address.port)))],
            clock=self.world.clock,
            registry=CollectorRegistry(),
            cluster_id="simulated",
        )
        await server.start()
        self.wire = self.world.loop.listening[self.address.port]
        return server

    async def _shut(self) -> None:
        tasks = [task for connection in self.connections for task in connection.shut()]
        if tasks:
            await asyncio.wait(tasks)
        self.world.check_stopped(self)

    def _end(self, how: str) -> None:
        if not self.over.done():
            self.over.set_result(how)


class World:
    def __init__(self, loop: SimLoop, options: Options) -> None:
        self.loop = loop
        loop.make_server = SimServer
        self.options = options
        self.chance = random.Random(f"world-{options.seed}")
        self.clock = SimClock(loop)
        self.database_clock = SimClock(loop) if options.database_has_own_clock else self.clock
        self.database = SimDatabase(self.database_clock, loop)
        self.bucket = MemoryObjectStore(SimClock(loop))
        self.weathers = [
            Weather(loop, random.Random(f"weather-{options.seed}" + (f"-{slot}" if slot else "")))
            for slot in range(max(options.team, 1))
        ]
        self.disks = [
            SimFiles(random.Random(f"disk-{options.seed}" + (f"-{slot}" if slot else "")))
            for slot in range(len(self.weathers))
        ]
        """Of each slot; a team whose log is in the bucket leaves them empty."""
        self.history = History(loop, self.database, self._retention())
        self.leadership = Leadership(
            self.history.violated, self.database, self._log_bodies, reserves=options.has_disks and options.team > 0
        )
        self.groups = GroupHistory(
            self.history.violated,
            drops=self.database.drops,
            span_ms=self.clock.span_ms,
            retention_ms=round(options.settings.groups.offsets_retention_s * 1000),
            in_team=options.team > 0,
            ordinary=self._ordinary_groups(),
        )
        self.make_holders: Callable[[Agent], FreezeClient] | None = None
        """How agents ask each other to hold partitions."""
        self.make_peers: Callable[[Agent], AgentClient] | None = None
        self.transactions = TransactionHistory(
            self.history.violated, self.database, self.history.recorder, now=loop.time
        )
        self.agents: list[Agent] = []
        self.lives: dict[int, Agent] = {}
        """The newest life of each slot."""
        self.is_quiet = False
        """Whether faults are over."""
        self.is_closing = False
        """Whether who ends is succeeded by nobody."""
        self.damaged: set[str] = set()
        """Objects that somebody has damaged."""
        self.deaths: dict[str, int] = {}
        self.power_cuts = 0
        self.epochs_begun = 0
        """How often the power took what the policy had not synced, or a write that was under way."""
        self.sent_in_bytes: set[bytes] = set()
        """Batches that somebody has sent in Kafka's protocol."""
        self.must_be_stored: list[tuple[Sent, int]] = []
        """Batches that the broker called stored without saying where, and the power cuts before it did."""

    def _ordinary_groups(self) -> frozenset[str]:
        """Where the power takes what was not synced, members begin again below what they committed; what the network
        brings again may be committed again."""
        options = self.options
        if options.offsets_expire or (not self.is_team and options.settings.wal.fsync != "always"):
            return frozenset()
        plans = (plan for plan in options.groups if plan.members and not plan.echoes and not plan.is_deleted)
        return frozenset(plan.group_id for plan in plans)

    def _retention(self) -> RetentionModel:
        clock, database_clock = self.clock, self.database_clock
        return RetentionModel(
            {plan.name: plan.overrides for plan in self.options.topics},
            now_ms=lambda: min(clock.latest_ms(), database_clock.latest_ms()),
            span_ms=clock.span_ms,
            transactions=lambda: self.transactions.begun,
        )

    @property
    def profile(self) -> Mapping[str, int]:
        return ALL_PROFILES[self.options.profile]

    @property
    def is_team(self) -> bool:
        return self.options.team > 0

    @property
    def agent(self) -> Agent | None:
        """The agent in force, if there is one; the youngest of a team."""
        return self.agents[-1] if self.agents and not self.agents[-1].over.done() else None

    def alive(self) -> list[Agent]:
        return [agent for agent in self.lives.values() if not agent.over.done()]

    def any_agent(self, chance: random.Random) -> Agent | None:
        """Somebody who listens, if there is anybody."""
        listening = [agent for agent in self.alive() if agent.is_listening]
        return chance.choice(listening) if listening else None

    def at(self, port: int) -> Agent | None:
        """Who listens at a port."""
        return next((agent for agent in self.alive() if agent.is_listening and agent.address.port == port), None)

    def dial(self, agent: Agent, chance: random.Random, *, speaks_kafka: bool) -> Connection:
        """A connection to an agent: in bytes, where the client can and the seed wants it."""
        if not (speaks_kafka and self.options.is_wired):
            return Connection(self.loop, agent, chance)
        cuts = 0.0 if self.is_quiet else self.options.wire_cuts
        naps = 0.0 if self.is_quiet else self.options.wire_naps
        return cast(Connection, WireConnection(self, agent, chance, cuts=cuts, naps=naps))

    async def listening_agents(self) -> list[Agent]:
        """All of them, as soon as every slot has one."""
        while True:
            listening = [agent for agent in self.alive() if agent.is_listening]
            if len(listening) == len(self.weathers):
                return listening
            await asyncio.sleep(0.05)

    async def open(self) -> None:
        await self.database.open()

    # --- lives

    async def keep_alive(self, slot: int) -> None:
        """Start agents in a slot, one after the other, until the task is cancelled or the world is closing."""
        while not self.is_closing:
            agent = self._boot(slot)
            how = await agent.over
            self.loop.note(f"agent-{agent.number} {how}")
            self._exit(agent)
            self.deaths[how.partition(":")[0]] = self.deaths.get(how.partition(":")[0], 0) + 1
            await asyncio.sleep(self.chance.expovariate(1 / (self.options.down_s if not self.is_quiet else 0.1)))

    def _boot(self, slot: int) -> Agent:
        agent = Agent(self, len(self.agents), slot)
        self.agents.append(agent)
        self.lives[slot] = agent
        if agent.weather.disk_is_full:
            agent.files.fill_up_after(self.chance.randrange(500))
        if not self.is_quiet and self.chance.random() < self.options.restart_fuse:
            steps = int(self.chance.choice((30, 150, 400)) * self.chance.random())
            agent.process.fuse = (steps, lambda: self.kill(agent, power=False))
        return agent

    def kill(self, agent: Agent, *, power: bool) -> None:
        """SIGKILL, or the power goes. Calls to the system that were under way may or may not have happened."""
        if agent.over.done() or agent.process.is_dead:
            return
        self.loop.note(f"{'power cut' if power else 'kill'} {agent.process.name}")
        for job in self.loop.kill(agent.process):
            if self.chance.random() < 0.5:
                # A write that SIGKILL interrupts leaves a prefix.
                if self.chance.random() < 0.5:
                    agent.files.fill_up_after(self.chance.randrange(400))
                job.perform()
        if power:
            self._cut_power()
        agent.over.set_result("power cut" if power else "killed")

    def _cut_power(self) -> None:
        self.power_cuts += 1
        if self.options.settings.wal.fsync != "always":
            self.transactions.power_cut()
            self.history.power_cut(lambda _, fact: self._is_synced(fact.sent.identity))
        self.disks = [files.power_cut() for files in self.disks]

    def _exit(self, agent: Agent) -> None:
        """The process is gone, however it ended: its locks are free and its connections break."""
        if not agent.process.is_dead:
            self.loop.kill(agent.process)
        self.groups.died(agent.process)
        if self.disks[agent.slot] is agent.files:
            self.disks[agent.slot] = agent.files.kill()
        for connection in agent.connections:
            connection.server_gone()

    async def stop(self, agent: Agent) -> None:
        """Ask for a graceful stop and wait for the end, whatever it is."""
        if not agent.is_listening:
            return
        self.loop.note(f"stop {agent.process.name}")
        self.loop.call_soon(agent.broker.stop, context=agent.process.context.copy())
        await asyncio.wait({agent.over})

    # --- what can be seen from above

    def acknowledged(self, log: PartitionHistory, fact: Fact, by: Broker, epoch: int | None) -> None:
        """Nothing may be acknowledged that neither the WAL nor a published segment holds under the policy."""
        if self.is_team:
            if epoch is not None:
                assert by.agent_session is not None
                self.leadership.acknowledged(log, fact, by.agent_session.session.session_id, epoch)
            return
        bounds = self.database.bounds(log.partition)
        if bounds is None or fact.end <= bounds[1]:
            return
        always = self.options.settings.wal.fsync == "always"
        holds = self._is_synced if always else self._is_written
        if not holds(fact.sent.identity):
            self.history.violated(f"acknowledged though the WAL does not hold it; {log.name} {fact}")

    def _log_bodies(self) -> Iterator[bytes | bytearray]:
        """What the logs of a team hold; the newest object first: that is where it is."""
        for key, stored in reversed(self.bucket._objects.items()):
            if key.startswith(WAL_PREFIX):
                yield stored.body
        for files in self.disks:
            yield from (content.cached for content in files._disk.contents.values())

    def _is_synced(self, identity: bytes) -> bool:
        return any(identity in content.durable for content in self.disks[0]._disk.contents.values())

    def _is_written(self, identity: bytes) -> bool:
        return any(identity in content.cached for content in self.disks[0]._disk.contents.values())

    def check_stopped(self, agent: Agent) -> None:
        """After a graceful stop nothing is left of the agent but what it handed over."""
        if agent.broker.budget.used_bytes:
            self.history.violated(f"memory was not given back; {agent.broker.budget!r}")
        if not self.is_quiet:
            return  # time may have run out in the middle of anything; the process ends anyway
        # asyncio closes a forgotten async generator in a task of its own, which is on its way out.
        left = [task for task in agent.process.living_tasks() if task is not agent.main and not task.is_closing]
        if left:
            self.history.violated(f"tasks were left running; {left}")

    def unended_sessions(self) -> list[str]:
        """Those that somebody lives in or must recover. An agent with a disk that died between the row of its session
        and the first file of its log leaves a row that names nothing: others end it when `disk_wait_s` is over, which
        is an hour here."""
        sessions = self.database.unended_sessions()
        if not (self.is_team and self.options.has_disks):
            return sessions
        held = self.database.holders()
        on_disk = {part for files in self.disks for path in files._disk.contents for part in path.parts}
        return [each for each in sessions if each in held or each in on_disk]

    def check_rows(self) -> None:
        """Of every partition the rows fit together, whoever has put which of them in whose place."""
        for problem in self.database.misfits():
            self.history.violated(problem)

    def _overrides(self, name: TopicPartition) -> Mapping[str, str]:
        return next(plan.overrides for plan in self.options.topics if plan.name == name.topic)

    def recreates(self, name: TopicPartition) -> bool:
        """Whether the topic of this name may be deleted and created again, unknown to some agent of a team."""
        return self.is_team and all(plan.name != name.topic for plan in self.options.topics)

    def stamps_append_time(self, name: TopicPartition) -> bool:
        return "message.timestamp.type" in self._overrides(name)

    def deletes(self, name: TopicPartition) -> bool:
        """Whether old records of this topic are deleted at all; those of the others are all checked in the end."""
        overrides = self._overrides(name)
        return "retention.bytes" in overrides or overrides["retention.ms"] != "-1"

    def name_of(self, partition: PartitionId) -> TopicPartition | None:
        """What a partition is called at the moment; None when it is gone."""
        name = self.database.topic_name(partition.topic_id)
        return TopicPartition(name, partition.partition) if name is not None else None

    def partition(self, name: TopicPartition) -> PartitionId | None:
        """Which partition a name means at the moment."""
        topic_id = self.database.topic_id(name.topic)
        return PartitionId(TopicId(uuid.UUID(topic_id)), name.partition) if topic_id is not None else None
