"""A folder as a bucket: the contract, and what disks, crashes and power cuts do to it."""

import asyncio
import errno
import os
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncIterator, Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from streamhouse.clock import SystemClock
from streamhouse.errors import CorruptObject, Misconfigured, Unavailable
from streamhouse.stores.objects import folder_uploads as uploads_module
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore
from streamhouse.stores.objects.folder import FolderObjectStore
from streamhouse.stores.objects.folder_uploads import FOLDER
from tests.contracts.clocks import ManualClock
from tests.contracts.object_store import ObjectStoreContract, keys_below


class TestFolderObjectStore(ObjectStoreContract):
    @pytest.fixture
    async def store(self, clock: ManualClock, tmp_path: Path) -> AsyncIterator[ObjectStore]:
        store = FolderObjectStore(tmp_path / "not" / "yet" / "there", clock)
        yield store
        await store.aclose()


@pytest.fixture
async def store(tmp_path: Path) -> AsyncIterator[FolderObjectStore]:
    store = FolderObjectStore(tmp_path, ManualClock())
    yield store
    await store.aclose()


def temporary_files(root: Path) -> list[str]:
    return sorted(path.name for path in (root / FOLDER).iterdir() if not path.name.endswith(".mark"))


def failing(code: int) -> Any:
    def fail(*_: object, **__: object) -> None:
        raise OSError(code, os.strerror(code))

    return fail


async def test_objects_are_there_after_the_folder_is_opened_again(tmp_path: Path) -> None:
    first = FolderObjectStore(tmp_path, SystemClock())
    await first.put_new("a/1", [b"x"])
    await first.aclose()
    assert list((tmp_path / FOLDER).iterdir()) == []
    second = FolderObjectStore(tmp_path, SystemClock())
    with pytest.raises(ObjectExists):
        await second.put_new("a/1", [b"y"])
    assert await second.get_range("a/1", 0, 1) == b"x"
    await second.aclose()


async def test_a_closed_store_is_unavailable_and_closing_twice_is_no_error(tmp_path: Path) -> None:
    store = FolderObjectStore(tmp_path, SystemClock())
    await store.aclose()
    await store.aclose()
    with pytest.raises(Unavailable):
        await store.put_new("a/1", [b"x"])
    with pytest.raises(Unavailable):
        await store.head("a/1")


async def test_stores_of_two_processes_share_a_folder(tmp_path: Path) -> None:
    first, second = FolderObjectStore(tmp_path, SystemClock()), FolderObjectStore(tmp_path, SystemClock())
    bodies = [f"{n}".encode() for n in range(16)]
    puts = [(first if n % 2 else second).put_new("race/1", [body]) for n, body in enumerate(bodies)]
    results = await asyncio.gather(*puts, return_exceptions=True)
    assert sum(result is None for result in results) == 1
    assert await second.get_range("race/1", 0, 9) == bodies[results.index(None)]
    await first.aclose()
    await second.put_new("race/2", [b"x"])
    await second.aclose()


async def test_foreign_files_and_links_are_not_objects(store: FolderObjectStore, tmp_path: Path) -> None:
    await store.put_new("a/1", [b"x"])
    (tmp_path / "a" / "not a key").write_bytes(b"")
    (tmp_path / "a" / "link").symlink_to(tmp_path / "a" / "1")
    (tmp_path / "elsewhere").symlink_to("/")
    assert await keys_below(store, "") == ["a/1"]
    with pytest.raises(ObjectMissing):
        await store.get_range("a/link", 0, 1)


@pytest.mark.parametrize("call", ["writev", "fdatasync", "link"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO, errno.EDQUOT])
async def test_a_disk_that_fails_a_write_is_unavailable_and_leaves_nothing(
    store: FolderObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, code: int
) -> None:
    await store.put_new("a/1", [b"x"])
    with monkeypatch.context() as broken:
        broken.setattr(os, call, failing(code))
        with pytest.raises(Unavailable, match=errno.errorcode[code]):
            await store.put_new("a/2", [b"y"])
    assert temporary_files(tmp_path) == []
    assert await keys_below(store, "") == ["a/1"]
    await store.put_new("a/2", [b"z"])
    assert await store.get_range("a/2", 0, 1) == b"z"


async def test_after_a_directory_sync_failed_nothing_more_is_taken(
    store: FolderObjectStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_new("a/1", [b"x"])
    with monkeypatch.context() as broken:
        broken.setattr(os, "fsync", failing(errno.EIO))
        with pytest.raises(Unavailable):
            await store.put_new("a/2", [b"y"])
    for key in ("a/2", "a/3"):
        with pytest.raises(Unavailable, match="restart"):
            await store.put_new(key, [b"y"])
    assert await store.get_range("a/1", 0, 1) == b"x"
    assert temporary_files(tmp_path) == []


async def test_a_disk_that_fails_a_read_is_unavailable(
    store: FolderObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_new("a/1", [b"x"])
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", failing(errno.ESTALE))
        with pytest.raises(Unavailable, match="ESTALE"):
            await store.get_range("a/1", 0, 1)
    assert await store.get_range("a/1", 0, 1) == b"x"


async def test_a_file_system_without_hard_links_is_refused_with_advice(
    store: FolderObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(os, "link", failing(errno.EPERM))
    with pytest.raises(Misconfigured, match="hard links"):
        await store.put_new("a/1", [b"x"])


async def test_writes_and_reads_go_on_where_the_system_takes_few_bytes_at_a_time(
    store: FolderObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    writev, pread = os.writev, os.pread

    def write_little(descriptor: int, buffers: Sequence[memoryview]) -> int:
        assert len(buffers) <= uploads_module._MAX_BUFFERS
        return writev(descriptor, [b"".join(buffers)[:7]])

    monkeypatch.setattr(os, "writev", write_little)
    monkeypatch.setattr(os, "pread", lambda descriptor, length, start: pread(descriptor, min(5, length), start))
    pieces = [bytes([n]) * (n % 13) for n in range(200)]
    await store.put_new("a/1", pieces)
    assert await store.get_range("a/1", 0, 10**6) == b"".join(pieces)
    assert await store.get_suffix("a/1", 23) == b"".join(pieces)[-23:]


async def test_no_file_descriptor_is_left_open(store: FolderObjectStore) -> None:
    await store.put_new("a/1", [b"x" * 100])
    before = len(os.listdir("/proc/self/fd"))
    for n in range(50):
        await store.put_new(f"b/{n}", [b"y"])
        await store.get_range("a/1", 0, 10)
        await store.get_suffix("a/1", 10)
        with pytest.raises(ObjectExists):
            await store.put_new("a/1", [b"y"])
        with pytest.raises(ObjectMissing):
            await store.get_range("b", 0, 1)
        await store.delete(f"b/{n}")
    assert len(os.listdir("/proc/self/fd")) == before


async def test_a_cancelled_put_returns_only_when_its_buffers_are_no_longer_used(
    store: FolderObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_new("a/0", [b""])
    entered, go_on = threading.Event(), threading.Event()
    writev = os.writev

    def slow(descriptor: int, buffers: Sequence[memoryview]) -> int:
        entered.set()
        assert go_on.wait(10)
        return writev(descriptor, buffers)

    monkeypatch.setattr(os, "writev", slow)
    buffer = bytearray(b"first")
    put = asyncio.create_task(store.put_new("a/1", [buffer]))
    await asyncio.to_thread(entered.wait)
    put.cancel()
    await asyncio.sleep(0)
    put.cancel()
    await asyncio.sleep(0)
    assert not put.done()
    go_on.set()
    with pytest.raises(asyncio.CancelledError):
        await put
    buffer[:] = b"other"
    assert await store.get_range("a/1", 0, 5) == b"first"


async def test_leftovers_of_a_dead_owner_are_removed_and_those_of_a_living_one_stay(tmp_path: Path) -> None:
    alive = FolderObjectStore(tmp_path, SystemClock())
    await alive.put_new("a/1", [b"x"])
    [mark] = (tmp_path / FOLDER).iterdir()
    owner = mark.name.removesuffix(".mark")
    for name in (f"{owner}.77", "1-0.mark", "1-0.5", "1-01.mark", "1-01.9", "2-0.3"):
        (tmp_path / FOLDER / name).write_bytes(b"half an obj")
    newcomer = FolderObjectStore(tmp_path, SystemClock())
    await newcomer.put_new("a/2", [b"y"])
    assert temporary_files(tmp_path) == [f"{owner}.77"]
    assert mark.exists()
    await alive.aclose()
    await newcomer.aclose()


WRITER = """
import asyncio, os, sys
from pathlib import Path
from streamhouse.clock import SystemClock
from streamhouse.stores.objects.folder import FolderObjectStore

async def main() -> None:
    store = FolderObjectStore(Path(sys.argv[1]), SystemClock())
    for n in range(1_000_000):
        body = [b"%020d" % n] * 20_000
        await store.put_new(f"w/{os.getpid()}-{n:06d}", body)
        print(n, flush=True)

asyncio.run(main())
"""


def spawn_writer(root: Path) -> "subprocess.Popen[bytes]":
    return subprocess.Popen([sys.executable, "-c", WRITER, str(root)], stdout=subprocess.PIPE, env=child_environment())


def child_environment() -> dict[str, str]:
    return {**os.environ, "PYTHONPATH": os.pathsep.join(path for path in sys.path if path)}


async def test_a_writer_killed_in_the_middle_leaves_only_whole_objects(tmp_path: Path) -> None:
    for acks in (1, 3, 6):
        with spawn_writer(tmp_path) as writer:
            assert writer.stdout is not None
            acked = [int(writer.stdout.readline()) for _ in range(acks)]
            writer.send_signal(signal.SIGKILL)
            acked += [int(line) for line in writer.stdout.read().splitlines()]
        store = FolderObjectStore(tmp_path, SystemClock())
        await store.put_new(f"next/{acks}", [b"opens and cleans"])
        assert temporary_files(tmp_path) == []
        keys = [key for key in await keys_below(store, "w/") if key.startswith(f"w/{writer.pid}-")]
        assert {f"w/{writer.pid}-{n:06d}" for n in acked} <= set(keys)
        for key in keys:
            number = int(key.rpartition("-")[2])
            assert await store.get_range(key, 0, 10**6) == b"%020d" % number * 20_000
        await store.aclose()


ONE_PUT = """
import asyncio, sys
from pathlib import Path
from streamhouse.clock import SystemClock
from streamhouse.stores.objects.folder import FolderObjectStore

async def main() -> None:
    store = FolderObjectStore(Path(sys.argv[1]), SystemClock())
    await store.put_new("deep/down/object", [b"x" * 10, b"y" * 10])
    print("acknowledged", flush=True)

asyncio.run(main())
"""


def test_everything_is_synced_in_the_order_that_survives_a_power_cut(tmp_path: Path) -> None:
    strace = shutil.which("strace")
    if strace is None:
        pytest.skip("strace is not installed: the order of system calls can't be seen")
    trace, root = tmp_path / "trace", tmp_path / "root"
    calls = "trace=openat,mkdir,mkdirat,link,linkat,unlink,unlinkat,fsync,fdatasync,write,writev"
    command = [strace, "-f", "-y", "-e", calls, "-o", str(trace), sys.executable, "-c", ONE_PUT, str(root)]
    done = subprocess.run(command, capture_output=True, env=child_environment(), check=False)
    if done.returncode != 0 and b"ptrace" in done.stderr:
        pytest.skip("strace may not trace here: the order of system calls can't be seen")
    assert done.returncode == 0, done.stderr
    lines = [line for line in trace.read_text().splitlines() if str(root) in line or "acknowledged" in line]

    def first(pattern: str) -> int:
        found = [n for n, line in enumerate(lines) if re.search(pattern, line)]
        assert found, f"{pattern} was never called"
        return found[0]

    here = re.escape(str(root))
    temporary = rf"{here}/{FOLDER}/\d+-\d+\.\d+"
    order = [
        rf"writev\(\d+<{temporary}>",
        rf"fdatasync\(\d+<{temporary}>",
        rf"mkdir.*{here}/deep\"",
        rf"fsync\(\d+<{here}>",
        rf"mkdir.*{here}/deep/down\"",
        rf"fsync\(\d+<{here}/deep>",
        rf"link(at)?\(.*{temporary}.*{here}/deep/down/object",
        rf"unlink(at)?\(.*{temporary}",
        rf"fsync\(\d+<{here}/deep/down>",
        r"write\(1.*acknowledged",
    ]
    # The root itself is synced when the folder of temporary files is made; the sync after `mkdir deep` counts here.
    lines = lines[first(order[0]) :]
    positions = [first(pattern) for pattern in order]
    assert positions == sorted(positions), list(zip(order, positions, strict=True))


@pytest.fixture
def tiny_disk(tmp_path: Path) -> Iterator[Path]:
    location = tmp_path / "tiny"
    location.mkdir()
    mount = shutil.which("mount")
    command = [mount or "mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(location)]
    if mount is None or subprocess.run(command, capture_output=True, check=False).returncode != 0:
        pytest.skip("no tmpfs can be mounted here: a full disk can't be tried")
    yield location
    subprocess.run(["umount", "-l", str(location)], check=True)


async def test_a_full_disk_is_unavailable_and_takes_objects_again_after_a_delete(tiny_disk: Path) -> None:
    store = FolderObjectStore(tiny_disk, SystemClock())
    await store.put_new("a/1", [b"x" * 600_000])
    with pytest.raises(Unavailable, match="ENOSPC"):
        await store.put_new("a/2", [b"y" * 600_000])
    assert temporary_files(tiny_disk) == []
    assert await keys_below(store, "") == ["a/1"]
    await store.delete("a/1")
    await store.put_new("a/2", [b"y" * 600_000])
    assert await store.get_suffix("a/2", 1) == b"y"
    await store.aclose()


async def test_an_object_that_the_disk_cannot_read_is_damaged_and_not_away(
    store: FolderObjectStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    await store.put_new("a/1", [b"12345"])
    with monkeypatch.context() as broken:
        broken.setattr(os, "pread", failing(errno.EIO))
        for read in (store.get_range("a/1", 0, 5), store.get_suffix("a/1", 5)):
            with pytest.raises(CorruptObject, match=r"key=a/1 why=the disk can't read it: EIO"):
                await read
    assert await store.get_range("a/1", 0, 5) == b"12345"
