"""A hook for a child process: what blocks is written down when it happens on a thread that runs an event loop.

Used as `sitecustomize` of an agent. Python tells audit hooks of files that are opened, folders, processes and name
lookups; of reads, writes, syncs, stats, sleeps and SQL it tells nobody, so those are replaced by calls that note
themselves.
"""

import builtins
import io
import os
import sqlite3
import sys
import time
import traceback
from asyncio import events
from collections.abc import Callable
from typing import Any, Final

BLOCKING: Final = ("open", "os.", "shutil.", "glob.", "sqlite3.", "subprocess.", "socket.getaddrinfo")
CALLS: Final = (
    *("read", "pread", "preadv", "readv", "write", "pwrite", "pwritev", "writev", "sendfile", "copy_file_range"),
    *("fsync", "fdatasync", "sync", "stat", "lstat", "fstat", "access", "ftruncate", "posix_fallocate"),
)
"""Functions of `os` that no audit hook hears of."""
DECIDED: Final = ("_write_inline",)
"""Functions that may block the loop for a moment: small writes of an idle disk WAL, by decision 0030."""
HARMLESS: Final = ("/proc/", "<frozen importlib")
"""Files that are no files; and what is imported on first use, once."""

Note = Callable[[str, tuple[object, ...]], None]


def watch(armed_path: str, found_path: str, *, ours: str = "/streamhouse/") -> None:
    """Note blocking calls below a frame of ours, one line each, from the moment that `armed_path` is there."""
    seen: set[str] = set()
    exists = os.path.exists
    inside = False

    def hook(event: str, args: tuple[object, ...]) -> None:
        nonlocal inside
        if inside or not event.startswith(BLOCKING) or events._get_running_loop() is None:
            return
        inside = True
        try:
            if exists(armed_path):
                note(event, args)
        finally:
            inside = False

    def note(event: str, args: tuple[object, ...]) -> None:
        stack = traceback.extract_stack(limit=40)
        words = [str(args), *(frame.filename for frame in stack)]
        frames = [frame for frame in stack if ours in frame.filename]
        if not frames or any(harmless in word for word in words for harmless in HARMLESS):
            return
        if any(frame.name in DECIDED for frame in frames):
            return
        line = f"{event} at {frames[-1].filename}:{frames[-1].lineno} in {frames[-1].name}\n"
        if line not in seen:
            seen.add(line)
            with open(found_path, "a") as result:
                result.write(line)

    sys.addaudithook(hook)
    replace_calls(hook)
    replace_files(hook)
    replace_sqlite(hook)


def replace_calls(note: Note) -> None:
    def noted(name: str, call: Callable[..., Any]) -> Callable[..., Any]:
        def instead(*args: Any, **named: Any) -> Any:
            note(f"os.{name}", args[:1])
            return call(*args, **named)

        return instead

    for name in CALLS:
        if (call := getattr(os, name, None)) is not None:
            setattr(os, name, noted(name, call))
    time.sleep = noted("sleep", time.sleep)
    # What looks whether one of these is supported, or is a method of a class, goes on as before.
    for supported in (os.supports_fd, os.supports_dir_fd, os.supports_follow_symlinks):
        supported |= {getattr(os, name) for name in CALLS if hasattr(os, name)}


def replace_files(note: Note) -> None:
    """Files that Python code opens: each of their own reads and writes of the disk is noted."""

    class NotedFile(io.FileIO):
        def write(self, data: Any) -> Any:
            note("os.write of a file", (self.name,))
            return super().write(data)

        def read(self, size: Any = -1) -> Any:
            note("os.read of a file", (self.name,))
            return super().read(size)

        def readinto(self, buffer: Any) -> Any:
            note("os.read of a file", (self.name,))
            return super().readinto(buffer)

        def readall(self) -> Any:
            note("os.read of a file", (self.name,))
            return super().readall()

    plain = io.open

    def opened(file: Any, mode: str = "r", buffering: int = -1, *args: Any, **named: Any) -> Any:
        if "b" not in mode or buffering == 1:
            return plain(file, mode, buffering, *args, **named)
        closefd, opener = named.get("closefd", True), named.get("opener")
        raw = NotedFile(file, mode.replace("b", ""), closefd=closefd, opener=opener)
        if buffering == 0:
            return raw
        size = io.DEFAULT_BUFFER_SIZE if buffering < 0 else buffering
        if "+" in mode:
            return io.BufferedRandom(raw, size)
        return io.BufferedReader(raw, size) if "r" in mode else io.BufferedWriter(raw, size)

    builtins.open = io.open = opened


def replace_sqlite(note: Note) -> None:
    class NotedCursor(sqlite3.Cursor):
        def execute(self, *args: Any) -> Any:
            note("sqlite3.execute", args[:1])
            return super().execute(*args)

        def executemany(self, *args: Any) -> Any:
            note("sqlite3.executemany", args[:1])
            return super().executemany(*args)

        def executescript(self, *args: Any) -> Any:
            note("sqlite3.executescript", args[:1])
            return super().executescript(*args)

    class NotedConnection(sqlite3.Connection):
        def cursor(self, factory: Any = NotedCursor) -> Any:
            return super().cursor(factory)

        def execute(self, *args: Any) -> Any:
            return self.cursor().execute(*args)

        def executemany(self, *args: Any) -> Any:
            return self.cursor().executemany(*args)

        def executescript(self, *args: Any) -> Any:
            return self.cursor().executescript(*args)

        def commit(self) -> None:
            note("sqlite3.commit", ())
            super().commit()

    plain = sqlite3.connect

    def connect(*args: Any, **named: Any) -> Any:
        return plain(*args, **{"factory": NotedConnection, **named})

    sqlite3.connect = connect
