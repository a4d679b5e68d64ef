"""What does a transaction cost: how many a second, how long each, and what large ones take from a producer's rate?

    .venv/bin/python -m benchmarks.transactions [--seconds S] [--repeat R] [--peers NAME …] [--write-readme] [--no-run]

librdkafka, on one agent with embedded stores (fsync never), on a cluster of three (PostgreSQL, an S3 server, the object
WAL as it is by default), and on an Apache Kafka broker where Java and Maven are there. A small transaction is begin,
one record of 100 B and commit, one after the other by one producer, and by eight at once, each with an id of its own.
A large one is 1,000 records of 1 KB; beside it stands an idempotent producer with the same records in the same minute.
Clients share the machine with the brokers, and their time is in the figures.
"""

import argparse
import statistics
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager
from functools import partial
from importlib.metadata import version
from typing import Final, NamedTuple

from confluent_kafka import Producer
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic
from rich.console import Console

from benchmarks import readme, results, table
from benchmarks.batches import values
from benchmarks.cluster.team import Team
from benchmarks.kafka_jars import KAFKA_VERSION, PeerUnavailable
from benchmarks.kafka_peer import KafkaPeer
from benchmarks.measure import Reading
from benchmarks.peer import Peer, PeerFailed
from benchmarks.results import Run, Sample
from benchmarks.script import Frame, add_flags, load_at_the_end, show
from benchmarks.streamhouse_peer import StreamHousePeer
from streamhouse.errors.base import DISTRIBUTION

RESULTS: Final = results.FOLDER / "transactions"
CLUSTER: Final = "cluster"
AGENTS: Final = 3
PARTITIONS: Final = 6
PRODUCERS: Final = 8
SMALL_BYTES: Final = 100
LARGE_RECORDS, LARGE_BYTES = 1000, 1000
WARM_UP_S: Final = 1.0
TIMEOUT_S: Final = 60.0
SECONDS: Final = 5.0
QUIET: Final = {"log_level": 3}  # a coordinator that still loads is no news
ABOUT: Final = {
    table.OURS: f"StreamHouse {version(DISTRIBUTION)}, one agent, fsync never",
    CLUSTER: "three agents with PostgreSQL, an S3 server and the object WAL",
    table.THEIRS: f"Apache Kafka {KAFKA_VERSION}",
}


class Place(NamedTuple):
    """Where transactions are made: a topic, and at whose address."""

    bootstrap: str
    topic: str


# --- what is measured


def a_producer(place: Place, transactional_id: str) -> Producer:
    settings = {"bootstrap.servers": place.bootstrap, "transactional.id": transactional_id, "linger.ms": 0, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return producer


def small_waits_s(producer: Producer, place: Place, seconds: float) -> list[float]:
    """How long each took, one after the other, for some seconds."""
    (value,) = values(1, SMALL_BYTES)
    waits_s: list[float] = []
    deadline = time.perf_counter() + seconds
    while (began := time.perf_counter()) < deadline:
        producer.begin_transaction()
        producer.produce(place.topic, value)
        producer.commit_transaction(TIMEOUT_S)
        waits_s.append(time.perf_counter() - began)
    return waits_s


def one_after_the_other(place: Place, seconds: float) -> Iterator[Reading]:
    producer, scenario = a_producer(place, "one"), "1 record, one producer"
    small_waits_s(producer, place, WARM_UP_S)
    waits_s = small_waits_s(producer, place, seconds)
    cuts = statistics.quantiles(waits_s, n=100, method="inclusive")
    yield Reading(scenario=scenario, metric="commits", value=len(waits_s) / sum(waits_s))
    yield Reading(scenario=scenario, metric="p50", value=cuts[49] * 1000)
    yield Reading(scenario=scenario, metric="p99", value=cuts[98] * 1000)


def many_at_once(place: Place, seconds: float) -> Iterator[Reading]:
    producers = [a_producer(place, f"many-{number}") for number in range(PRODUCERS)]
    with ThreadPoolExecutor(PRODUCERS) as threads:

        def all_of_them(for_s: float) -> list[list[float]]:
            return list(threads.map(lambda each: small_waits_s(each, place, for_s), producers))

        all_of_them(WARM_UP_S)
        found = all_of_them(seconds)
    scenario, waits_s = f"1 record, {PRODUCERS} producers", [wait for waits in found for wait in waits]
    cuts = statistics.quantiles(waits_s, n=100, method="inclusive")
    rate = sum(len(waits) / sum(waits) for waits in found)
    yield Reading(scenario=scenario, metric="commits", value=rate)
    yield Reading(scenario=scenario, metric="p50", value=cuts[49] * 1000)
    yield Reading(scenario=scenario, metric="p99", value=cuts[98] * 1000)


def large_ones(place: Place, seconds: float) -> Iterator[Reading]:
    """The idempotent producer first; each has its connections and its id before it counts."""
    rates = {}
    for kind, make in (("idempotent", idempotent), ("transactional", transactional)):
        steps = make(place)
        _rate(place, steps, WARM_UP_S)
        rates[kind] = _rate(place, steps, seconds)
        yield Reading(scenario=f"1 MB, {kind}", metric="bytes", value=rates[kind] * LARGE_BYTES / 1e6)
    share = rates["transactional"] / rates["idempotent"]
    yield Reading(scenario="1 MB, transactional", metric="of idempotent", value=share)


class Steps(NamedTuple):
    """What is done before and after each megabyte."""

    producer: Producer
    begin: Callable[[], None]
    end: Callable[[], None]


def idempotent(place: Place) -> Steps:
    """A megabyte is waited for before the next, as a commit would."""
    settings = {"bootstrap.servers": place.bootstrap, "enable.idempotence": True, "linger.ms": 5, **QUIET}
    producer = Producer(settings)
    return Steps(producer, begin=lambda: None, end=partial(_flushed, producer))


def transactional(place: Place) -> Steps:
    settings = {"bootstrap.servers": place.bootstrap, "transactional.id": "large", "linger.ms": 5, **QUIET}
    producer = Producer(settings)
    producer.init_transactions(TIMEOUT_S)
    return Steps(producer, begin=producer.begin_transaction, end=partial(producer.commit_transaction, TIMEOUT_S))


def _rate(place: Place, steps: Steps, seconds: float) -> float:
    """Records a second."""
    messages = [{"value": value} for value in values(LARGE_RECORDS, LARGE_BYTES)]
    sent, began = 0, time.perf_counter()
    while time.perf_counter() - began < seconds:
        steps.begin()
        sent += steps.producer.produce_batch(place.topic, messages)
        steps.end()
    return sent / (time.perf_counter() - began)


def _flushed(producer: Producer) -> None:
    if producer.flush(TIMEOUT_S):
        raise PeerFailed(f"records were not acknowledged in {TIMEOUT_S:.0f} s")


# --- where


@contextmanager
def a_cluster() -> Iterator[str]:
    with Team(AGENTS) as team:
        yield ",".join(member.kafka for member in team.members)


@contextmanager
def a_broker(make: Callable[[], Peer]) -> Iterator[str]:
    with make() as peer:
        yield peer.bootstrap


PEERS: Final[Mapping[str, Callable[[], AbstractContextManager[str]]]] = {
    table.OURS: lambda: a_broker(StreamHousePeer),
    CLUSTER: a_cluster,
    table.THEIRS: lambda: a_broker(KafkaPeer),
}


def created(bootstrap: str) -> Place:
    """A topic whose partitions are all led."""
    name, admin = "transactions", AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(name, PARTITIONS, 1)])[name].result(TIMEOUT_S)
    producer = Producer({"bootstrap.servers": bootstrap})
    for number in range(PARTITIONS):
        producer.produce(name, b"", partition=number)
    _flushed(producer)
    return Place(bootstrap, name)


def asked_of(peer: str, seconds: float) -> Iterator[Reading]:
    with PEERS[peer]() as bootstrap:
        place = created(bootstrap)
        yield from one_after_the_other(place, seconds)
        yield from many_at_once(place, seconds)
        yield from large_ones(place, seconds)


def run(asked: argparse.Namespace, console: Console) -> Run:
    frame, samples, notes = Frame(), list[Sample](), list[str]()
    wanted = list(asked.peers or PEERS)
    for repetition in range(asked.repeat):
        for peer in wanted[:: -1 if repetition % 2 else 1]:  # they swap places
            try:
                samples += _samples(peer, repetition, list(asked_of(peer, asked.seconds)))
            except (PeerUnavailable, PeerFailed) as error:
                notes.append(f"{peer} was left out: {error}")
            console.print(f"[dim]{peer}, turn {repetition + 1}[/]", highlight=False)
    measured = {sample.peer for sample in samples}
    peers = {name: about for name, about in ABOUT.items() if name in measured}
    plan = "full" if asked.seconds >= SECONDS else "small"
    return frame.run(samples, plan=plan, peers=peers, notes=[*notes, load_at_the_end("up to 3")])


def _samples(peer: str, repetition: int, readings: Sequence[Reading]) -> list[Sample]:
    return [
        Sample(
            measure="transactions",
            scenario=each.scenario,
            metric=each.metric,
            peer=peer,
            repetition=repetition,
            value=each.value,
        )
        for each in readings
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=SECONDS, help="of each part")
    parser.add_argument("--repeat", type=int, default=3)
    parser.add_argument("--peers", nargs="+", choices=list(PEERS), help="all of them unless told")
    add_flags(parser)
    asked, console = parser.parse_args(), Console()
    show(asked, lambda: run(asked, console), folder=RESULTS, marks=readme.TRANSACTIONS, console=console)


if __name__ == "__main__":
    main()
