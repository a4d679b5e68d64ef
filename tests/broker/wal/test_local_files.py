"""The real disk behind the WAL's door, and the log on it."""

import asyncio
import errno
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamhouse.broker.wal.disk_recovery import DiskWalRecovery
from streamhouse.clock import SystemClock
from streamhouse.errors import AppendFailed
from streamhouse.stores import local_files
from streamhouse.stores.local_files import PAGE_BYTES, UNREADABLE, FileSystem, LocalFiles, LockedError
from tests.broker.wal.support import CLICKS, OTHER, SESSION, entry, flushed, open_wal, read_all


@pytest.fixture
def files() -> FileSystem:
    return LocalFiles()


def test_all_buffers_are_written_however_many(files: FileSystem, tmp_path: Path) -> None:
    file = files.create(tmp_path / "a")
    buffers = [b"%d," % n for n in range(3000)]
    file.write(buffers)
    file.write([bytearray(b"x"), memoryview(b"yz")[1:], b""])
    file.sync()
    file.close()
    assert files.read(tmp_path / "a") == b"".join(buffers) + b"xz"


@pytest.mark.parametrize("most", [1, 3, 7, 1000])
def test_a_write_that_the_kernel_takes_in_parts_is_finished(
    files: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, most: int
) -> None:
    real = os.write
    monkeypatch.setattr(os, "writev", lambda fd, buffers: real(fd, b"".join(buffers)[:most]))
    monkeypatch.setattr(os, "write", lambda fd, data: real(fd, data[:most]))
    file = files.create(tmp_path / "a")
    buffers = [b"", b"abc", b"d", b"efghij", b"", b"k"]
    file.write(buffers)
    file.close()
    assert files.read(tmp_path / "a") == b"abcdefghijk"


def test_a_file_is_never_created_over_another(files: FileSystem, tmp_path: Path) -> None:
    files.create(tmp_path / "a").close()
    with pytest.raises(FileExistsError):
        files.create(tmp_path / "a")


def test_a_lock_is_exclusive_also_within_a_process(files: FileSystem, tmp_path: Path) -> None:
    lock = files.create_locked(tmp_path / "lock")
    assert files.list(tmp_path) == ["lock"]
    with pytest.raises(LockedError):
        files.lock(tmp_path / "lock")
    lock.release()
    files.lock(tmp_path / "lock").release()
    with pytest.raises(FileExistsError):
        files.create_locked(tmp_path / "lock")


def test_a_missing_lock_is_missing(files: FileSystem, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.lock(tmp_path / "lock")


HOLDER = """
import sys
from pathlib import Path
from streamhouse.stores.local_files import LocalFiles
lock = LocalFiles().create_locked(Path(sys.argv[1]))
print("held", flush=True)
sys.stdin.read()
"""


class Syncs:
    """What was made durable: paths, each with what it contained then."""

    def __init__(self, patch: pytest.MonkeyPatch) -> None:
        self.seen: list[tuple[Path, object]] = []
        patch.setattr(os, "fsync", self._note)
        patch.setattr(local_files, "_datasync", self._note)

    def _note(self, fd: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{fd}"))
        self.seen.append((path, sorted(os.listdir(path)) if path.is_dir() else path.read_bytes()))

    def taken(self) -> list[tuple[Path, object]]:
        seen, self.seen = self.seen, []
        return seen


@pytest.mark.skipif(sys.platform != "linux", reason="a descriptor's path is looked up in /proc")
def test_what_must_survive_a_power_cut_is_synced_and_not_before_it_is_there(
    files: FileSystem, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    syncs = Syncs(monkeypatch)
    log, kept = tmp_path / "log", tmp_path / "kept"
    files.make_dir(log / "wal")
    assert syncs.taken() == [(tmp_path, ["log"]), (log, ["wal"])]
    files.remove_dir(log / "wal")
    assert syncs.taken() == [(log, [])]
    files.remove_dir(log / "wal")
    files.make_dir(kept)
    syncs.taken()
    file = files.create(log / "a")
    assert syncs.taken() == [(log, ["a"])]
    file.write([b"one", b"two"])
    assert syncs.taken() == []
    file.sync()
    assert syncs.taken() == [(log / "a", b"onetwo")]
    file.close()
    files.create_locked(log / "lock").release()
    assert syncs.taken() == [(log, ["a", "lock"])]
    files.move(log, ["a"], kept)
    assert syncs.taken() == [(kept, ["a"]), (log, ["lock"])]
    files.remove(kept, ["a", "never there"])
    assert syncs.taken() == [(kept, [])]
    files.remove_dir(kept)
    assert syncs.taken() == [(tmp_path, ["log"])]


async def test_a_log_whose_owner_lives_is_not_dead(files: FileSystem, tmp_path: Path) -> None:
    files.make_dir(tmp_path / SESSION)
    command = [sys.executable, "-c", HOLDER, str(tmp_path / SESSION / "lock")]
    owner = await asyncio.create_subprocess_exec(*command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    assert owner.stdout is not None
    assert await owner.stdout.readline() == b"held\n"
    wals = DiskWalRecovery(tmp_path, files)
    assert await wals.dead_sessions(OTHER) == []
    with pytest.raises(LockedError):
        await read_all(files, root=tmp_path)
    owner.kill()
    await owner.communicate()
    assert await wals.dead_sessions(OTHER) == [SESSION]


@pytest.mark.parametrize("spare_files", [0, 2])
@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_the_log_works_on_a_real_disk(files: FileSystem, tmp_path: Path, fsync: str, spare_files: int) -> None:
    root = tmp_path / "data" / "wal"
    wal = await open_wal(
        files,
        root=root,
        fsync=fsync,
        fsync_interval_ms=1,
        file_bytes=40_000,
        clock=SystemClock(),
        renew_bytes=1,
        spare_files=spare_files,
    )
    for offset in range(200):
        await wal.append([entry(offset, bytes(1000)), entry(offset, b"", CLICKS)])
        if offset % 20 == 19:
            await wal.truncate(flushed(orders=offset - 9, clicks=offset + 1))
    stored = sum(path.stat().st_size for path in (root / SESSION).glob("*.wal"))
    assert wal.size_bytes <= stored if spare_files else wal.size_bytes == stored
    assert len(list((root / SESSION).glob("*.spare"))) <= spare_files
    await wal.aclose(remove=False)
    results = [e.base for e in await read_all(files, root=root) if e.partition != CLICKS]
    assert results == list(range(results[0], 200))
    assert 190 - 40 <= results[0] <= 190
    await DiskWalRecovery(root, files).remove(SESSION)
    assert files.list(root) == []


async def test_a_torn_tail_is_cut(files: FileSystem, tmp_path: Path) -> None:
    wal = await open_wal(files, root=tmp_path, fsync="always")
    await wal.append([entry(0), entry(1)])
    await wal.aclose(remove=False)
    path = tmp_path / SESSION / "00000000000000000000.wal"
    os.truncate(path, path.stat().st_size - 1)
    async with DiskWalRecovery(tmp_path, files).read(SESSION) as reading:
        assert [e.base async for e in reading.entries()] == [0]
        assert reading.damage.cut == 1


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of one mebibyte, where mounting is allowed."""
    mount = tmp_path / "small"
    mount.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(mount)]
    try:
        mounted = subprocess.run(command, capture_output=True, check=False).returncode == 0
    except FileNotFoundError:
        mounted = False
    if not mounted:
        pytest.skip("this user may not mount a tmpfs; the simulated disk fills up in test_disk_wal")
    try:
        yield mount
    finally:
        subprocess.run(["umount", str(mount)], check=True)


@pytest.mark.parametrize("fsync", ["always", "interval", "never"])
async def test_a_disk_that_is_really_full_ends_the_log_and_keeps_what_was_acked(
    files: FileSystem, small_disk: Path, fsync: str
) -> None:
    wal = await open_wal(files, root=small_disk, fsync=fsync)
    acked = 0
    for offset in range(1000):
        commit = wal.append([entry(offset, bytes(10_000))])
        await asyncio.wait({commit})
        acked += commit.exception() is None
    with pytest.raises(AppendFailed, match=os.strerror(errno.ENOSPC)):
        await commit
    assert 50 < acked < 120
    await wal.aclose(remove=False)
    assert [e.base for e in await read_all(files, root=small_disk)] == list(range(acked))
    await DiskWalRecovery(small_disk, files).remove(SESSION)
    assert files.list(small_disk) == []


# --- what a disk does not give back


def spoil(monkeypatch: pytest.MonkeyPatch, *pages: int) -> None:
    """These pages of every file fail to be read, as a bad sector does."""
    pread = os.pread

    def failing(fd: int, length: int, offset: int) -> bytes:
        if offset // PAGE_BYTES in pages:
            raise OSError(errno.EIO, "Input/output error")
        return pread(fd, length, offset)

    def unreadable(path: Path) -> bytes:
        raise OSError(errno.EIO, "Input/output error")

    monkeypatch.setattr(os, "pread", failing)
    monkeypatch.setattr(Path, "read_bytes", unreadable)


def test_a_file_is_read_around_bad_sectors(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytes(range(256)) * 16 * 5 + b"the end"
    path = tmp_path / "file"
    path.write_bytes(data)
    assert LocalFiles().read_around(path) == (data, ())
    spoil(monkeypatch, 1, 2, 5)
    result, holes = LocalFiles().read_around(path)
    assert holes == [(PAGE_BYTES, 3 * PAGE_BYTES), (5 * PAGE_BYTES, len(data))]
    assert result[:PAGE_BYTES] == data[:PAGE_BYTES]
    assert result[PAGE_BYTES : 3 * PAGE_BYTES] == UNREADABLE * 2 * PAGE_BYTES
    assert result[3 * PAGE_BYTES : 5 * PAGE_BYTES] == data[3 * PAGE_BYTES : 5 * PAGE_BYTES]
    assert len(result) == len(data)


def test_files_are_moved_where_they_exist(tmp_path: Path) -> None:
    files, to = LocalFiles(), tmp_path / "to"
    to.mkdir()
    (tmp_path / "one").write_bytes(b"1")
    files.move(tmp_path, ["one", "two"], to)
    files.move(tmp_path, ["one", "two"], to)
    assert files.list(to) == ["one"]
    assert files.size(to / "one") == 1
    assert not (tmp_path / "one").exists()
