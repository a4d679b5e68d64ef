"""A hostile client: sends mutated frames to a live agent over many connections, and looks what became of the agent."""

import asyncio
import random
import re
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer, Producer, TopicPartition

from tests.fuzz.frames import corpus, mutated
from tests.support.agent import LiveAgent

CONNECTIONS = 8
FRAMES_A_CONNECTION = 50
TIMEOUT_S = 0.1
# Topics that a mutated CreateTopics manages to create stay few and small; waiting members don't hold the run up.
TAME = (
    "--set",
    "topics.max_topics=40",
    "--set",
    "topics.max_partitions=4",
    "--fsync",
    "never",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class Endured:
    """What the agent looked like after it all."""

    frames: int
    rss_early_mb: float
    rss_late_mb: float
    errors: list[str]


async def bombard(host: str, port: int, *, frames: int, seed: int, progress: Callable[[int], None]) -> None:
    bodies = corpus()
    chance = random.Random(seed)
    sent = 0

    async def attack() -> None:
        nonlocal sent
        while sent < frames:
            burst = b"".join(mutated(bodies, chance) for _ in range(FRAMES_A_CONNECTION))
            sent += FRAMES_A_CONNECTION
            with suppress(OSError):
                await _throw(host, port, burst)
            progress(sent)

    await asyncio.gather(*(attack() for _ in range(CONNECTIONS)))


async def _throw(host: str, port: int, burst: bytes) -> None:
    """Send, read for a moment what comes back, and hang up."""
    reader, writer = await asyncio.open_connection(host, port)
    try:
        writer.write(burst)
        with suppress(TimeoutError):
            async with asyncio.timeout(TIMEOUT_S):
                await writer.drain()
                while await reader.read(1 << 16):
                    pass
    finally:
        writer.transport.abort()


def endure(folder: Path, *, frames: int, seed: int, progress: Callable[[int], None] = lambda _: None) -> Endured:
    """A live agent under fire; raises when it dies, hangs or disturbs a well-behaved client."""
    with LiveAgent(folder / "data", *TAME) as agent:
        host, port = agent.bootstrap.split(":")
        witness(agent.bootstrap, b"before")
        asyncio.run(bombard(host, int(port), frames=frames // 4, seed=seed, progress=progress))
        early = rss_mb(agent.pid)
        asyncio.run(bombard(host, int(port), frames=frames - frames // 4, seed=seed + 1, progress=progress))
        late = rss_mb(agent.pid)
        witness(agent.bootstrap, b"after")
        assert agent.stop() == 0
        errors = re.findall(r"^.* error .*$|^Traceback.*$", agent.output, re.MULTILINE)
        return Endured(frames=frames, rss_early_mb=early, rss_late_mb=late, errors=errors)


def witness(bootstrap: str, value: bytes) -> None:
    """Another client is not disturbed: it produces and reads back."""
    producer = Producer({"bootstrap.servers": bootstrap, "log_level": 0})
    producer.produce("witness", value=value, partition=0)
    assert producer.flush(30) == 0
    consumer = Consumer({"bootstrap.servers": bootstrap, "group.id": "w", "enable.auto.commit": False, "log_level": 0})
    low, high = consumer.get_watermark_offsets(TopicPartition("witness", 0), timeout=30)
    consumer.assign([TopicPartition("witness", 0, high - 1)])
    message = consumer.poll(30)
    assert low < high
    assert message is not None
    assert message.value() == value
    consumer.close()


def rss_mb(pid: int) -> float:
    match = re.search(r"VmRSS:\s+(\d+) kB", Path(f"/proc/{pid}/status").read_text())
    assert match is not None
    return int(match[1]) / 1024
