"""SimFiles: a local disk in memory that loses power, tears writes, fills up and fails to sync, by a seed.

Stands in for `streamhouse.stores.local_files.LocalFiles`. One `SimFiles` is the disk as one process sees it: `kill` and
`power_cut` end that process (every later call of it fails, as if it had never been made) and return the disk as the
next process finds it.

The model: written bytes are cached; a sync makes the cached bytes of its file durable. A power cut keeps the durable
bytes, and of the rest what it likes: a prefix, sectors of it with what was durable there between them (zeros where
nothing was), zeros or garbage behind it. A failed sync forgets, as kernels do, that its bytes were dirty: they can
still be read, and no later sync writes them.
"""

import errno
import random
import threading
from collections.abc import Callable, Sequence
from pathlib import Path

from streamhouse.format.batch import Buffer
from streamhouse.stores.local_files import UNREADABLE, AppendFile, ByteRange, LockedError

_SECTOR_BYTES = 512


class _Content:
    def __init__(self, data: bytes | bytearray = b"") -> None:
        self.cached = bytearray(data)
        self.durable = bytearray(data)
        self.dirty: list[ByteRange] = []
        """Written since the last sync, in order, without gaps or overlaps between neighbours."""

    def write(self, position: int, data: memoryview) -> None:
        end = position + len(data)
        self.cached[position:end] = data
        if self.dirty and self.dirty[-1].end == position:
            self.dirty[-1] = ByteRange(self.dirty[-1].start, end)
        elif data:
            self.dirty.append(ByteRange(position, end))

    def sync(self) -> None:
        for start, end in self.dirty:
            _put(self.durable, start, self.cached[start:end])
        self.dirty.clear()

    def forget_dirty(self) -> None:
        for _, end in self.dirty:
            _put(self.durable, end, b"")
        self.dirty.clear()

    def after_power_cut(self, chance: random.Random) -> "_Content":
        kept = bytearray(self.durable)
        left = chance.randint(0, sum(end - start for start, end in self.dirty))
        how = chance.choice(("prefix", "prefix", "holes", "zeros", "garbage"))
        for start, end in self.dirty:
            end = min(end, start + left)
            left -= end - start
            for at in range(start, end, _SECTOR_BYTES) if how == "holes" else (start,):
                until = min(at + _SECTOR_BYTES, end) if how == "holes" else end
                is_hole = how == "holes" and chance.random() < 0.3
                _put(kept, until if is_hole else at, b"" if is_hole else self.cached[at:until])
        return _Content(kept + _tail(how, chance))


def _put(content: bytearray, position: int, data: bytes | bytearray) -> None:
    """Write, with zeros up to the position."""
    content += bytes(max(0, position - len(content)))
    content[position : position + len(data)] = data


def _tail(how: str, chance: random.Random) -> bytes:
    match how:
        case "zeros":
            return bytes(chance.randrange(4096))
        case "garbage":
            return chance.randbytes(chance.randrange(4096))
    return b""


class _Disk:
    """What outlives processes; shared by their `SimFiles`."""

    def __init__(self, chance: random.Random) -> None:
        self.chance = chance
        self.dirs: dict[Path, None] = {}
        self.contents: dict[Path, _Content] = {}
        self.locks: dict[Path, SimFiles] = {}
        self.processes: list[SimFiles] = []
        self.guard = threading.RLock()


class SimFiles:
    def __init__(
        self, chance: random.Random, *, slow: Callable[[str], None] | None = None, disk: _Disk | None = None
    ) -> None:
        """`slow` is called with the name of each call before it takes effect, and may take its time."""
        self._disk = disk or _Disk(chance)
        self._disk.processes.append(self)
        self._slow = slow
        self._is_dead = False
        self._full_after: int | None = None
        self._syncs_that_fail = 0
        self._bad_sectors: dict[Path, list[ByteRange]] = {}
        self.writes = 0
        self.syncs = 0

    # --- faults

    def fill_up_after(self, more_bytes: int) -> None:
        """Writes fail with ENOSPC once so many more bytes were taken; `make_room` ends it."""
        self._full_after = more_bytes

    def make_room(self) -> None:
        self._full_after = None

    def fail_next_sync(self) -> None:
        """The next sync fails with EIO and forgets what was dirty; the one after it will seem to work."""
        self._syncs_that_fail += 1

    def kill(self) -> "SimFiles":
        """This process dies: its locks are free, all that it wrote is there."""
        with self._disk.guard:
            self._is_dead = True
            self._disk.locks = {path: owner for path, owner in self._disk.locks.items() if owner is not self}
            self._disk.processes.remove(self)
        return self.another_process()

    def power_cut(self) -> "SimFiles":
        """All processes die, and with them what was not synced, or some of it."""
        disk = self._disk
        with disk.guard:
            for process in disk.processes:
                process._is_dead = True
            disk.processes.clear()
            disk.locks.clear()
            for path, content in sorted(disk.contents.items()):
                disk.contents[path] = content.after_power_cut(disk.chance)
        return self.another_process()

    def another_process(self) -> "SimFiles":
        """The same disk, seen by another process."""
        return SimFiles(self._disk.chance, slow=self._slow, disk=self._disk)

    def overwrite(self, path: Path, data: bytes) -> None:
        """Put bytes into a file behind everybody's back: rot."""
        self._disk.contents[path] = _Content(data)

    def spoil(self, path: Path, start: int, end: int) -> None:
        """The disk does not give these bytes of a file back any more."""
        self._bad_sectors.setdefault(path, []).append(ByteRange(start, end))

    def _call(self, what: str) -> None:
        self._wait(what)
        self._check_alive()

    def _wait(self, what: str) -> None:
        if self._slow is not None:
            self._slow(what)

    def _check_alive(self) -> None:
        if self._is_dead:
            raise OSError(errno.EIO, "this process is dead")

    # --- the door

    def make_dir(self, path: Path) -> None:
        self._call("make_dir")
        for directory in (path, *path.parents):
            self._disk.dirs[directory] = None

    def create(self, path: Path) -> AppendFile:
        self._call("create")
        self._add(path)
        return _SimFile(self, self._disk.contents[path])

    def write_over(self, path: Path) -> AppendFile:
        self._call("write_over")
        if path not in self._disk.contents:
            raise FileNotFoundError(path)
        return _SimFile(self, self._disk.contents[path])

    def rename(self, path: Path, to: Path) -> None:
        self._call("rename")
        if path not in self._disk.contents:
            raise FileNotFoundError(path)
        self._disk.contents[to] = self._disk.contents.pop(path)

    def _add(self, path: Path) -> None:
        if path.parent not in self._disk.dirs:
            raise FileNotFoundError(path)
        if path in self._disk.contents:
            raise FileExistsError(path)
        self._disk.contents[path] = _Content()

    def read(self, path: Path) -> bytes:
        self._call("read")
        if path not in self._disk.contents:
            raise FileNotFoundError(path)
        return bytes(self._disk.contents[path].cached)

    def read_around(self, path: Path) -> tuple[bytes, Sequence[ByteRange]]:
        data = bytearray(self.read(path))
        holes = [ByteRange(start, min(end, len(data))) for start, end in self._bad_sectors.get(path, ())]
        for start, end in holes:
            data[start:end] = UNREADABLE * (end - start)
        return bytes(data), holes

    def size(self, path: Path) -> int:
        return len(self.read(path))

    def move(self, directory: Path, names: Sequence[str], to: Path) -> None:
        self._call("move")
        for name in names:
            if (content := self._disk.contents.pop(directory / name, None)) is not None:
                self._disk.contents[to / name] = content

    def list(self, path: Path) -> list[str]:
        self._call("list")
        if path in self._disk.contents:
            raise NotADirectoryError(path)
        if path not in self._disk.dirs:
            raise FileNotFoundError(path)
        known = (*self._disk.dirs, *self._disk.contents)
        return sorted(each.name for each in known if each.parent == path and each != path)

    def remove(self, directory: Path, names: Sequence[str]) -> None:
        self._call("remove")
        for name in names:
            self._disk.contents.pop(directory / name, None)
            self._disk.locks.pop(directory / name, None)

    def remove_dir(self, path: Path) -> None:
        self._call("remove_dir")
        if path not in self._disk.dirs:
            return
        if any(each.parent == path for each in self._disk.contents):
            raise OSError(errno.ENOTEMPTY, "directory not empty")
        del self._disk.dirs[path]

    def create_locked(self, path: Path) -> "_SimLock":
        self._call("create_locked")
        self._add(path)
        self._disk.locks[path] = self
        return _SimLock(self._disk, path, self)

    def lock(self, path: Path) -> "_SimLock":
        self._call("lock")
        if path.parent in self._disk.contents:
            raise NotADirectoryError(path)
        if path not in self._disk.contents:
            raise FileNotFoundError(path)
        if path in self._disk.locks:
            raise LockedError(path)
        self._disk.locks[path] = self
        return _SimLock(self._disk, path, self)

    def _take(self, content: _Content, position: int, buffer: Buffer) -> None:
        new = max(0, position + len(buffer) - max(position, len(content.cached)))
        taken = new if self._full_after is None else min(new, self._full_after)
        written = len(buffer) - new + taken
        content.write(position, memoryview(buffer)[:written])
        if self._full_after is not None:
            self._full_after -= taken
        if written < len(buffer):
            raise OSError(errno.ENOSPC, "no space left on device")


class _SimFile:
    def __init__(self, files: SimFiles, content: _Content) -> None:
        self._files = files
        self._content = content
        self._position = 0
        self._is_closed = False
        self._has_failed_to_sync = False

    def write(self, buffers: Sequence[Buffer], trailer: Buffer = b"") -> None:
        assert not self._is_closed, "written after it was closed"
        self._files._wait("write")
        with self._files._disk.guard:
            self._files._check_alive()
            self._files.writes += 1
            position = self._position
            for buffer in (*buffers, trailer):
                self._files._take(self._content, position, buffer)
                position += len(buffer)
            self._position = position - len(trailer)

    def sync(self) -> None:
        assert not self._is_closed, "synced after it was closed"
        assert not self._has_failed_to_sync, "synced again after a sync that failed"
        self._files._wait("sync")
        with self._files._disk.guard:
            self._files._check_alive()
            self._files.syncs += 1
            if self._files._syncs_that_fail:
                self._files._syncs_that_fail -= 1
                self._has_failed_to_sync = True
                self._content.forget_dirty()
                raise OSError(errno.EIO, "input/output error")
            self._content.sync()

    def close(self) -> None:
        assert not self._is_closed, "closed twice"
        self._is_closed = True


class _SimLock:
    def __init__(self, disk: _Disk, path: Path, owner: SimFiles) -> None:
        self._disk = disk
        self._path = path
        self._owner = owner

    def release(self) -> None:
        if self._disk.locks.get(self._path) is self._owner:
            del self._disk.locks[self._path]
