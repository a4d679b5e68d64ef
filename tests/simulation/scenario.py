"""Scenario: one seed from beginning to end.

Owns        the phases: set up, faults, heal, liveness, stop, look at everything cold, collect
Leaves      every part to its module

Liveness is a promise too: once the faults are over, every producer must succeed and every reader must reach the end
within `LIVELY_S` of virtual time.
"""

import asyncio
import gc
import random
import re
import sys
import time
import traceback
from collections.abc import Callable, Coroutine, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, cast

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import AgentClient
from streamhouse.broker.wal.disk_quarantine import quarantine_root
from streamhouse.errors import StreamhouseError, TopicExists
from streamhouse.format.loss_report import decode_report
from streamhouse.format.object_keys import CLUSTER_KEY, GENERATIONS_PREFIX, TOPICS_PREFIX, WAL_PREFIX
from streamhouse.model.fetch import FetchResult, PartitionFetch
from streamhouse.model.names import TopicPartition
from tests.history.checker import check

from .churn import TOPIC, Churner
from .clients import Client, simply
from .consumers import Follower, RandomReader
from .damage import Damage
from .eager import EagerProducer
from .files import SimFiles
from .groups import Crowd
from .jobs import Job
from .loop import SimLoop, Violation
from .nemesis import Nemesis
from .network import Connection, Lost
from .options import Options, changed, choose
from .placers import Placer, SimHolders
from .producers import IdempotentProducer, PlainProducer
from .recorder import batches_of
from .tables import Table
from .transactors import SimPeers, Transactor
from .world import WAL_ROOT, Agent, World

LIVELY_S = 120.0
GROUPS_LIVELY_S = 30.0
MAX_STEPS = 1_000_000
SHORT_STOP_S = 1.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Outcome:
    seed: int
    profile: str | None
    options: Options
    failure: str | None
    digest: int
    steps: int
    virtual_s: float
    wall_s: float
    counts: dict[str, int]

    @property
    def violations(self) -> set[str]:
        """The rules that were violated, by their names: what a violation says up to its first semicolon. Anything else
        that ends a seed (an exception of the product or of the simulator) is no violation."""
        return set(re.findall(r"\bViolation: ([^;\n]+)", self.failure or ""))


def run_seed(
    seed: int,
    *,
    profile: str | None = None,
    trace: Callable[[str], None] | None = None,
    tweaks: Mapping[str, Any] | None = None,
) -> Outcome:
    """Run one seed, with some of its options changed where a test asks; never raises for what the seed found."""
    gc.freeze()  # what is there already stays there; looking through it after every seed would take a tenth of it
    gc.disable()  # when garbage goes must not depend on what else lives in this Python
    hook, sys.unraisablehook = sys.unraisablehook, _ignore
    try:
        outcome = _run(changed(choose(seed, profile), tweaks or {}), profile, trace)
        gc.collect()  # here, where the last words of killed coroutines are not heard
        return outcome
    finally:
        sys.unraisablehook = hook
        gc.enable()


def _ignore(_: object) -> None:
    """Coroutines of the dead protest when they are thrown away."""


def _run(options: Options, profile: str | None, trace: Callable[[str], None] | None) -> Outcome:
    chance = random.Random(f"loop-{options.seed}")
    loop = SimLoop(
        chance, fifo=options.fifo, starve=options.starve, unlucky=options.unlucky, latency_s=options.latency_s
    )
    loop.trace = trace
    scenario = Scenario(loop, options)
    started = time.monotonic()
    failure = None
    try:
        loop.run(scenario.run(), max_steps=MAX_STEPS)
    except Exception as error:  # noqa: BLE001 - whatever it is, this seed found it
        failure = _describe(error)
    if failure is None and loop.problems:
        failure = "asyncio reported: " + "; ".join(loop.problems)
    scenario.world.database.close()
    return Outcome(
        seed=options.seed,
        profile=profile,
        options=options,
        failure=failure,
        digest=loop.digest,
        steps=loop.steps,
        virtual_s=loop.time() - 1000,
        wall_s=time.monotonic() - started,
        counts=scenario.counts(),
    )


def _describe(error: BaseException) -> str:
    text = f"{type(error).__name__}: {error}"
    if isinstance(error, BaseExceptionGroup):
        text += "".join(f"\n  - {_describe(inner)}" for inner in error.exceptions)
    elif not isinstance(error, Violation) and error.__traceback__ is not None:
        frames = traceback.extract_tb(error.__traceback__)
        text += " at " + " < ".join(f"{frame.filename.rpartition('/')[2]}:{frame.lineno}" for frame in frames[::-1])
    return text


class Scenario:
    def __init__(self, loop: SimLoop, options: Options) -> None:
        self.loop = loop
        self.options = options
        self.world = World(loop, options)
        self.nemesis = Nemesis(self.world)
        self.names = [TopicPartition(plan.name, number) for plan in options.topics for number in range(plan.partitions)]
        self.crowd = Crowd(self.world, self.names)
        self._is_hurried = False
        """Whether an agent ran out of time in its stop, where it has little."""
        self.jobs = [Job(self.world, f"job{number}") for number in range(options.jobs)]
        self.damage = Damage(self.world)
        self.tables = [Table(self.world)] if options.has_table else []
        self.world.make_holders = lambda agent: SimHolders(self.world, agent)
        self.world.make_peers = lambda agent: cast(AgentClient, SimPeers(self.world, agent))

    def counts(self) -> dict[str, int]:
        history = self.world.history
        return {
            "acks": history.acks,
            "duplicates": history.duplicates,
            "reads": history.reads,
            "forgiven": history.forgiven,
            "epochs begun": self.world.epochs_begun,
            "commits": self.world.groups.commits,
            "commits refused": self.world.groups.refused,
            "deletions": self.world.groups.deletions,
            "generations": self.world.groups.generations(),
            "transactions": self.world.transactions.begun,
            "transactions committed": self.world.transactions.committed,
            "transactions counted": self.world.transactions.counted,
            "transactions void": self.world.transactions.void,
            "agents": len(self.world.agents),
            "segments": len(self.world.bucket._objects),
            "placed": history.placements,
            "replaced": sum(job.replaced for job in self.jobs),
            "replaced too late": sum(job.came_late for job in self.jobs),
            "served beside damage": self.damage.served,
            "named as damaged": self.damage.named,
            "superseded": sum(table.superseded for table in self.tables),
            "jobs killed": sum(job.deaths for job in self.jobs),
            **{f"death:{how}": count for how, count in self.world.deaths.items()},
            **{f"fault:{name}": count for name, count in self.nemesis.struck.items()},
        }

    async def run(self) -> None:
        await self.world.open()
        supervisors = [
            self.loop.create_task(self.world.keep_alive(slot), name=f"supervisor-{slot}")
            for slot in range(len(self.world.weathers))
        ]
        admin = Client(self.world, "admin")
        await self._lively("creating topics", self._create_topics(admin))
        producers, followers, others = self._clients()
        clients = [
            self.loop.create_task(client.run(), name=client.name)
            for client in (*producers, *followers, *others, *self.jobs, *self.tables, *self.crowd.clients())
        ]
        members = [self.loop.create_task(member.run(), name=member.name) for member in self.crowd.members]
        nemesis = self.loop.create_task(self.nemesis.run(), name="nemesis")
        await asyncio.sleep(self.options.faults_s)
        nemesis.cancel()
        self.nemesis.heal()
        self.loop.note("healed")
        self.world.history.recorder.events.healed_at = self.loop.time()
        await self._lively("clients after the faults", asyncio.wait(clients))
        for client in clients:
            client.result()
        if self.options.transactors:
            await self._lively("transactions end", self._all_is_stable(admin))
        for follower in followers:
            await self._lively(f"{follower.name} reaches the end", follower.catch_up())
        if self.world.is_team:
            await self._lively("everybody knows who leads", self._agree())
        await self._retire(members)
        await self._lively("hot reading", self._read_everything(admin))
        await self._lively("memory comes back", self._memory_is_free())
        if self.options.is_damaged:
            await self._lively("damage", self.damage.run())
        await self._lively("stop", self._stop())
        await self._lively("cold reading", self._read_everything(admin))
        for auditor in self.crowd.auditors:
            await self._lively("what was committed", auditor.told())
        # Agents go on merging, a little at a time, and where there are jobs each object stays for a while after that.
        await self._lively("collection", self._collect(), within_s=LIVELY_S * (3 if self.jobs else 1))
        await self._lively("everybody is back", self.world.listening_agents())  # nobody begins after this
        self.world.is_closing = True
        await self._lively("stop", self._stop())
        self._check_closed()
        self._check_events()
        for supervisor in supervisors:
            supervisor.cancel()

    async def _retire(self, members: Sequence["asyncio.Task[None]"]) -> None:
        """The groups get everything done; then their members go, with or without a word."""
        for auditor in self.crowd.auditors:
            await self._lively(auditor, auditor.settled(), within_s=GROUPS_LIVELY_S)
        for member in self.crowd.members:
            member.is_retired = True
        if members:
            await self._lively("members retire", asyncio.wait(members))
        for task in members:
            task.result()
        for auditor in self.crowd.auditors:
            await self._lively(auditor, auditor.emptied(), within_s=GROUPS_LIVELY_S)

    async def _lively(self, what: object, work: Coroutine[Any, Any, object], *, within_s: float = LIVELY_S) -> None:
        try:
            async with asyncio.timeout(within_s):
                await work
        except TimeoutError:
            raise Violation(f"stuck; {what} {self.world.alive()!r}\n{self.loop.dump()}") from None

    def _clients(
        self,
    ) -> tuple[
        list[PlainProducer | IdempotentProducer | EagerProducer],
        list[Follower],
        list[RandomReader | Churner | Placer | Transactor],
    ]:
        options, world = self.options, self.world
        producers: list[PlainProducer | IdempotentProducer | EagerProducer] = [
            *(PlainProducer(world, f"plain{number}", self.names) for number in range(options.plain_producers)),
            *(
                IdempotentProducer(world, f"idem{number}", world.chance.sample(self.names, min(2, len(self.names))))
                for number in range(options.idempotent_producers)
            ),
            *(
                EagerProducer(world, f"eager{number}", world.chance.sample(self.names, min(3, len(self.names))))
                for number in range(options.eager_producers)
            ),
        ]
        followers = [
            *(Follower(world, f"follower{number}", self.names) for number in range(options.followers)),
            *(
                Follower(world, f"committed{number}", self.names, is_committed=True)
                for number in range(options.committed_followers)
            ),
        ]
        others: list[RandomReader | Churner | Placer | Transactor] = [
            *(RandomReader(world, f"reader{number}", self.names) for number in range(options.readers)),
            *(Placer(world, f"placer{number}", self.names) for number in range(options.placers)),
        ]
        if options.churns:
            others.append(Churner(world))
        others += self._transactors()
        return producers, followers, others

    def _transactors(self) -> list[Transactor]:
        """Those without a rival may leave their last transaction open, where no clock jumps: then its time is up."""
        options, world = self.options, self.world
        made: list[Transactor] = []
        for number in range(options.transactors):
            name = f"id{number % options.transactional_ids}"
            made.append(Transactor(world, f"txn{number}", name, self.names, is_modern=world.chance.random() < 0.7))
        for each in made:
            rivals = [other for other in made if other.transactional_id == each.transactional_id]
            each.abandons = len(rivals) == 1 and "clock-jump" not in world.profile and world.chance.random() < 0.5
        return made

    async def _create_topics(self, admin: Client) -> None:
        for plan in self.options.topics:
            while True:
                try:
                    await admin.call(
                        simply(
                            lambda broker, plan=plan: broker.create_topic(  # type: ignore[misc]
                                plan.name, partitions=plan.partitions, overrides=plan.overrides
                            )
                        )
                    )
                except TopicExists:
                    break
                except (StreamhouseError, Lost):
                    continue
                break

    # --- the end

    async def _read_everything(self, reader: Client) -> None:
        names = list(self.names)
        if self.world.database.topic_id(TOPIC) is not None:
            names += [TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)]
        for name in names:
            await self._read_all(reader, name)
            if self.options.transactors:
                await self._read_all(reader, name, is_committed=True)
        for table in self.tables:
            await table.check()
        self._check_stored_unseen()

    async def _read_all(self, reader: Client, name: TopicPartition, *, is_committed: bool = False) -> None:
        """The whole log, again from its start where retention overtakes the reader."""
        while True:
            try:
                start = (await reader.call(simply(lambda broker: broker.earliest(name)), at=name)).offset
                responses = await self._scan(reader, name, start, is_committed=is_committed)
            except (StreamhouseError, Lost):
                await asyncio.sleep(0.05)
                continue
            partition = self.world.partition(name)
            assert partition is not None
            log = self.world.history.of(partition, name)
            bounds = self.world.history.bounds(log)
            assert bounds is not None
            batches = [data for each in responses for _, data in batches_of(each.records)]
            self.world.history.complete(log, max(start, bounds[0]), batches)
            self.world.history.recorder.read_whole(partition, responses, is_committed=is_committed)
            return

    async def _scan(self, reader: Client, name: TopicPartition, start: int, *, is_committed: bool) -> list[FetchResult]:
        responses: list[FetchResult] = []
        offset = start
        while True:
            requests = [PartitionFetch(name, offset, 3_000, committed=is_committed)]
            (read,) = await reader.fetch(requests, max_bytes=100_000, min_bytes=0, max_wait_s=0)
            if read.got.error is not None:
                raise read.got.error
            responses.append(read.got)
            if read.end >= read.got.high_watermark:
                return responses
            offset = read.end

    def _check_stored_unseen(self) -> None:
        """Batches that the broker called stored without their offset must be there, where nothing was deleted."""
        for sent, cuts in self.world.must_be_stored:
            partition = self.world.partition(sent.name)
            if partition is None or cuts != self.world.power_cuts:
                continue
            log = self.world.history.of(partition, sent.name)
            if log.log_start == 0 and not self.world.history.stored(log, sent):
                self.world.history.violated(f"a batch was called stored and is not; {sent.name} {sent.label}")

    async def _all_is_stable(self, reader: Client) -> None:
        """No transaction is left open, in the database or in any partition."""
        for name in self.names:
            while True:
                if self.world.database.unended_transactions():
                    await asyncio.sleep(0.1)
                    continue
                with suppress(StreamhouseError, Lost):
                    if await reader.call(simply(lambda broker, name=name: _is_stable(broker, name)), at=name):  # type: ignore[misc]
                        break
                await asyncio.sleep(0.1)

    def _check_events(self) -> None:
        """What all clients did and were told, from the beginning to the end, judged by the checker of all runs."""
        world, recorder = self.world, self.world.history.recorder
        recorder.transactions(world.transactions.all_of_them())
        recorder.readers(world.partition)
        recorder.deletable(world.history.partitions())
        recorder.groups(world.groups)
        if anomalies := check(recorder.events):
            raise Violation(f"{anomalies[0].kind}; " + "; ".join(map(str, anomalies)))

    async def _memory_is_free(self) -> None:
        while True:
            agents = await self.world.listening_agents()
            if not any(agent.broker.budget.used_bytes for agent in agents):
                return
            await asyncio.sleep(0.1)

    async def _stop(self) -> None:
        """A graceful stop in good weather leaves no session and no WAL, and every published object is there. Where an
        agent has little time for it and each call takes long, it may run out of time: then others recover it."""
        for agent in await self.world.listening_agents():
            agent_session, files = agent.broker.agent_session, agent.files
            assert agent_session is not None
            since = self.loop.time()
            await self.world.stop(agent)
            limit_s = self.options.settings.agent.stop_timeout_s
            if limit_s < SHORT_STOP_S and self.loop.time() - since >= limit_s:
                self._is_hurried = True
                continue
            if (how := agent.over.result()) != "stopped":
                raise Violation(f"a graceful stop ended otherwise; {how}")
            sessions = self.world.unended_sessions()
            if agent_session.session.session_id in sessions or (sessions and not self.world.is_team):
                raise Violation(f"sessions were left after a graceful stop; {sessions}")
            left = [str(path) for path in files._disk.contents if quarantine_root(WAL_ROOT) not in path.parents]
            if left and self.options.has_disks:
                raise Violation(f"the WAL was left after a graceful stop; {left}")
            self._check_kept(files)
        self._check_objects()

    def _check_kept(self, files: SimFiles) -> None:
        """Nobody damages logs here: without a power cut at most the end of one is torn, by a kill during a write."""
        result = {str(path): content for path, content in files._disk.contents.items() if path.suffix == ".json"}
        for path, content in result.items():
            report = decode_report(bytes(content.cached))
            if not self.world.power_cuts and (report is None or report.is_loss):
                raise Violation(f"a log that nobody damaged was taken for damaged; path={path} report={report}")

    async def _agree(self) -> None:
        """The sessions are those of the agents that live, each partition has one of them, and all say the same."""
        while True:
            agents = await self.world.listening_agents()
            tenures = [agent.broker.agent_session for agent in agents]
            own = sorted(agent_session.session.session_id for agent_session in tenures if agent_session is not None)
            responses = [await self._leaders_by(agent) for agent in agents]
            if own == self.world.unended_sessions() and None not in responses and len(set(map(str, responses))) == 1:
                return
            await asyncio.sleep(0.2)

    async def _leaders_by(self, agent: Agent) -> list[int] | None:
        """Who leads, as one agent tells; None when it can't, or when somebody has no leader."""

        async def ask(broker: Broker) -> list[int]:
            topics = [await broker.topic(plan.name) for plan in self.options.topics]
            return [leader.node_id for _, leader in sorted((await broker.leaders(topics)).items())]

        response = Connection(self.loop, agent, self.world.chance).send(simply(ask))
        try:
            nodes = await response
        except (StreamhouseError, Lost):
            return None
        return None if -1 in nodes else nodes

    def _check_closed(self) -> None:
        """Nobody is left, and nothing but what rows name."""
        if self._is_hurried:
            return
        if sessions := self.world.unended_sessions():
            raise Violation(f"sessions were left when all had stopped; {sessions}")
        if left := [key for key in self.world.bucket._objects if key.startswith(WAL_PREFIX)]:
            raise Violation(f"logs were left when all had stopped; {left}")

    def _check_objects(self) -> None:
        there = set(self.world.bucket._objects)
        if missing := [key for key in self.world.database.keys("segment_objects") if key not in there]:
            raise Violation(f"published objects are missing; {missing}")
        self.world.check_rows()

    async def _collect(self) -> None:
        """In the end the objects are exactly those that rows name, and the logs of the living: doomed ones and orphans
        are collected, and so is what the dead left of their logs."""
        while True:
            known = {*self.world.database.keys("segment_objects"), *self.world.database.keys("doomed_objects")}
            alive = self.world.unended_sessions()
            orphans = [
                key
                for key in self.world.bucket._objects
                if key not in known
                and not key.startswith((CLUSTER_KEY, GENERATIONS_PREFIX, TOPICS_PREFIX))
                and not (key.startswith(WAL_PREFIX) and any(f"/{each}/" in key for each in alive))
            ]
            if not orphans and not self.world.database.keys("doomed_objects"):
                return
            await asyncio.sleep(0.5)


async def _is_stable(broker: Broker, name: TopicPartition) -> bool:
    """Whether every transaction in the partition is decided."""
    return (await broker.latest(name, committed=True)).offset == (await broker.latest(name)).offset
