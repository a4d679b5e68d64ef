"""Object WAL on a real S3 server: a writer in a process of its own is killed, and every acknowledged append is found;
the server itself is killed and comes back; a zombie on the real thing."""

import asyncio
import os
import random
import sys
from asyncio.subprocess import PIPE
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.broker.wal.object_recovery import ObjectWalFactory
from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings, WalSettings
from streamhouse.errors import SessionSealed
from streamhouse.format.object_keys import parse_wal_key, wal_prefix
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.broker.wal.object_support import ALIVE, DEAD
from tests.broker.wal.support import entry, flushed
from tests.contracts.wal import WalContract
from tests.support.s3 import RealS3

pytestmark = pytest.mark.s3

BUCKET = "wal"
PREFIXES = count()
IMPATIENT = StoreSettings(request_timeout_s=2, max_retries=1, retry_total_s=3)

WRITER = """
import asyncio, sys
from tests.broker.wal.object_support import DEAD
from tests.broker.wal.support import entry
from tests.broker.wal.test_object_s3 import opened, wals_on_s3

async def main() -> None:
    wal = await wals_on_s3(opened(sys.argv[1])).open(DEAD)
    for offset in range(10**9):
        await wal.append([entry(offset, b"%d" % offset * 1000)])
        print(offset, flush=True)

asyncio.run(main())
"""


def opened(prefix: str, settings: StoreSettings | None = None) -> ObjectStore:
    return open_object_store(
        f"s3://{BUCKET}/{prefix}", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=settings
    )


def wals_on_s3(store: ObjectStore, **settings: int) -> ObjectWalFactory:
    chosen = WalSettings(kind="object", **settings)  # type: ignore[arg-type]
    return ObjectWalFactory(store, chosen, clock=SystemClock(), ids=Ids(random.Random(os.getpid())))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealS3]:
    with RealS3(tmp_path_factory.mktemp("s3")) as server, pytest.MonkeyPatch.context() as patch:
        for name, value in server.environment.items():
            patch.setenv(name, value)
        server.create_bucket(BUCKET)
        yield server


@pytest.fixture
def place(server: RealS3) -> str:
    return f"test-{os.getpid()}-{next(PREFIXES)}"


@pytest.fixture
async def store(place: str) -> AsyncIterator[ObjectStore]:
    store = opened(place)
    yield store
    await store.aclose()


class TestObjectWalOnS3(WalContract):
    @pytest.fixture
    def wals(self, store: ObjectStore) -> object:
        return lambda **settings: wals_on_s3(store, **settings)


async def numbers(store: ObjectStore) -> list[int]:
    names = [parse_wal_key(meta.key) async for meta in store.list(wal_prefix(DEAD))]
    return [name.sequence for name in names if name is not None]


async def test_a_killed_writer_loses_nothing_that_it_was_told_is_durable(place: str, store: ObjectStore) -> None:
    root = Path(__file__).parents[3]
    writer = await asyncio.create_subprocess_exec(
        *(sys.executable, "-c", WRITER, place), stdout=PIPE, cwd=root, env={**os.environ, "PYTHONPATH": "src"}
    )
    assert writer.stdout is not None
    acked = [int(await writer.stdout.readline()) for _ in range(10)]
    writer.kill()
    acked += [int(line) for line in (await writer.stdout.read()).splitlines()]
    await writer.wait()
    wals = wals_on_s3(store)
    await wals.open(ALIVE)
    async with wals.read(DEAD) as reading:
        results = [(each.base, bytes(each.batch)) async for each in reading.entries()]
        assert reading.damage.is_clean
        assert results == [(offset, b"%d" % offset * 1000) for offset in range(len(results))]
        assert len(acked) <= len(results) <= len(acked) + 1
        await reading.remove()
    assert await numbers(store) == [len(results)]  # the seal


async def test_a_zombie_is_stopped_by_the_seal(store: ObjectStore) -> None:
    wal = await wals_on_s3(store).open(DEAD)
    for offset in range(3):
        await wal.append([entry(offset)])
    await wal.truncate(flushed(orders=1))
    await wal.delete_below(1)
    wals = wals_on_s3(store)
    await wals.open(ALIVE)
    async with wals.read(DEAD, start=1) as reading:
        assert [each.base async for each in reading.entries()] == [1, 2]
    with pytest.raises(SessionSealed, match=ALIVE):
        await wal.append([entry(3)])
    await wal.aclose(remove=False)


async def test_appends_wait_for_a_server_that_was_killed_and_go_on_when_it_is_back(server: RealS3, place: str) -> None:
    store = opened(place, IMPATIENT)
    wal = await wals_on_s3(store, window_ms=5).open(DEAD)
    await wal.append([entry(0)])
    server.kill()
    commits = []
    for offset in range(1, 40):
        commits.append(wal.append([entry(offset, bytes(1000))]))
        await asyncio.sleep(0.002)
    assert not any(commit.done() for commit in commits)
    server.start()
    await asyncio.wait_for(asyncio.gather(*set(commits)), 60)
    assert wal.costs.retries > 0
    await wal.aclose(remove=False)
    async with wals_on_s3(store).read(DEAD) as reading:
        assert [each.base async for each in reading.entries()] == list(range(40))
    await store.aclose()
