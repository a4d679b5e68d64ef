"""Routes: which agent leads which partition, as Kafka's Metadata says it.

Data path   an agent's Metadata answer -> **routes** -> the questions
Owns        asking, and waiting until every partition has a leader who serves it
Leaves      the bytes of other requests to `raw_client`
"""

import struct
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Final

from benchmarks.raw_client import (
    ERROR,
    INT32,
    METADATA,
    NO_TAGS,
    BrokerRefused,
    Connection,
    Reader,
    array,
    create_topic,
    fetch_frame,
    fetched,
    frame,
    text,
)

SERVED_TIMEOUT_S: Final = 60.0
LOOK_S: Final = 0.05
PARTITION: Final = struct.Struct(">hiii")  # error, number, leader, leader epoch


@dataclass(frozen=True, slots=True, kw_only=True)
class Routes:
    """Agents by node id, and each partition's leader by node id; a partition without a leader is left out."""

    agents: Mapping[int, str]
    leaders: Mapping[int, int] = field(default_factory=dict)

    def address(self, partition: int) -> str | None:
        return self.agents.get(self.leaders.get(partition, -1))

    def by_address(self) -> dict[str, list[int]]:
        found: dict[str, list[int]] = {}
        for partition in sorted(self.leaders):
            if (address := self.address(partition)) is not None:
                found.setdefault(address, []).append(partition)
        return found

    def node(self, address: str) -> int:
        return next(node for node, at in self.agents.items() if at == address)


def connect(address: str, *, timeout_s: float = 30.0, buffer_bytes: int = 64 * 1024) -> Connection:
    host, _, port = address.rpartition(":")
    return Connection(host, int(port), timeout_s=timeout_s, buffer_bytes=buffer_bytes)


def metadata_frame(topic: str) -> bytes:
    return frame(METADATA, array([text(topic) + NO_TAGS]) + b"\0\0\0" + NO_TAGS)


def routes_in(response: memoryview) -> Routes:
    reader = Reader(response, 9)  # the header, and how long we are throttled
    agents: dict[int, str] = {}
    for _ in range(reader.uvarint() - 1):
        (node,) = reader.unpack(INT32)
        host = bytes(reader.chunk()).decode()
        (port,) = reader.unpack(INT32)
        agents[node] = f"{host}:{port}"
        reader.chunk()
        reader.skip_tags()
    reader.chunk()
    reader.skip(4)  # the controller
    leaders: dict[int, int] = {}
    for _ in range(reader.uvarint() - 1):
        leaders |= _leaders(reader)
    return Routes(agents=agents, leaders=leaders)


def _leaders(reader: Reader) -> dict[int, int]:
    reader.unpack(ERROR)
    reader.chunk()
    reader.skip(1)  # whether it is internal
    leaders: dict[int, int] = {}
    for _ in range(reader.uvarint() - 1):
        _, number, leader, _ = reader.unpack(PARTITION)
        for _ in range(3):  # replicas: all of them, those in sync, those offline
            reader.skip(4 * max(0, reader.uvarint() - 1))
        reader.skip_tags()
        if leader >= 0:
            leaders[number] = leader
    reader.skip(4)
    reader.skip_tags()
    return leaders


def routes(bootstrap: str, topic: str) -> Routes:
    with connect(bootstrap) as connection:
        return routes_in(connection.call(metadata_frame(topic)))


def serve(bootstrap: str, topic: str, partitions: int) -> Routes:
    """Create a topic and wait until the leader of each of its partitions serves it."""
    with connect(bootstrap) as connection:
        create_topic(connection, topic, partitions)
    return wait_until_served(bootstrap, topic, partitions)


def wait_until_served(bootstrap: str, topic: str, partitions: int) -> Routes:
    deadline = time.perf_counter() + SERVED_TIMEOUT_S
    while True:
        found = routes(bootstrap, topic)
        if len(found.leaders) == partitions and all(_serves(*led, topic) for led in found.by_address().items()):
            return found
        if time.perf_counter() > deadline:
            raise BrokerRefused(f"topic not served in {SERVED_TIMEOUT_S:.0f} s; topic={topic}")
        time.sleep(LOOK_S)


def _serves(address: str, partitions: Sequence[int], topic: str) -> bool:
    offsets = [(partition, 0) for partition in partitions]
    request = fetch_frame(topic, offsets, max_bytes=1, partition_max_bytes=1, max_wait_ms=0)
    try:
        with connect(address) as connection:
            return len(fetched(connection.call(request))) == len(partitions)
    except (BrokerRefused, OSError):
        return False
