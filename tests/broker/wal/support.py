"""What the WAL's tests share: names, a clock moved by hand, a loop whose worker threads are calls."""

import asyncio
import random
import uuid
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.broker.wal.disk_wal import DiskWal, open_disk_wal
from streamhouse.clock import Clock, Ids
from streamhouse.config import WalSettings
from streamhouse.format.wal_file import WalEntry
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.stores.local_files import FileSystem

ROOT = Path("/data/wal")
SESSION = SessionId("agent-1")
OTHER = SessionId("agent-2")
ORDERS = PartitionId(TopicId(uuid.UUID(int=1)), 0)
CLICKS = PartitionId(TopicId(uuid.UUID(int=2)), 0)


def entry(offset: int, batch: bytes = b"batch", partition: PartitionId = ORDERS, epoch: int = 1) -> WalEntry:
    return WalEntry(partition, Epoch(epoch), offset, offset + 1, batch)


def plain(found: WalEntry) -> WalEntry:
    return found._replace(batch=bytes(found.batch))


class ManualClock:
    """Time that stands still until a test moves it."""

    def __init__(self) -> None:
        self._now = 0.0
        self._sleepers: list[tuple[float, asyncio.Future[None]]] = []
        self.sleeps = 0

    def monotonic(self) -> float:
        return self._now

    def now_ms(self) -> int:
        return int(self._now * 1000)

    async def sleep(self, seconds: float) -> None:
        self.sleeps += 1
        waking: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        self._sleepers.append((self._now + seconds, waking))
        await waking

    async def advance(self, seconds: float) -> None:
        await settle()
        self._now += seconds
        for at, waking in self._sleepers:
            if at <= self._now and not waking.done():
                waking.set_result(None)
        self._sleepers = [(at, waking) for at, waking in self._sleepers if not waking.done()]
        await settle()


async def settle() -> None:
    """Let everything run that can run without time or threads."""
    for _ in range(20):
        await asyncio.sleep(0)


def run_inline() -> None:
    """Worker threads become calls, as on the simulated loop: what a test sees is the same each time."""
    loop = asyncio.get_running_loop()

    def run_in_executor(executor: object, call: Callable[..., Any], *args: Any) -> asyncio.Future[Any]:
        done: asyncio.Future[Any] = loop.create_future()
        try:
            loop.call_soon(done.set_result, call(*args))
        except Exception as error:  # noqa: BLE001 - as an executor does
            loop.call_soon(done.set_exception, error)
        return done

    loop.run_in_executor = run_in_executor  # type: ignore[method-assign, assignment]


async def open_wal(
    files: FileSystem,
    *,
    root: Path = ROOT,
    session: SessionId = SESSION,
    clock: Clock | None = None,
    seed: int = 0,
    max_group_bytes: int = 1 << 20,
    renew_bytes: int = 1 << 20,
    spare_files: int = 0,
    **settings: Any,
) -> DiskWal:
    return await open_disk_wal(
        root,
        session,
        WalSettings(spare_files=spare_files, **settings),
        files=files,
        clock=clock or ManualClock(),
        ids=Ids(random.Random(seed)),
        max_group_bytes=max_group_bytes,
        renew_bytes=renew_bytes,
    )


async def read_all(files: FileSystem, session: SessionId = SESSION, root: Path = ROOT) -> list[WalEntry]:
    async with DiskWalRecovery(root, files).read(session) as reading:
        return [plain(each) async for each in reading.entries()]


def flushed(**ends: int) -> Mapping[PartitionId, int]:
    return {{"orders": ORDERS, "clicks": CLICKS}[name]: end for name, end in ends.items()}
