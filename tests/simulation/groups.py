"""Groups: members that do what Kafka's consumers do, well and badly, and what must be true of them in the end.

Owns        the lives of members: joining, assigning, reading, committing, pausing, dying, coming back
Leaves      requests to `group_calls`, how a leader divides to `assignors`, the verdict to `group_history`

A member reads on one connection and speaks with the coordinator on another, where heartbeats go on while it reads. One
that pauses is silent altogether, and goes on afterwards as if nothing had happened. A life ends at any await: its
successor is a new process with the same plan, static ones under the same instance id.
"""

import asyncio
from collections.abc import Sequence
from math import inf

from streamhouse.broker.groups import JoinRequest, JoinResult, LeaveRequest, MemberRef, SyncRequest
from streamhouse.errors import (
    FencedInstance,
    GroupNotFound,
    IllegalGeneration,
    MemberIdRequired,
    OffsetOutOfRange,
    RebalanceInProgress,
    Retriable,
    StreamhouseError,
    UnknownMember,
)
from streamhouse.format.batch import HEADER_BYTES, iter_batches
from streamhouse.model.fetch import PartitionFetch
from streamhouse.model.group import CONSUMER, GroupState, OfferedProtocol
from streamhouse.model.group_requests import Fetched
from streamhouse.model.names import TopicPartition

from .assignors import COOPERATIVE, EAGER, assign, decode_assignment, encode_metadata
from .clients import Client, simply
from .group_calls import GroupClient
from .network import Lost
from .options import GroupPlan
from .outsiders import Janitor, Outsider
from .world import World


class Member(GroupClient):
    speaks_kafka = True

    def __init__(
        self, world: World, name: str, plan: GroupPlan, names: Sequence[TopicPartition], instance_id: str | None
    ) -> None:
        super().__init__(world, name, plan)
        self._names = names
        self._instance_id = instance_id
        self._member_id = ""
        self.lives = 1
        self.generation = -1
        self.is_joined = False
        self.positions: dict[TopicPartition, int] = {}
        self._committed: dict[TopicPartition, int] = {}
        self._commit_at = self._awake_at = 0.0
        self._told: StreamhouseError | None = None
        self._reader = Client(world, f"{name}-reader", speaks_kafka=True)
        self.is_retired = False

    def __repr__(self) -> str:
        return f"<Member {self.name} {self._member_id} {self.generation} joined={self.is_joined} {self.positions}>"

    @property
    def member_id(self) -> str:
        return self._member_id

    @property
    def _caller(self) -> MemberRef:
        return MemberRef(member_id=self._member_id, instance_id=self._instance_id, generation=self.generation)

    # --- lives

    async def run(self) -> None:
        await self.pause(0.5)
        while not self.is_retired:
            lifetime_s = self.chance.expovariate(1 / self.plan.lifetime_s) if self.is_troubled else None
            try:
                async with asyncio.timeout(lifetime_s):
                    await self._live()
            except TimeoutError:
                self._die()
                await self.pause(1.0)
        if self.chance.random() < 0.5:
            await self._leave()

    def _die(self) -> None:
        """Without a word, and without the connection being closed at the other end, or with it."""
        self.loop.note(f"member {self.name} died")
        self.lives += 1
        if self.is_troubled and self.positions and self.chance.random() < 0.7:
            self.loop.create_task(self._haunt(self._caller, dict(self.positions)), name="ghost")
        self.hang_up(politely=self.chance.random() < 0.5)
        self._reader.hang_up(politely=True)
        self._member_id = ""
        self._lose()

    async def _haunt(self, caller: MemberRef, offsets: dict[TopicPartition, int]) -> None:
        """It was only asleep, while its successor took its place: it goes on committing."""
        ghost = GroupClient(self.world, f"{self.name}-ghost-{self.book.tick()}", self.plan)
        for _ in range(4):
            await ghost.pause(0.4)
            try:
                await ghost.commit(caller, offsets)
            except (StreamhouseError, Lost):
                continue

    def _lose(self) -> None:
        """Nothing is ours any more."""
        self.is_joined = False
        self.positions.clear()
        self._committed.clear()
        self.generation = -1

    async def _live(self) -> None:
        beating = self.loop.create_task(self._beat(), name=f"{self.name}-heart")
        try:
            await self._work()
        finally:
            beating.cancel()

    @property
    def _beat_s(self) -> float:
        """Some plans have heartbeats rarer than the rebalance timeout. Whoever hears of a rebalance only after it is
        thrown out of the group and comes back as a newcomer, for whom there is a rebalance, of which others hear too
        late: it may go on for ever, in Kafka as here. That is good trouble, but no group that could come to rest."""
        return self.plan.heartbeat_s if self.is_troubled else min(self.plan.heartbeat_s, self.plan.rebalance_s / 3)

    async def _beat(self) -> None:
        while True:
            await asyncio.sleep(self._beat_s)
            caller = self._caller
            if not self.is_joined or self.loop.time() < self._awake_at:
                continue
            until = self.loop.time() + min(self.plan.session_s, self.plan.rebalance_s)
            try:
                await self.heartbeat(caller)
                self.book.kept(self.group_id, caller.member_id, until=until)
            except (Retriable, Lost):
                continue
            except StreamhouseError as error:
                if caller == self._caller:
                    self._told = error

    async def _work(self) -> None:
        while not self.is_retired:
            try:
                await self._turn()
            except MemberIdRequired as error:
                self._member_id = error.member_id
            except RebalanceInProgress:
                await self._prepare()
            except IllegalGeneration:
                self._lose()
            except (UnknownMember, FencedInstance, GroupNotFound):
                self._member_id = ""
                self._lose()
            except (Retriable, Lost):
                await self.pause(0.1)

    async def _turn(self) -> None:
        result, self._told = self._told, None
        if not self.is_joined:
            await self._join()
            return
        if result is not None:
            raise result
        await self._poll()
        if self.is_troubled and self.chance.random() < self.plan.trouble:
            await self._misbehave()
        now = self.loop.time()
        if now >= self._commit_at:
            self._commit_at = now + self.chance.uniform(0.5, 1.5) * self.plan.commit_s
            await self._commit()

    async def _misbehave(self) -> None:
        match self.chance.choice(("nap", "sleep", "sleep", "leave")):
            case "nap":
                await asyncio.sleep(self.plan.session_s * self.chance.random())
            case "sleep":
                self.loop.note(f"member {self.name} sleeps")
                nap_s = self.plan.session_s * self.chance.uniform(1.0, 3.0)
                self._awake_at = self.loop.time() + nap_s
                await asyncio.sleep(nap_s)
                self._commit_at = 0.0  # and goes on as if nothing had happened
            case "leave":
                await self._leave()
                self._member_id = ""
                self._lose()
                await self.pause(1.0)

    async def _leave(self) -> None:
        by_instance = self._instance_id is not None and self.chance.random() < 0.5
        self.book.leaves(self.group_id, self._member_id)
        try:
            await self.leave(
                LeaveRequest(member_id="" if by_instance else self._member_id, instance_id=self._instance_id)
            )
        except (StreamhouseError, Lost):
            return

    # --- joining

    def insist(self) -> None:
        """Ask for a rebalance, as a consumer may at any time."""
        self.is_joined = False

    async def _prepare(self) -> None:
        """Others wait for us: say how far we are, let go of everything, or, cooperatively, of nothing yet."""
        self.is_joined = False
        try:
            if self.chance.random() < 0.5:
                await self._commit()
        except (StreamhouseError, Lost):
            pass
        if not self.plan.is_cooperative:
            self.positions.clear()
            self._committed.clear()

    async def _join(self) -> None:
        joined = await self.join(self._ask_to_join())
        self._member_id = joined.member_id
        self.generation = joined.generation
        synced = await self.sync(
            SyncRequest(
                member_id=joined.member_id,
                instance_id=self._instance_id,
                generation=joined.generation,
                protocol_type=CONSUMER,
                protocol=joined.protocol,
                assignments=self._assign(joined),
            )
        )
        await self._take(decode_assignment(synced.assignment))

    def _ask_to_join(self) -> JoinRequest:
        topics = list(dict.fromkeys(name.topic for name in self._names))
        owned = list(self.positions)
        protocol = COOPERATIVE if self.plan.is_cooperative else EAGER
        return JoinRequest(
            member_id=self._member_id,
            instance_id=self._instance_id,
            client_id=self.name,
            session_timeout_ms=round(self.plan.session_s * 1000),
            rebalance_timeout_ms=round(self.plan.rebalance_s * 1000),
            protocol_type=CONSUMER,
            protocols=(OfferedProtocol(protocol, encode_metadata(topics, owned, self.generation)),),
            learns_id=self.plan.learns_id,
            may_skip_assignment=self.plan.may_skip_assignment,
        )

    def _assign(self, joined: JoinResult) -> dict[str, bytes]:
        if joined.leader != joined.member_id or joined.skip_assignment or not joined.members:
            return {}
        return dict(assign(joined.protocol, joined.members, self._names))

    async def _take(self, mine: Sequence[TopicPartition]) -> None:
        """Begin where the group has committed; what was taken away is let go, and the group told by joining again."""
        taken_away = [name for name in self.positions if name not in mine]
        for name in taken_away:
            del self.positions[name]
            self._committed.pop(name, None)
        added = [name for name in mine if name not in self.positions]
        result = await self.committed(added) if added else {}
        for name in added:
            self.positions[name] = result[name].offset if name in result else 0
        self.is_joined = not taken_away

    # --- reading

    async def _poll(self) -> None:
        if not self.positions:
            await asyncio.sleep(0.1)
            return
        requests = [PartitionFetch(name, offset, 3_000) for name, offset in self.positions.items()]
        wait_s = min(self.plan.heartbeat_s, self.chance.choice((0.05, 0.2)))
        for read in await self._reader.fetch(requests, max_bytes=100_000, min_bytes=1, max_wait_s=wait_s):
            if isinstance(read.got.error, OffsetOutOfRange):
                self.positions[read.got.name] = await self._earliest(read.got.name)
            elif read.got.error is None:
                self._process(read.copy)
                self.positions[read.got.name] = read.end
        if all(self._committed.get(name) == offset for name, offset in self.positions.items()):
            await self.pause(0.05)

    async def _earliest(self, name: TopicPartition) -> int:
        return (await self._reader.call(simply(lambda broker: broker.earliest(name)), at=name)).offset

    def _process(self, buffers: Sequence[bytes]) -> None:
        for buffer in buffers:
            self.book.process(
                self.group_id,
                [
                    buffer[span.position + HEADER_BYTES : span.position + span.size_bytes]
                    for span in iter_batches(buffer)
                ],
            )

    async def _commit(self) -> None:
        offsets = {name: offset for name, offset in self.positions.items() if self._committed.get(name) != offset}
        if not offsets and self.plan.echoes and not self.is_troubled:
            # The network may have brought one of our older commits again. In the same generation it counts like any
            # other, here as in Kafka: it is put right by consumers that commit now and then whatever they believe.
            offsets = dict(self.positions)
        if not offsets:
            return
        begin = self.committing(self._caller, offsets)
        if self.is_troubled and self.chance.random() < 0.2:
            (await self.connection()).send(begin)  # nobody waits for this one, and it is committed again later
            return
        await self.commit(self._caller, offsets)
        self._committed |= offsets


class Auditor(GroupClient):
    """Asks again and again what a group has committed; in the end, whether everything is as it should be."""

    def __init__(self, world: World, plan: GroupPlan, names: Sequence[TopicPartition], members: Sequence[Member]):
        super().__init__(world, f"auditor-{plan.group_id}", plan)
        self._names = names
        self.members = members
        self._reader = Client(world, f"{self.name}-reader")
        self._aim = "settles"
        self._insisted_in = -1

    def __repr__(self) -> str:
        return f"<Auditor {self.group_id} {self._aim} {self.members}>"

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(0.3)
            try:
                await self.committed(self._names)
            except (StreamhouseError, Lost):
                continue

    async def settled(self) -> None:
        """The group has the members that live, each partition has one of them, and all is read and committed."""
        while True:
            if await self._is_settled():
                break
            self._insist()
            await asyncio.sleep(0.2)
        self._check_processed()
        if self.world.options.offsets_expire:
            await self._check_kept()

    def _insist(self) -> None:
        """Finish a cooperative rebalance whose second half died with a static member.

        What one member lets go of is given to another when the first one joins again. If it dies before that, or the
        coordinator before the next generation is durable, its next life gets the assignment of the last one without a
        rebalance, and has nothing to let go of: the partition belongs to nobody until somebody asks. Kafka's groups
        are the same. Once in each generation is enough.
        """
        members = self.members
        if not (self.plan.is_cooperative and self.plan.statics) or self._insisted_in == members[0].generation:
            return
        if len({member.generation for member in members}) > 1 or not all(member.is_joined for member in members):
            return
        given = self.book.given(self.group_id, members[0].generation)
        if not given >= set(self._names):
            self._insisted_in = members[0].generation
            self.loop.note(f"{members[0].name} insists")
            members[0].insist()

    async def _is_settled(self) -> bool:
        try:
            return await self._is_stable() and await self._is_read()
        except (StreamhouseError, Lost):
            return False

    async def _is_stable(self) -> bool:
        members = self.members
        if not all(member.is_joined for member in members) or len({member.generation for member in members}) > 1:
            return False
        owned = [name for member in members for name in member.positions]
        if sorted(owned) != sorted(self._names):
            return False
        if len(self._names) >= len(members) and not all(member.positions for member in members):
            return False
        described = await self.described()
        results = sorted(member.member_id for member in described.members)
        return described.state is GroupState.STABLE and results == sorted(member.member_id for member in members)

    async def _is_read(self) -> bool:
        result = await self.committed(self._names)
        for name in self._names:
            latest = await self._reader.call(
                simply(lambda broker, name=name: broker.latest(name)),  # type: ignore[misc]
                at=name,
            )
            if latest.offset and (name not in result or result[name].offset != latest.offset):
                return False
        return True

    def _check_processed(self) -> None:
        """At least once: every record that is still there was processed by somebody."""
        for name in self._names:
            partition = self.world.partition(name)
            if partition is None or (bounds := self.history.bounds(self.history.of(partition, name))) is None:
                continue
            log = self.history.of(partition, name)
            if log.cuts:
                continue  # offsets may have been given again below what was committed
            for fact in log.facts.values():
                if fact.base >= bounds[0] and not self.book.has_processed(self.group_id, fact.sent.identity):
                    self.history.violated(f"a record was never processed; {self.group_id} {name} {fact}")

    async def _check_kept(self) -> None:
        """What members read does not expire, however long nothing is committed."""
        before, lives = await self.told(), [member.lives for member in self.members]
        settings = self.world.options.settings.groups
        await asyncio.sleep(settings.offsets_retention_s + 2 * settings.offsets_check_s)
        gone = before.keys() - (await self.told()).keys()
        # A life that began in trouble may have ended meanwhile, and with it, for a while, the group.
        if gone and lives == [member.lives for member in self.members]:
            self.history.violated(f"offsets expired under their readers; {self.group_id} {sorted(gone)}")

    async def emptied(self) -> None:
        """All members have gone, with or without a word: nobody is left, and nobody waits. Where offsets expire, the
        group goes with them; where somebody deleted it, the network may bring that again now that it is empty."""
        expires = self.world.options.offsets_expire
        self._aim = "is gone" if expires else "is empty"
        while True:
            try:
                state = (await self.described()).state
                if not expires and state is GroupState.EMPTY and self._is_still():
                    return
            except GroupNotFound:
                if (expires or self.plan.is_deleted) and not await self.told():
                    return
            except (StreamhouseError, Lost):
                pass
            await asyncio.sleep(0.2)

    def _is_still(self) -> bool:
        """Nobody is expected, and nothing will happen by itself."""
        shards = [agent.broker.groups._shards.find(self.group_id) for agent in self.world.alive()]
        groups = [group for shard in shards if shard is not None and (group := shard.groups.get(self.group_id))]
        return bool(groups) and not any(each.expects_members or each.next_deadline() < inf for each in groups)

    async def told(self) -> Fetched:
        """What the group has committed, as soon as somebody tells."""
        while True:
            try:
                return await self.committed(self._names)
            except (StreamhouseError, Lost):
                await asyncio.sleep(0.1)


class Crowd:
    """The groups of a seed."""

    def __init__(self, world: World, names: Sequence[TopicPartition]) -> None:
        self.members: list[Member] = []
        self.auditors: list[Auditor] = []
        self.others: list[Outsider | Janitor] = []
        for plan in world.options.groups:
            members = [
                Member(world, f"{plan.group_id}-m{number}", plan, names, _instance(plan, number))
                for number in range(plan.members)
            ]
            self.members += members
            if members:
                self.auditors.append(Auditor(world, plan, names, members))
            else:
                self.others += [Outsider(world, f"{plan.group_id}-o{number}", plan, names) for number in range(2)]
            if plan.is_deleted:
                self.others.append(Janitor(world, plan, names))

    def clients(self) -> Sequence[Auditor | Outsider | Janitor]:
        """Those who end with the faults."""
        return [*self.auditors, *self.others]


def _instance(plan: GroupPlan, number: int) -> str | None:
    return f"{plan.group_id}-static-{number}" if number < plan.statics else None
