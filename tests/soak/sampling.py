"""Sampling: what a cluster takes, looked up from outside: /proc, the database, the bucket, what agents tell scrapers.

Data path   processes, PostgreSQL, S3 -> **sampling** -> series
Owns        which series there are, how much each kind may grow; a sample every few seconds
Leaves      the rule to `trend`, which processes there are to `cluster` and `pipelines`
"""

import asyncio
import os
import re
import shutil
import subprocess
import time
import urllib.request
from collections import Counter
from collections.abc import Callable, Mapping
from math import inf
from pathlib import Path
from typing import Any, Final

import asyncpg
from obstore.store import S3Store

from streamhouse.config import Address
from tests.soak.trend import Allowance, Sample

TIMEOUT_S: Final = 5.0
MIB: Final = 1024 * 1024
TABLES: Final = "SELECT tablename FROM pg_tables WHERE schemaname = 'public' ORDER BY tablename"
CONNECTIONS: Final = "SELECT count(*) FROM pg_stat_activity WHERE backend_type = 'client backend'"
EPOCHS: Final = "SELECT count(*), count(DISTINCT (topic_id, partition, epoch)) FROM runs"
"""Runs are merged within the epoch of a leader, as Kafka's epoch cache has an entry for each: a log that is compacted
and never deleted keeps a run for each change of its leader. What is judged is what is more than that."""
TASKS: Final = "streamhouse_tasks "
ALLOWANCES: Final[Mapping[str, Allowance]] = {
    "rss": Allowance(0.06, 10.0),
    "pss": Allowance(0.06, 10.0),
    "handles": Allowance(0.1, 6.0),
    "threads": Allowance(0.0, 16.0),
    "processes": Allowance(0.0, 1.0),
    "tasks": Allowance(0.1, 8.0),
    "rows": Allowance(0.15, 15.0),
    "objects": Allowance(0.15, 25.0),
    "heap": Allowance(0.1, 20.0),
    "metaspace": Allowance(0.06, 10.0),
    "bytes": Allowance(0.15, 2.0),
    "connections": Allowance(0.1, 4.0),
    "unjudged": Allowance(inf, inf),
}
"""By the last word of a series' name; memory and bytes in MiB. The client of the bucket has a thread for each name that
it looks up at once, and keeps it for seconds: how many there are depends on how many connections it makes at a time."""


def allowance_of(series: str) -> Allowance:
    return ALLOWANCES[series.rpartition(" ")[2]]


# --- /proc --------------------------------------------------------------------------------------------------------


def memory_of(pid: int) -> dict[str, float]:
    """RSS and PSS in MiB."""
    text = Path(f"/proc/{pid}/smaps_rollup").read_text()
    fields = {name: rest.split() for name, _, rest in (line.partition(":") for line in text.splitlines()[1:])}
    return {"rss": int(fields["Rss"][0]) / 1024, "pss": int(fields["Pss"][0]) / 1024}


def process_of(pid: int) -> dict[str, float]:
    status = Path(f"/proc/{pid}/status").read_text()
    threads = next(int(line.split()[1]) for line in status.splitlines() if line.startswith("Threads:"))
    return {**memory_of(pid), "handles": float(len(os.listdir(f"/proc/{pid}/fd"))), "threads": float(threads)}


def family_of(pid: int) -> list[int]:
    """A process and all that it started."""
    results = [pid]
    for each in results:
        for task in Path(f"/proc/{each}/task").glob("*/children"):
            results += [int(child) for child in task.read_text().split()]
    return results


def tree_of(pid: int) -> dict[str, float]:
    """The same for a process and all that it started; one that ends meanwhile counts for nothing."""
    total: Counter[str] = Counter()
    for each in family_of(pid):
        try:
            total.update(process_of(each))
        except (OSError, StopIteration, KeyError):
            continue
        total["processes"] += 1
    return dict(total)


JCMD_S: Final = 20.0
HEAP_EVERY_S: Final = 10.0
HEAP_USED: Final = re.compile(r"^ *(\S+) .*?\bused (\d+)K", re.MULTILINE)


def heap_in(text: str) -> dict[str, float]:
    """MiB of heap and metaspace, of what `jcmd GC.heap_info` prints with any collector."""
    used = {"heap": 0.0, "metaspace": 0.0}
    for area, size in HEAP_USED.findall(text):
        if area != "class":  # the space of classes is a part of metaspace
            used["metaspace" if area == "Metaspace" else "heap"] += int(size) / 1024
    return used


def javas_of(pid: int) -> list[int]:
    """The JVMs among a process and all that it started."""
    found = []
    for each in family_of(pid):
        try:
            if Path(f"/proc/{each}/comm").read_text().strip() == "java":
                found.append(each)
        except OSError:
            continue
    return found


class HeapSampler:
    """What is left in the heaps of a process's JVMs after a collection: how full a heap is before one says how long ago
    the last one was, not what is held. Asked for every few seconds; nothing where there is no `jcmd`."""

    def __init__(self, name: str, pid: int) -> None:
        self._name, self._pid = name, pid
        self._values: dict[str, float] = {}
        self._next_at = 0.0

    def __call__(self) -> dict[str, float]:
        if shutil.which("jcmd") is not None and time.monotonic() >= self._next_at:
            total: Counter[str] = Counter()
            for java in javas_of(self._pid):
                _jcmd(java, "GC.run")
                total.update(heap_in(_jcmd(java, "GC.heap_info")))
            self._values = {f"{self._name} {kind}": value for kind, value in total.items()}
            self._next_at = time.monotonic() + HEAP_EVERY_S
        return self._values


def _jcmd(pid: int, command: str) -> str:
    """What a JVM answers; nothing if it ended meanwhile."""
    done = subprocess.run(("jcmd", str(pid), command), capture_output=True, text=True, timeout=JCMD_S)
    return done.stdout if done.returncode == 0 else ""


# --- the stores ---------------------------------------------------------------------------------------------------


async def rows_of(dsn: str) -> dict[str, float]:
    """Rows of every table, and connections to the database."""
    connection = await asyncpg.connect(dsn, timeout=TIMEOUT_S)
    try:
        tables = [row[0] for row in await connection.fetch(TABLES)]
        text = " UNION ALL ".join(f"SELECT '{table}', count(*) FROM \"{table}\"" for table in tables)
        result = {f"{table} rows": float(count) for table, count in await connection.fetch(text, timeout=TIMEOUT_S)}
        runs, epochs = await connection.fetchrow(EPOCHS)
        del result["runs rows"]
        return result | {
            "group_lag, kept for two days, unjudged": result.pop("group_lag rows"),
            "runs, more than one of an epoch, rows": float(runs - epochs),
            "runs, all, unjudged": float(runs),
            "database connections": float(await connection.fetchval(CONNECTIONS)),
        }
    finally:
        await connection.close()


def bucket_of(environment: Mapping[str, str], bucket: str) -> S3Store:
    return S3Store(
        bucket,
        endpoint=environment["AWS_ENDPOINT_URL"],
        access_key_id=environment["AWS_ACCESS_KEY_ID"],
        secret_access_key=environment["AWS_SECRET_ACCESS_KEY"],
        region=environment.get("AWS_REGION", "us-east-1"),
        client_options={"allow_http": True},
    )


def objects_of(store: S3Store, prefix: str) -> dict[str, float]:
    """Objects and MiB by the first part of their keys."""
    counts: Counter[str] = Counter()
    sizes: Counter[str] = Counter()
    for page in store.list(prefix):
        for each in page:
            kind = each["path"].removeprefix(prefix).lstrip("/").partition("/")[0]
            counts[kind] += 1
            sizes[kind] += each["size"]
    return {
        **{f"{kind}/ objects": float(count) for kind, count in counts.items()},
        **{f"{kind}/ bytes": size / MIB for kind, size in sizes.items()},
    }


def tasks_of(http: Address) -> float | None:
    """What the agent tells a scraper; None when it doesn't answer."""
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(f"http://{http}/metrics", timeout=TIMEOUT_S) as response:
            lines = response.read().decode().splitlines()
    except OSError:
        return None
    return next((float(line.removeprefix(TASKS)) for line in lines if line.startswith(TASKS)), None)


# --- series -------------------------------------------------------------------------------------------------------


class Series:
    """All samples, by the name of what was sampled. What is not there (a table without rows yet, a folder of the
    bucket that is empty) is 0 from the first sample on."""

    def __init__(self) -> None:
        self.samples: dict[str, list[Sample]] = {}
        self._times: list[float] = []

    def add(self, at_s: float, values: Mapping[str, float]) -> None:
        for name in self.samples.keys() | values.keys():
            known = self.samples.setdefault(name, [Sample(before, 0.0) for before in self._times])
            known.append(Sample(at_s, values.get(name, 0.0)))
        self._times.append(at_s)

    def as_json(self) -> dict[str, Any]:
        return {
            "at_s": self._times,
            "values": {name: [each.value for each in self.samples[name]] for name in self.names},
        }

    @property
    def names(self) -> list[str]:
        return sorted(self.samples)


Sampler = Callable[[], dict[str, float]]


class Sampling:
    """One look at everything, every `every_s`."""

    def __init__(self, *, dsn: str, store: S3Store, prefix: str, now: Callable[[], float]) -> None:
        self._dsn, self._store, self._prefix, self._now = dsn, store, prefix, now
        self.samplers: list[Sampler] = []
        """What else is looked at, each time."""
        self.series = Series()
        self.missed: list[str] = []
        """Looks that failed, and why."""

    async def run(self, every_s: float) -> None:
        while True:
            await self.look()
            await asyncio.sleep(every_s)

    async def look(self) -> None:
        at_s = self._now()
        try:
            values = await rows_of(self._dsn)
            values |= await asyncio.to_thread(objects_of, self._store, self._prefix)
            for sampler in self.samplers:
                values |= await asyncio.to_thread(sampler)
        except Exception as error:  # noqa: BLE001 - a look that failed is told of; too many of them are a failure
            self.missed.append(f"{at_s:.0f} s: {error!r}")
            return
        self.series.add(at_s, values)
