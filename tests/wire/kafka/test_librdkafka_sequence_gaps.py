"""librdkafka, with a batch refused that this agent knows nothing of, as when the partition has just moved here.

It must send everything again under the numbers it had: in another epoch, what it is unsure of would be stored twice.
"""

import asyncio
import threading
from collections import Counter

from confluent_kafka import Producer

from streamhouse.broker.broker import Broker
from streamhouse.broker.partition.log import PendingAppend
from streamhouse.broker.produce.append import Inspection, ProduceTransaction
from streamhouse.errors import AppendFailed, NotLeader, PredecessorRefused, StreamhouseError
from streamhouse.format.batch import read_header
from streamhouse.model.names import TopicPartition
from streamhouse.wire.kafka.errors import error_code, error_from_code
from tests.wire.kafka.cluster import Member, a_cluster, read_all

TOPIC = "orders"
COUNT = 20
REFUSED_SEQUENCE = 1
PATIENT_S = 15.0
MOVED, UNSURE = TopicPartition(TOPIC, 0), TopicPartition(TOPIC, 1)


class Trouble:
    """The first batch of one partition is stored, and its producer not told; the second of another is refused, before
    the broker sees it. No answer is given until the batch after the refused one has come."""

    def __init__(self, broker: Broker) -> None:
        self._append = broker.append
        self._acknowledge = broker.acknowledge
        self._unsure: PendingAppend | None = None
        self._gap = asyncio.Event()
        self.has_begun = threading.Event()
        self.is_refused = self.is_untold = False
        self.refusals: Counter[type[StreamhouseError]] = Counter()
        self.epochs: set[int] = set()

    async def append(
        self,
        name: TopicPartition,
        data: memoryview,
        transaction: ProduceTransaction | None = None,
        inspection: Inspection | None = None,
    ) -> PendingAppend:
        header = read_header(data)
        self.epochs.add(header.producer_epoch)
        if name == MOVED and header.base_sequence == REFUSED_SEQUENCE and not self.is_refused:
            self.is_refused = True
            raise NotLeader(name, node_id=None, epoch=-1, address=None)
        if name == MOVED and header.base_sequence > REFUSED_SEQUENCE:
            self._gap.set()
        try:
            pending = await self._append(name, data, transaction, inspection)
        except StreamhouseError as error:
            self.refusals[type(error)] += 1
            raise
        if name == UNSURE and not self.has_begun.is_set():
            self._unsure = pending
            self.has_begun.set()
        return pending

    async def acknowledge(self, pending: PendingAppend) -> None:
        await self._acknowledge(pending)
        if pending is self._unsure:
            async with asyncio.timeout(PATIENT_S):
                await self._gap.wait()
            self.is_untold = True
            raise AppendFailed("its answer got lost")


def send(member: Member, trouble: Trouble) -> list[object]:
    """Records one by one, in requests of their own; returns what became of each."""
    producer = Producer(
        {
            "bootstrap.servers": "{}:{}".format(*member.address),
            "enable.idempotence": True,
            "batch.num.messages": 1,
            "retry.backoff.ms": 200,
        }
    )
    results: list[object] = []

    def produce(name: TopicPartition, value: bytes) -> None:
        producer.produce(TOPIC, value, partition=name.partition, on_delivery=lambda error, _: results.append(error))

    produce(UNSURE, b"0")
    assert trouble.has_begun.wait(PATIENT_S)
    for number in range(COUNT):
        produce(MOVED, b"%d" % number)
    assert producer.flush(PATIENT_S) == 0
    return results


async def test_after_a_gap_everything_is_stored_once_and_in_order() -> None:
    async with a_cluster(1) as cluster:
        (member,) = cluster.members
        await cluster.topic(TOPIC, 2)
        trouble = Trouble(member.broker)
        member.broker.append = trouble.append  # type: ignore[method-assign]
        member.broker.acknowledge = trouble.acknowledge  # type: ignore[method-assign]
        assert await asyncio.to_thread(send, member, trouble) == [None] * (COUNT + 1)
        result = await read_all(member.broker, TOPIC, 2)
    assert trouble.is_refused
    assert trouble.is_untold
    assert list(result[UNSURE].values()) == [b"0"]
    assert list(result[MOVED].values()) == [b"%d" % number for number in range(COUNT)]
    assert set(trouble.refusals) == {PredecessorRefused}
    assert trouble.epochs == {0}


def test_of_a_gap_at_another_agent_it_is_known_that_the_batch_was_not_stored() -> None:
    error = PredecessorRefused(MOVED, producer_id=7, awaited=1, got=2)
    result = error_from_code(error_code(error), str(error), at="127.0.0.1:9092", what=MOVED)
    assert (type(result), str(result)) == (PredecessorRefused, str(error))
