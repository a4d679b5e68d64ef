"""Probes: two producers that write to every partition steadily and keep how long each record waited for its ack.

Data path   **probes** -> agents; waits -> `failover`, `transfer`
Owns        `Prober`, which asks again at once and shows what the cluster needs, and `RealProducer` (librdkafka,
            with the settings that it comes with), which shows what an application sees; the waits of both
Leaves      what happens to the cluster meanwhile to the questions

Neither gives up: a record is sent again until it is acknowledged. What the prober was refused meanwhile is counted by
error code. A record that librdkafka reports as failed is what no hand-over may cost.
"""

import asyncio
import threading
import time
from collections import Counter
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from itertools import pairwise
from typing import Final, Protocol, Self

from confluent_kafka import KafkaError, Producer

from benchmarks.batches import batch, values
from benchmarks.cluster.routes import Routes, metadata_frame, routes_in
from benchmarks.raw_client import INT32, PRODUCED, Reader, produce_frame

PERIOD_S: Final = 0.025
RECORD_BYTES: Final = 100
TIMEOUT_S: Final = 10.0
AGAIN_S: Final = 0.01
DRAIN_S: Final = 30.0
STARTED_TIMEOUT_S: Final = 30.0


@dataclass(frozen=True, slots=True)
class Ack:
    """One record: its partition, when it was due, when it was acknowledged."""

    partition: int
    due: float
    acked: float

    @property
    def wait_s(self) -> float:
        return self.acked - self.due


@dataclass(slots=True)
class History:
    """What one producer saw. Written by its own thread; lists only grow, so that others may look."""

    acks: list[Ack] = field(default_factory=list)
    refusals: list[tuple[float, str]] = field(default_factory=list)
    failures: list[tuple[float, str]] = field(default_factory=list)

    def of(self, partition: int) -> list[Ack]:
        return sorted((ack for ack in list(self.acks) if ack.partition == partition), key=lambda ack: ack.acked)

    def acked_after(self, moment: float, partitions: Sequence[int]) -> bool:
        """Whether each partition has an ack of a record that was due after that moment."""
        return {ack.partition for ack in list(self.acks) if ack.due > moment} >= set(partitions)

    def pause_s(self, partition: int, begin: float, end: float) -> float:
        """The longest wait of a record that waited at some time in between."""
        return max((ack.wait_s for ack in self.of(partition) if ack.acked > begin and ack.due < end), default=0.0)

    def first_ack_s(self, partition: int, moment: float) -> float:
        """Seconds from a leader's death to the first ack of its successor.

        Acks that the dead one gave may still be under way at that moment, so the silence that follows is what is
        looked for: the longest time between two acks that ends after the moment.
        """
        times = [ack.acked for ack in self.of(partition)]
        silences = [(after - before, after) for before, after in pairwise(times) if after > moment]
        return max(silences)[1] - moment if silences else float("nan")

    def refused(self, begin: float, end: float) -> Counter[str]:
        return Counter(why for moment, why in list(self.refusals) if begin <= moment < end)

    def failed(self, begin: float, end: float) -> int:
        return sum(begin <= moment < end for moment, _ in list(self.failures))


class Probe(Protocol):
    name: str
    history: History

    def __enter__(self) -> Self: ...
    def __exit__(self, *_: object) -> None: ...


class _Threaded:
    """A thread that works until its block ends."""

    name = ""

    def __init__(self, work: Callable[[], None]) -> None:
        self.history = History()
        self._stopping = threading.Event()
        self._thread = threading.Thread(target=work, name=self.name, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stopping.set()
        self._thread.join()


class Prober(_Threaded):
    """One connection for each partition, one record at a time, sent again as soon as it was refused."""

    name = "prober"

    def __init__(self, bootstraps: Sequence[str], topic: str, partitions: int) -> None:
        super().__init__(lambda: asyncio.run(self._probe_all()))
        self._bootstraps, self._topic, self._partitions = list(bootstraps), topic, partitions
        self._routes = Routes(agents={})
        self._body = batch(record_bytes=RECORD_BYTES, records=1, codec="none").body

    async def _probe_all(self) -> None:
        await asyncio.gather(*(self._probe(partition) for partition in range(self._partitions)))

    async def _probe(self, partition: int) -> None:
        request = produce_frame(self._topic, [(partition, self._body)], acks=-1)
        line = _Line()
        while not self._stopping.is_set():
            due = time.perf_counter()
            await self._until_acked(partition, request, line)
            self.history.acks.append(Ack(partition, due, time.perf_counter()))
            await asyncio.sleep(max(0.0, due + PERIOD_S - time.perf_counter()))
        line.close()

    async def _until_acked(self, partition: int, request: bytes, line: "_Line") -> None:
        while not self._stopping.is_set():
            try:
                address = self._routes.address(partition)
                code = _produced_code(await line.call(address, request)) if address else -1
            except (OSError, EOFError, TimeoutError) as error:
                line.close()
                code, why = -1, type(error).__name__
            else:
                why = f"code {code}" if code >= 0 else "no leader"
            if code == 0:
                return
            if why != "no leader":
                self.history.refusals.append((time.perf_counter(), why))
            await asyncio.sleep(AGAIN_S)
            await self._refresh()

    async def _refresh(self) -> None:
        """Ask whoever answers who leads now; those who can't be reached are asked last from now on."""
        for _ in range(len(self._bootstraps)):
            line = _Line()
            try:
                self._routes = routes_in(await line.call(self._bootstraps[0], metadata_frame(self._topic)))
            except (OSError, EOFError, TimeoutError):
                self._bootstraps.append(self._bootstraps.pop(0))
            else:
                return
            finally:
                line.close()


class _Line:
    """A connection to one agent at a time, opened when it is needed."""

    def __init__(self) -> None:
        self._address = ""
        self._reader: asyncio.StreamReader | None = None
        self._writer: asyncio.StreamWriter | None = None

    async def call(self, address: str, request: bytes) -> memoryview:
        async with asyncio.timeout(TIMEOUT_S):
            if self._reader is None or self._writer is None or self._address != address:
                self.close()
                host, _, port = address.rpartition(":")
                self._reader, self._writer = await asyncio.open_connection(host, int(port))
                self._address = address
            self._writer.write(request)
            (size,) = INT32.unpack(await self._reader.readexactly(4))
            return memoryview(await self._reader.readexactly(size))

    def close(self) -> None:
        if self._writer is not None:
            self._writer.close()
        self._reader = self._writer = None


def _produced_code(response: memoryview) -> int:
    """The error code of an answer about one partition."""
    reader = Reader(response, 5)
    reader.uvarint()
    reader.chunk()
    reader.uvarint()
    return reader.unpack(PRODUCED)[1]


class RealProducer(_Threaded):
    """librdkafka with a record for each partition every `PERIOD_S`."""

    name = "librdkafka"

    def __init__(self, bootstraps: Sequence[str], topic: str, partitions: int) -> None:
        super().__init__(self._produce_all)
        self._settings = {"bootstrap.servers": ",".join(bootstraps), "logger": _Silent()}
        self._topic, self._partitions = topic, partitions
        self._values = values(self._partitions, RECORD_BYTES)

    def _produce_all(self) -> None:
        producer = Producer(self._settings)
        due = time.perf_counter()
        while not self._stopping.is_set():
            for partition in range(self._partitions):
                on_delivery = partial(self._acked, partition, due)
                with suppress(BufferError):  # a queue of 100,000 is full after minutes only
                    producer.produce(self._topic, self._values[partition], partition=partition, on_delivery=on_delivery)
            due += PERIOD_S
            while (left := due - time.perf_counter()) > 0:
                producer.poll(left)
            due = max(due, time.perf_counter() - 1.0)  # who slept for long need not make up for all of it
        producer.flush(DRAIN_S)

    def _acked(self, partition: int, due: float, error: KafkaError | None, _message: object) -> None:
        now = time.perf_counter()
        if error is None:
            self.history.acks.append(Ack(partition, due, now))
        else:
            self.history.failures.append((now, str(error)))


class _Silent:
    """Takes librdkafka's words about agents that went away, which is what is asked for here."""

    def log(self, *_: object) -> None: ...

    debug = info = warning = error = critical = log


def wait_until(done: Callable[[], bool], *, timeout_s: float, look_s: float = 0.05) -> bool:
    """Whether it came true in time."""
    deadline = time.perf_counter() + timeout_s
    while not done():
        if time.perf_counter() > deadline:
            return False
        time.sleep(look_s)
    return True


def probes(bootstraps: Sequence[str], topic: str, partitions: int) -> tuple[Prober, RealProducer]:
    return Prober(bootstraps, topic, partitions), RealProducer(bootstraps, topic, partitions)


def wait_until_steady(running: Sequence[Prober | RealProducer], partitions: int) -> None:
    """Until both have written to every partition for a moment."""
    moment = time.perf_counter() + 0.5
    everywhere = range(partitions)
    if not wait_until(
        lambda: all(probe.history.acked_after(moment, everywhere) for probe in running), timeout_s=STARTED_TIMEOUT_S
    ):
        raise RuntimeError(f"producers do not get through; timeout_s={STARTED_TIMEOUT_S:.0f}")
