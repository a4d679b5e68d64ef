"""Databases in files and object stores in memory, so that older copies of both can be put together with newer ones."""

import random
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

from streamhouse.format.object_keys import GENERATIONS_PREFIX
from streamhouse.stores.metadata.sqlite.store import SqliteMetadataStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from tests.broker.support import Faulty, World, batch, produce
from tests.simulation.files import SimFiles


class Stores:
    """Databases in files and object stores, so that older copies of both can be put together with newer ones."""

    def __init__(self, world: World, folder: Path) -> None:
        self.world = world
        self.folder = folder

    async def use(self, database: str, bucket: MemoryObjectStore) -> None:
        await self.world.sqlite.aclose()
        self.world.sqlite = SqliteMetadataStore(str(self.folder / f"{database}.db"), clock=self.world.clock)
        await self.world.sqlite.open()
        self.world.metadata = Faulty(self.world.sqlite)
        self.world.bucket = bucket
        self.world.objects = Faulty(bucket)
        self.world.files = SimFiles(random.Random(1))

    def copy_database(self, source: str, target: str) -> None:
        for path in self.folder.glob(f"{source}.db*"):
            shutil.copy(path, self.folder / path.name.replace(source, target, 1))

    def back_up(self, source: str, target: str) -> None:
        """As `sqlite3 .backup` does below a running agent."""
        with (
            closing(sqlite3.connect(self.folder / f"{source}.db")) as live,
            closing(sqlite3.connect(self.folder / f"{target}.db")) as copy,
        ):
            live.backup(copy)

    async def run_and_stop(self, *values: bytes) -> None:
        """One life of an agent, in which these become durable and flushed."""
        broker = await self.world.start()
        await broker.topic("orders", create=True)
        for value in values:
            await produce(broker, batch(value))
        await self.world.stop(broker, self.world.run(broker))


async def copied(bucket: MemoryObjectStore, world: World) -> MemoryObjectStore:
    copy = MemoryObjectStore(world.clock)
    for key, body in (await contents(bucket)).items():
        await copy.put_new(key, [body])
    return copy


async def contents(bucket: MemoryObjectStore) -> dict[str, bytes]:
    keys = [meta.key for prefix in PREFIXES async for meta in bucket.list(prefix)]
    return {key: await bucket.get_range(key, 0, 1 << 30) for key in keys}


PREFIXES = ("segments/", "wal/", "placed/", "cluster/", "topics/", GENERATIONS_PREFIX)


async def make_all(stores: Stores) -> dict[str, MemoryObjectStore]:
    """Databases and object stores: `newer` ones of a cluster, copies of both when they were `older`, `empty` ones, and
    those of a `foreign` cluster."""
    world = stores.world
    buckets = {name: MemoryObjectStore(world.clock) for name in ("newer", "empty", "foreign")}
    await stores.use("newer", buckets["newer"])
    await stores.run_and_stop(b"a", b"b")
    await world.sqlite.aclose()
    stores.copy_database("newer", "older")
    buckets["older"] = await copied(buckets["newer"], world)
    await stores.use("newer", buckets["newer"])
    await stores.run_and_stop(b"c")
    await stores.use("foreign", buckets["foreign"])
    await stores.run_and_stop(b"x")
    return buckets
