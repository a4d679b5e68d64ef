"""Group calls: what members and others ask of a group. Each call tells the group history, in the agent's process.

Owns        the requests, in the stage in which the Kafka server makes them; a network that brings some of them twice
Leaves      what to ask and when to `groups`, the verdict to `group_history`

Answers get lost with connections, and a request may come again seconds later, when its sender has long moved on: on
another connection, and to the next agent too. A join or a sync comes again only to the same agent, because no client
sends those anew without having looked at what became of the first.
"""

import asyncio
from collections.abc import Iterable, Mapping, Sequence
from math import inf

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups import (
    DescribedGroup,
    JoinRequest,
    JoinResult,
    LeaveRequest,
    MemberRef,
    OffsetToCommit,
    SyncRequest,
    SyncResult,
)
from streamhouse.errors import CoordinatorLoading, CoordinatorUnavailable, NotCoordinator, StreamhouseError
from streamhouse.model.group_requests import Fetched, Outcomes
from streamhouse.model.names import TopicPartition

from .clients import PATIENCE_S, Ask, Client, T, simply
from .network import Begin, Connection, Finish, Lost
from .options import GroupPlan
from .world import World

SLACK_S = 1.0
ECHO_S = 3.0
"""Latest time after which a request comes again."""


class GroupClient(Client):
    def __init__(self, world: World, name: str, plan: GroupPlan) -> None:
        super().__init__(world, name)
        self.plan = plan
        self.group_id = plan.group_id
        self.book = world.groups

    async def connection(self) -> Connection:
        """To the group's coordinator; who that is, anybody tells."""
        if not self.world.is_team:
            return await super().connection()
        while self._connection is None or self._connection.is_lost:
            self._connection = await self.routes.coordinator(self.group_id)
        return self._connection

    @property
    def is_troubled(self) -> bool:
        """Whether clients and the network still misbehave."""
        return bool(self.world.profile) and not self.world.is_quiet

    # --- calls

    async def join(self, ask: JoinRequest) -> JoinResult:
        async def send(broker: Broker) -> JoinResult:
            request = self.book.asks(self.group_id)
            latest = self.loop.time() + self._join_limit_s()
            joined = await broker.groups.join(self.group_id, ask)
            if self.loop.time() > latest:
                self.history.violated(f"a join waited too long; {self.group_id} {joined} {latest}")
            self.loop.note(f"joined {self.group_id} {joined.member_id} generation={joined.generation}")
            self.book.joined(self.group_id, request, ask, joined)
            return joined

        patience_s = ask.rebalance_timeout_ms / 1000 + PATIENCE_S
        return await self._ask(simply(send), patience_s=patience_s, across_lives=False)

    def _join_limit_s(self) -> float:
        """In good times: all who were told their id have a session to come back, those who are members their rebalance
        timeout, and an empty group waits for more."""
        if self.is_troubled or self.loop.starve:
            return inf
        delay_s = self.world.options.settings.groups.initial_rebalance_delay_s
        return self.plan.session_s + self.plan.rebalance_s + delay_s + SLACK_S

    async def sync(self, ask: SyncRequest) -> SyncResult:
        async def send(broker: Broker) -> SyncResult:
            request = self.book.asks(self.group_id)
            if ask.assignments:
                self.book.offers(self.group_id, ask)
            synced = await broker.groups.sync(self.group_id, ask)
            self.loop.note(f"synced {self.group_id} {ask.member_id} {ask.generation} {synced.assignment.decode()}")
            self.book.synced(self.group_id, request, ask, synced)
            return synced

        return await self._ask(simply(send), across_lives=False)

    async def heartbeat(self, caller: MemberRef) -> None:
        await self._ask(at_once(lambda broker: broker.groups.heartbeat(self.group_id, caller)))

    async def leave(self, leaver: LeaveRequest) -> None:
        await self._ask(at_once(lambda broker: broker.groups.leave(self.group_id, [leaver])))

    async def commit(self, caller: MemberRef, offsets: Mapping[TopicPartition, int]) -> None:
        await self._ask(self.committing(caller, offsets))

    def committing(self, caller: MemberRef, offsets: Mapping[TopicPartition, int]) -> Begin[None]:
        async def send(broker: Broker) -> None:
            tried = self.book.committing(self.group_id, caller, offsets)
            result = {name: OffsetToCommit(offset=offset, metadata=tried.label) for name, offset in offsets.items()}
            try:
                outcomes = await broker.groups.commit(self.group_id, caller, result)
            except StreamhouseError as error:
                self.loop.note(f"not committed {self.group_id} {tried} {error}")
                self.book.refused_try(tried, error)
                raise
            self.loop.note(f"committed {self.group_id} {tried} {dict(offsets)}")
            self.book.committed(tried, outcomes)
            self._look(tried.offsets)
            if any(outcomes.values()):
                raise CoordinatorLoading(self.group_id, why="a topic is news to it")

        return at_once(send)

    async def delete_offsets(self, names: Sequence[TopicPartition]) -> None:
        await self._ask(self._deleting(names, lambda broker: broker.groups.delete_offsets(self.group_id, names)))

    async def delete_group(self, names: Sequence[TopicPartition]) -> None:
        """Delete the group, and with it what it committed, which is of no other partitions than these."""

        async def send(broker: Broker) -> Outcomes:
            if (error := (await broker.groups.delete([self.group_id]))[self.group_id]) is not None:
                raise error
            self.book.emptied(self.group_id, now=self.loop.time())
            return dict.fromkeys(names)

        await self._ask(self._deleting(names, send))

    def _deleting(self, names: Sequence[TopicPartition], ask: Ask[Outcomes]) -> Begin[None]:
        async def send(broker: Broker) -> None:
            tried = self.book.deleting(self.group_id, names)
            try:
                outcomes = await ask(broker)
            except StreamhouseError as error:
                self.loop.note(f"not deleted {self.group_id} {tried} {error}")
                self.book.refused_try(tried, error)
                raise
            self.loop.note(f"deleted {self.group_id} {tried} {[name for name in names if outcomes[name] is None]}")
            self.book.deleted(tried, outcomes)
            self._look(names)

        return at_once(send)

    def _look(self, names: Iterable[TopicPartition]) -> None:
        """What was acknowledged is in the database, now, and what was deleted is not."""
        now = self.book.tick()
        for name in names:
            if (partition := self.world.partition(name)) is not None:
                self.book.saw(self.group_id, name, now, now, self.world.database.committed(self.group_id, partition))

    async def committed(self, names: Sequence[TopicPartition]) -> Fetched:
        async def send(broker: Broker) -> Fetched:
            begun = self.book.tick()
            got = (await broker.groups.fetch({self.group_id: names}))[self.group_id]
            if isinstance(got, StreamhouseError):
                raise got
            self.book.fetched(self.group_id, names, begun, got)
            return got

        return await self._ask(at_once(send))

    async def described(self) -> DescribedGroup:
        async def send(broker: Broker) -> DescribedGroup:
            got = (await broker.groups.describe([self.group_id]))[self.group_id]
            if isinstance(got, StreamhouseError):
                raise got
            return got

        return await self.call(at_once(send))

    # --- the network

    async def _ask(self, begin: Begin[T], *, patience_s: float = PATIENCE_S, across_lives: bool = True) -> T:
        connection = await self.connection()
        if self.is_troubled and self.chance.random() < self.plan.echoes:
            echo = self._echo(begin, connection, across_lives=across_lives)
            self.loop.create_task(echo, name="echo")
        try:
            return await self.answer(connection, connection.send(begin), patience_s=patience_s)
        except (NotCoordinator, CoordinatorUnavailable, Lost):
            if self.world.is_team:
                self._connection = None  # it is looked up again
            raise

    async def _echo(self, begin: Begin[T], first: Connection, *, across_lives: bool) -> None:
        """The same request again, of whose answer nobody hears."""
        await asyncio.sleep(self.chance.random() ** 2 * ECHO_S)
        agent = self.world.any_agent(self.chance)
        if agent is not None and (across_lives or first.leads_to(agent)):
            connection = self.dial(agent)
            connection.send(begin)
            await asyncio.sleep(ECHO_S)
            connection.close()


def at_once(ask: Ask[T]) -> Begin[T]:
    """A request of one stage: made in order, also when its client has gone."""

    async def begin(broker: Broker) -> Finish[T]:
        response = await ask(broker)

        async def finish() -> T:
            return response

        return finish

    return begin
