"""Transactors: producers with transactions, of the old kind and the new; several may have one transactional id.

Owns        what such a client does, well and badly; agents that tell each other of markers over the network
Leaves      requests to `clients`, the verdict to `transaction_history`

The old kind (before KIP-890) names partitions first and keeps its epoch; after an answer that it never got it begins
anew, because a late request of one transaction could act on the next, here as in Kafka. The new kind doesn't: every
transaction has an epoch of its own.
"""

import asyncio
import random
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from contextvars import Context
from typing import TYPE_CHECKING

from streamhouse.broker.broker import Broker
from streamhouse.broker.dependencies import NoAgents
from streamhouse.broker.groups import MemberRef, OffsetToCommit
from streamhouse.broker.produce.append import ProduceTransaction
from streamhouse.config.fields import Address
from streamhouse.errors import DuplicateSequence, Rejected, StreamhouseError, Unavailable, UnknownTopic, UnknownTopicId
from streamhouse.model.names import PartitionId, TopicPartition
from streamhouse.model.transaction import Marker, ProducerIdentity, TransactionCall

from .clients import PATIENCE_S, Client, simply
from .history import Sent
from .network import Begin, Connection, Finish, Lost, T
from .transaction_history import Transaction, group_of
from .world import World

if TYPE_CHECKING:
    from .world import Agent

LATE_S = 2.0
IMPATIENCE_S = 0.1
"""How long some wait for an answer before they give their transaction up."""


class SimPeers(NoAgents):
    """The `Peers` door of one agent, as far as markers go. Some messages are lost, some arrive again much later."""

    def __init__(self, world: World, agent: "Agent") -> None:
        self._world = world
        self._loss = world.options.marker_loss
        self._chance = random.Random(f"peers-{world.options.seed}-{agent.number}")

    async def mark(
        self, at: Address, marker: Marker, partitions: Sequence[PartitionId], *, timeout_s: float
    ) -> Mapping[PartitionId, StreamhouseError | None]:
        names = {name: each for each in partitions if (name := self._world.name_of(each)) is not None}
        gone: dict[PartitionId, StreamhouseError | None] = {
            each: UnknownTopicId(each.topic_id) for each in partitions if each not in names.values()
        }
        if self._chance.random() < self._loss:
            raise Unavailable("nobody answers")
        if self._chance.random() < self._loss:
            late = self._later(at, marker, list(names))
            self._world.loop.create_task(late, name="late marker", context=Context())
        result = await self._ask(at, marker, list(names), timeout_s=timeout_s)
        if self._chance.random() < self._loss:
            raise Unavailable("the answer was lost")
        return {**gone, **{names[name]: error for name, error in result.items()}}

    async def _later(self, at: Address, marker: Marker, names: Sequence[TopicPartition]) -> None:
        await asyncio.sleep(self._chance.expovariate(1 / LATE_S))
        with suppress(Unavailable):
            await self._ask(at, marker, names, timeout_s=1.0)

    async def _ask(
        self, at: Address, marker: Marker, names: Sequence[TopicPartition], *, timeout_s: float
    ) -> Mapping[TopicPartition, StreamhouseError | None]:
        server = self._world.at(at.port)
        if server is None:
            raise Unavailable("nobody listens")
        connection = Connection(self._world.loop, server, self._chance)
        try:
            async with asyncio.timeout(timeout_s):
                return await asyncio.shield(
                    connection.send(simply(lambda broker: broker.transactions.mark(marker, names)))
                )
        except (Lost, TimeoutError, StreamhouseError) as error:
            raise Unavailable(f"no answer; why={error!r}") from None
        finally:
            connection.close()


class Crashed(Exception):
    """The client is gone, in the middle of something."""


class Transactor(Client):
    speaks_kafka = True

    def __init__(
        self, world: World, name: str, transactional_id: str, partitions: Sequence[TopicPartition], *, is_modern: bool
    ) -> None:
        super().__init__(world, name)
        self.transactional_id = transactional_id
        self.transactions = world.transactions
        self._partitions = partitions
        self._is_modern = is_modern
        self._identity: ProducerIdentity | None = None
        self._known: ProducerIdentity | None = None
        """Who it was, as far as it knows."""
        self._sequences: dict[TopicPartition, int] = {}
        self._count = 0
        self._trouble = world.options.transaction_trouble
        self.abandons = False
        """Whether it leaves its last transaction open."""

    async def run(self) -> None:
        while not self.world.is_quiet:
            await self.pause(self.chance.choice((0.02, 0.3)))
            await self._attempt()
            if self.chance.random() < 0.3:
                await self._ask_offsets()
        await self._settle()

    async def _settle(self) -> None:
        """Faults are over: a transaction is committed; what follows it may be left open."""
        while not await self._attempt(is_last=True):
            await self.pause(0.1)
        await self._ask_offsets()
        if self.abandons:
            with suppress(Crashed, StreamhouseError, Lost):
                await self._fill(self._begin())

    # --- one transaction

    async def _attempt(self, *, is_last: bool = False) -> bool:
        """Whether a transaction was begun, and its commit was told."""
        if self._identity is None and not await self._init():
            return False
        transaction = self._begin()
        try:
            await self._fill(transaction, is_careful=is_last)
        except Crashed:
            transaction.is_over = True
            self._forget(politely=False)
            return False
        except (StreamhouseError, Lost):
            await self._give_up(transaction)
            return False
        return await self._end(transaction, commit=is_last or self.chance.random() < 0.7, is_patient=is_last)

    def _begin(self) -> Transaction:
        assert self._identity is not None
        self._count += 1
        return self.transactions.begin(f"{self.name}/{self._count}", self.transactional_id, self._identity)

    async def _fill(self, transaction: Transaction, *, is_careful: bool = False) -> None:
        names = self.chance.sample(self._partitions, self.chance.randint(1, min(3, len(self._partitions))))
        for name in names:
            if not self._is_modern:
                await self._add(transaction, name)
            for _ in range(self.chance.choice((1, 1, 2))):
                await self._send(transaction, name, is_careful=is_careful)
            if not is_careful:
                await self._suffer()
        if self.chance.random() < 0.5:
            await self._commit_offsets(transaction)
            if not is_careful:
                await self._suffer()

    async def _suffer(self) -> None:
        dice = self.chance.random()
        if dice < self._trouble:
            raise Crashed
        if dice < 2 * self._trouble:  # about as long as its transaction may last
            await asyncio.sleep(self.chance.uniform(0.5, 1.5) * self.world.options.transaction_timeout_s)

    def _forget(self, *, politely: bool) -> None:
        """Begin anew, as somebody who knows who it was or as somebody who doesn't."""
        self._known = self._identity if self._identity is not None and self.chance.random() < 0.3 else None
        self._identity = None
        self.hang_up(politely=politely)

    async def _give_up(self, transaction: Transaction) -> None:
        """Something of it failed: abort it, if it can be, and start over."""
        transaction.is_over = True
        if self.chance.random() < 0.5:
            await self._end(transaction, commit=False, is_patient=False)
        self._forget(politely=True)

    # --- requests

    async def _init(self) -> bool:
        known, self._known = self._known, None
        timeout_ms = round(self.world.options.transaction_timeout_s * 1000)

        async def ask(broker: Broker) -> ProducerIdentity:
            got = await broker.transactions.init_producer(self.transactional_id, timeout_ms, known)
            self.loop.note(f"init {self.transactional_id} {got} by {self.name}")
            self.transactions.took(self.transactional_id, got)
            return got

        try:
            self._identity = await self.call(simply(ask))
        except (StreamhouseError, Lost):
            return False
        self._sequences.clear()
        return True

    async def _add(self, transaction: Transaction, name: TopicPartition) -> None:
        async def ask(broker: Broker) -> None:
            since = self.loop.time()
            outcomes = await broker.transactions.add_partitions(call, [name])
            if (error := outcomes[name]) is not None:
                raise error
            self.transactions.check_fence("add partitions", *call, since=since)
            self.transactions.placed(transaction)

        call = TransactionCall(self.transactional_id, transaction.producer)
        await self._retry(lambda: self.call(simply(ask)))

    async def _send(self, transaction: Transaction, name: TopicPartition, *, is_careful: bool) -> None:
        sequence = self._sequences.get(name, 0)
        producer_id, epoch = transaction.producer
        sent = self.make(name, producer_id=producer_id, producer_epoch=epoch, sequence=sequence, is_transactional=True)
        self.transactions.send(transaction, sent)
        begin = self._appending(transaction, sent)
        is_patient = is_careful or self.chance.random() < 0.8
        patience_s = PATIENCE_S if is_patient else IMPATIENCE_S
        try:
            await self._retry(lambda: self.call(begin, at=name, patience_s=patience_s), tries=6 if is_patient else 1)
        except DuplicateSequence:
            self.world.must_be_stored.append((sent, self.world.power_cuts))
        self._sequences[name] = sequence + sent.count
        if self.chance.random() < 0.1:
            self._echo(sent, begin)

    def _appending(self, transaction: Transaction, sent: Sent) -> Begin[int]:
        result = ProduceTransaction(self.transactional_id, enlists=self._is_modern)
        call = TransactionCall(self.transactional_id, transaction.producer)

        def stored(since: float) -> None:
            self.transactions.check_fence("write", *call, since=since)

        inner = self.appending(sent, result, stored)

        async def begin(broker: Broker) -> Finish[int]:
            finish = await inner(broker)
            self.transactions.placed(transaction)
            return finish

        return begin

    def _echo(self, sent: Sent, begin: Begin[int]) -> None:
        """The network brings it again, later, where nobody listens for the answer."""

        async def later() -> None:
            await asyncio.sleep(self.chance.expovariate(1 / LATE_S))
            if (agent := self.world.any_agent(self.chance)) is not None:
                self.dial(agent).send(begin)

        self.loop.create_task(later(), name=f"echo {sent.label}")

    async def _commit_offsets(self, transaction: Transaction) -> None:
        names = self.chance.sample(self._partitions, self.chance.randint(1, min(2, len(self._partitions))))
        transaction.offsets.update((name, self._count) for name in names)
        offsets = {name: OffsetToCommit(offset=self._count, metadata=transaction.label) for name in names}
        call = TransactionCall(self.transactional_id, transaction.producer)
        group_id = group_of(self.transactional_id)

        async def begins(broker: Broker) -> None:
            await broker.transactions.add_offsets(call, group_id)

        async def ask(broker: Broker) -> None:
            since = self.loop.time()
            outcomes = await broker.groups.commit_in_transaction(
                group_id, MemberRef(), call, offsets, begins=self._is_modern
            )
            for error in outcomes.values():
                if error is not None:
                    raise error
            self.transactions.check_fence("commit offsets", *call, since=since)
            self.transactions.placed(transaction)

        if not self._is_modern:
            await self._retry(lambda: self.call(simply(begins)))
        await self._retry(lambda: self._at_group(simply(ask)), tries=6 if self._is_modern else 1)

    async def _at_group(self, begin: Begin[T]) -> T:
        team = self.world.is_team
        connection = await (self.routes.coordinator(group_of(self.transactional_id)) if team else self.connection())
        return await self.answer(connection, connection.send(begin))

    async def _retry(self, ask: Callable[[], Awaitable[T]], *, tries: int = 6) -> T:
        """Ask until it is answered, a few times."""
        for left in range(tries - 1, -1, -1):
            try:
                return await ask()
            except (StreamhouseError, Lost) as error:
                is_refused = isinstance(error, Rejected) and not isinstance(error, UnknownTopic)
                if is_refused or not left:
                    raise
            await self.pause(0.05)
        raise AssertionError

    async def _end(self, transaction: Transaction, *, commit: bool, is_patient: bool) -> bool:
        """Ask for the end until it is told; whether it was committed."""
        call = TransactionCall(self.transactional_id, transaction.producer)

        async def ask(broker: Broker) -> ProducerIdentity:
            since = self.loop.time()
            got = await broker.transactions.end(call, commit=commit, bump=self._is_modern)
            self.loop.note(f"end {transaction.label} commit={commit} {got}")
            self.transactions.check_fence("end a transaction", *call, since=since)
            return got

        self.transactions.asks_for_end(transaction, commit=commit)
        is_sure = True
        while True:
            try:
                self._identity = await self.call(simply(ask))
                break
            except Rejected:
                if is_sure:  # the only try
                    transaction.may_commit = False
                self._forget(politely=True)
                return False
            except (StreamhouseError, Lost):
                is_sure = False
                if not is_patient and self.chance.random() < 0.2:
                    self._forget(politely=False)
                    return False
            await self.pause(0.05)
        (self.transactions.told_committed if commit else self.transactions.told_aborted)(transaction)
        self._echo_marker(transaction, commit=commit)
        if self._is_modern:
            self._sequences.clear()
        elif not is_sure:
            self._forget(politely=True)
        return commit

    def _echo_marker(self, transaction: Transaction, *, commit: bool) -> None:
        """The network brings a marker again, later."""
        if transaction.number is None or self.chance.random() >= self.world.options.marker_loss:
            return
        producer = transaction.producer._replace(epoch=transaction.producer.epoch + self._is_modern)
        marker = Marker(producer=producer, number=transaction.number, is_commit=commit)
        names = list(transaction.names)

        async def later() -> None:
            await asyncio.sleep(self.chance.expovariate(1 / LATE_S))
            if (agent := self.world.any_agent(self.chance)) is not None:
                ask = simply(lambda broker: broker.transactions.mark(marker, names))
                Connection(self.loop, agent, self.chance).send(ask)

        self.loop.create_task(later(), name=f"late marker of {transaction.label}")

    # --- reading what was committed

    async def _ask_offsets(self) -> None:
        group_id = group_of(self.transactional_id)
        name = self.chance.choice(self._partitions)

        async def ask(broker: Broker) -> None:
            least = self.transactions.newest(self.transactional_id, name)
            actual = (await broker.groups.fetch({group_id: [name]}, stable=True))[group_id]
            if isinstance(actual, StreamhouseError):
                raise actual
            committed = actual.get(name)
            if isinstance(committed, StreamhouseError):
                raise committed
            if committed is None and self.world.options.offsets_expire:
                return
            result = (committed.offset, committed.metadata) if committed is not None else None
            self.transactions.told_offset(self.transactional_id, name, result, least)

        with suppress(StreamhouseError, Lost):
            await self._at_group(simply(ask))
