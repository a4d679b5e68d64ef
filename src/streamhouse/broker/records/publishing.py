"""Publishing: records of one call become batches, batches find their leaders, and each record gets its receipt.

Data path   HTTP, gRPC -> **publishing** -> packing -> delivery -> logs
Owns        receipts, in the order of the records; where records without a key go
Leaves      sorting and splitting to `packing`, trying again to `delivery`
"""

import asyncio
from collections.abc import Coroutine, Sequence
from itertools import count, repeat
from typing import Final

from streamhouse.broker.doors import Doors
from streamhouse.broker.records.delivery import Delivered, Delivery, Outcome
from streamhouse.broker.records.here import Here
from streamhouse.broker.records.keys import Key
from streamhouse.broker.records.letters import RawLetter, RecordLetter
from streamhouse.broker.records.packing import Packing, TopicConfigs, sort_records
from streamhouse.broker.records.patience import Patience
from streamhouse.errors import Retriable, StreamhouseError, Unavailable
from streamhouse.model.names import TopicPartition
from streamhouse.model.record import Acks, NewRecord, Receipt
from streamhouse.model.topic import Topic

Answer = Receipt | StreamhouseError

NOT_TRIED: Final = Unavailable("the record was not tried")


class Publishing:
    def __init__(self, doors: Doors, here: Here, *, delivery: Delivery) -> None:
        self._doors = doors
        self._here = here
        self._delivery = delivery
        self._configs = TopicConfigs(doors, here)
        self._calls = 0

    async def publish(
        self,
        topic: str,
        records: Sequence[NewRecord],
        *,
        acks: Acks,
        idempotency_key: str | None = None,
        timeout_s: float,
    ) -> list[Answer]:
        """One answer per record, in order; raises where none of them could go anywhere: the topic isn't there."""
        if not records:
            return []
        patience = Patience(self._doors, timeout_s)
        found = await self._topic(topic, patience)
        answers: list[Answer] = [NOT_TRIED] * len(records)
        key = Key(idempotency_key, records) if idempotency_key is not None else None
        packing = Packing(
            self._doors,
            records,
            config=self._configs.of(found),
            key=key,
            refuse=answers.__setitem__,
        )
        by_partition = sort_records(found, records, sticky=self._sticky(key), refuse=answers.__setitem__)

        async def publish_to(partition: int, positions: Sequence[int]) -> None:
            name = TopicPartition(found.name, partition)
            letters = await packing.pack(name, positions)
            outcomes = await self._delivery.send(name, letters, acks=acks, patience=patience)
            for letter, outcome in zip(letters, outcomes, strict=True):
                _hand_out(answers, partition, letter, outcome)

        await _all([publish_to(partition, positions) for partition, positions in by_partition.items()])
        return answers

    async def publish_batches(
        self, name: TopicPartition, batches: Sequence[memoryview], *, acks: Acks, timeout_s: float
    ) -> list[Answer]:
        """One answer per batch, in order; the buffers stay the caller's."""
        patience = Patience(self._doors, timeout_s)
        await self._topic(name.topic, patience)
        letters: dict[int, RawLetter] = {}
        answers: dict[int, Answer] = {}
        for position, batch in enumerate(batches):
            try:
                letters[position] = RawLetter(batch)
            except StreamhouseError as error:
                answers[position] = error
        outcomes = await self._delivery.send(name, list(letters.values()), acks=acks, patience=patience)
        for (position, letter), outcome in zip(letters.items(), outcomes, strict=True):
            answers[position] = _receipt(name.partition, outcome, letter.timestamp_ms)
        return [answers[position] for position in range(len(batches))]

    async def _topic(self, name: str, patience: Patience) -> Topic:
        """Made where settings allow it; a store that is away for a moment is asked again."""
        while True:
            try:
                async with asyncio.timeout(patience.left_s):
                    return await self._here.topic(name, create=True)
            except TimeoutError:
                raise Unavailable(f"the topic could not be looked up in time; name={name}") from None
            except Retriable as error:
                await patience.pause(error)

    def _sticky(self, key: Key | None) -> int:
        if key is not None:
            return key.sticky
        self._calls += 1
        return self._calls


async def _all(work: Sequence[Coroutine[object, object, None]]) -> None:
    """At once; alone, without a task of its own."""
    if len(work) == 1:
        return await work[0]
    async with asyncio.TaskGroup() as tasks:
        for each in work:
            tasks.create_task(each, name="publish")


def _hand_out(answers: list[Answer], partition: int, letter: RecordLetter, outcome: Outcome) -> None:
    """By the thousand: what can be done in C is."""
    if not isinstance(outcome, Delivered):
        for position in letter.positions:
            answers[position] = outcome
        return
    offsets = repeat(None) if outcome.offset is None else count(outcome.offset)
    times = repeat(outcome.append_time_ms) if outcome.append_time_ms >= 0 else letter.timestamps_ms()
    for position, receipt in zip(letter.positions, map(Receipt, repeat(partition), offsets, times), strict=False):
        answers[position] = receipt


def _receipt(partition: int, outcome: Outcome, timestamp_ms: int) -> Answer:
    if not isinstance(outcome, Delivered):
        return outcome
    return Receipt(partition, outcome.offset, outcome.append_time_ms if outcome.append_time_ms >= 0 else timestamp_ms)
