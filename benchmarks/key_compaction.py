"""What does key compaction on Spark cost, and what does it bring? Many updates of many keys, compacted by a job.

    .venv/bin/python -m benchmarks.key_compaction [--updates N] [--keys N] [--partitions N] [--value-bytes N]
                                                  [--codec none|lz4|zstd|…] [--cores N] [--json]

An agent with embedded stores, which compacts nothing by itself, gets updates of keys that are drawn evenly. Then a job
compacts the topic, on Spark with the given number of cores, and what is left is compared with what was sent. Measured
are the job (MB/s of the log in all and per core, CPU, requests), the rows that the metadata store has of the topic, and
what a cold reader needs before and after. `--updates 10000000 --keys 1000000` is a log of 1.4 GB: ten minutes on two
cores, most of them for sending it. Values are hexadecimal digits of chance: half of them is what compression finds.
"""

import argparse
import json
import random
import tempfile
import time
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any, Final

import msgspec
from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, Producer, TopicPartition

from benchmarks.maintenance import Plan, ask, gets_of, run_job
from streamhouse.spark.maintenance import compaction_job
from streamhouse.spark.maintenance.compaction_job import CompactionResult
from tests.support.agent import LiveAgent

TOPIC: Final = "accounts"
FLAGS: Final = ("--set", "flush.age_s=1", "--set", "compaction.merge_runs=0", "--set", "compaction.interval_s=1h")
MB: Final = 1e6
FLUSH_LIMIT_S: Final = 120


@dataclass(frozen=True, slots=True, kw_only=True)
class Updates:
    """A log: updates of keys that are drawn evenly."""

    updates: int
    keys: int
    partitions: int
    value_bytes: int
    codec: str
    cores: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ColdRead:
    """A consumer behind a restart, from zero to the end: nothing is cached."""

    seconds: float
    records: int
    get_requests: int
    metadata_rows: int
    stored_mb: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Found:
    """What a reader knows in the end: how many keys, and a sum over what is newest of each."""

    keys: int
    checksum: int


def fill(agent: LiveAgent, plan: Updates) -> Found:
    settings = {"cleanup.policy": "compact"}
    ask(agent, "/v1/topics", {"name": TOPIC, "partitions": plan.partitions, "settings": settings})
    told = {"bootstrap.servers": agent.bootstrap, "linger.ms": 50, "batch.size": 1_000_000}
    producer = Producer({**told, "compression.type": plan.codec, "queue.buffering.max.messages": 500_000})
    chance = random.Random(1)
    latest: dict[int, int] = {}
    for number in range(plan.updates):
        key = chance.randrange(plan.keys)
        value = b"%d %s" % (number, chance.randbytes(plan.value_bytes // 2).hex().encode())
        while True:
            try:
                producer.produce(TOPIC, value, b"account-%d" % key, partition=key % plan.partitions)
                break
            except BufferError:
                producer.poll(0.05)
        latest[key] = number
    producer.flush(FLUSH_LIMIT_S)
    _wait_flushed(agent, plan.updates)
    return Found(keys=len(latest), checksum=sum(latest.values()))


def _plan(agent: LiveAgent) -> list[dict[str, Any]]:
    partitions: list[dict[str, Any]] = []
    cursor = None
    while True:
        page = msgspec.json.decode(ask(agent, "/v1/maintenance/plan", {"topic": TOPIC, "cursor": cursor}))
        partitions += page["partitions"]
        cursor = page["next"]
        if cursor is None:
            return partitions


def _wait_flushed(agent: LiveAgent, records: int) -> None:
    deadline = time.monotonic() + FLUSH_LIMIT_S
    while sum({each["partition"]: each["flushed_end"] for each in _plan(agent)}.values()) < records:
        if time.monotonic() > deadline:
            raise TimeoutError("records are not flushed")
        time.sleep(0.2)


def read_cold(agent: LiveAgent, plan: Updates) -> tuple[ColdRead, Found]:
    agent.stop()
    agent.start()
    begun, requests = time.perf_counter(), gets_of(agent)
    records, found = _consume(agent, plan)
    took = time.perf_counter() - begun
    runs = [run for each in _plan(agent) for run in each["runs"]]
    cold = ColdRead(
        seconds=round(took, 3),
        records=records,
        get_requests=gets_of(agent) - requests,
        metadata_rows=len(runs),
        stored_mb=round(sum(run["length"] for run in runs) / MB, 2),
    )
    return cold, found


def _consume(agent: LiveAgent, plan: Updates) -> tuple[int, Found]:
    told = {"bootstrap.servers": agent.bootstrap, "group.id": "nobody", "enable.auto.commit": False}
    # Else librdkafka pauses for a second whenever it is 100,000 records ahead of us.
    consumer = Consumer({**told, "enable.partition.eof": True, "fetch.queue.backoff.ms": 1})
    latest: dict[bytes, int] = {}
    ended: set[int | None] = set()
    records = 0
    try:
        consumer.assign([TopicPartition(TOPIC, each, OFFSET_BEGINNING) for each in range(plan.partitions)])
        while len(ended) < plan.partitions:
            for message in consumer.consume(5000, timeout=0.5):
                error, key, value = message.error(), message.key(), message.value()
                if error is not None:
                    if error.code() != KafkaError._PARTITION_EOF:
                        raise RuntimeError(str(error))
                    ended.add(message.partition())
                elif key is not None and value is not None:
                    latest[key] = int(value.split(b" ", 1)[0])
                    records += 1
    finally:
        consumer.close()
    return records, Found(keys=len(latest), checksum=sum(latest.values()))


def measure(plan: Updates) -> dict[str, Any]:
    done: list[CompactionResult] = []

    def job(tasks: Any) -> CompactionResult:
        done.append(compaction_job.run(TOPIC, agents=agent.http, tasks=tasks))
        return done[0]

    shape = Plan(flushes=1, partitions=plan.partitions, records=plan.updates, record_bytes=1, cores=plan.cores)
    with (
        tempfile.TemporaryDirectory(prefix="key-compaction-") as folder,
        LiveAgent(Path(folder) / "data", *FLAGS) as agent,
    ):
        begun = time.perf_counter()
        expected = fill(agent, plan)
        filled_s = round(time.perf_counter() - begun, 1)
        before, _ = read_cold(agent, plan)
        cost = run_job(agent, shape, job)
        after, seen = read_cold(agent, plan)
    if seen != expected or after.records != expected.keys:
        raise RuntimeError(f"what is left is not the latest of each key; expected={expected} seen={seen}")
    log_mb = before.stored_mb
    rates = {
        "log_mb_per_s": round(log_mb / cost.seconds, 2),
        "log_mb_per_s_and_core": round(log_mb / cost.seconds / plan.cores, 2),
        "updates_per_s": round(plan.updates / cost.seconds),
        "dropped_records": done[0].dropped_records,
    }
    return {
        "plan": {**asdict(plan), "filled_s": filled_s},
        "before": asdict(before),
        "compact": {**asdict(cost), **rates},
        "after": asdict(after),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--updates", type=int, default=1_000_000)
    parser.add_argument("--keys", type=int, default=10_000)
    parser.add_argument("--partitions", type=int, default=4)
    parser.add_argument("--value-bytes", type=int, default=100)
    parser.add_argument("--codec", default="none")
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--json", action="store_true")
    given = vars(parser.parse_args())
    as_json = given.pop("json")
    found = measure(Updates(**given))
    if as_json:
        print(json.dumps(found, indent=2))
        return
    for name, numbers in found.items():
        print(f"{name}: " + "  ".join(f"{key}={value}" for key, value in numbers.items()))


if __name__ == "__main__":
    main()
