"""The disk cache's folder: whole files or none, one agent per folder, and no other program's files are touched."""

import errno
import os
from pathlib import Path

import pytest

from streamhouse.broker.segments.disk_cache_files import LocalCacheDirectory
from streamhouse.stores.local_files import LocalFiles, LockedError

NAME = "a.block"


@pytest.fixture
def folder(tmp_path: Path) -> LocalCacheDirectory:
    made = LocalCacheDirectory(tmp_path / "deep" / "cache")
    made.take()
    return made


def blocks(tmp_path: Path) -> Path:
    return tmp_path / "deep" / "cache" / "blocks"


def test_what_was_written_is_read_up_to_the_limit(folder: LocalCacheDirectory) -> None:
    folder.write(NAME, [b"one ", memoryview(b"two")])
    assert folder.read(NAME, 100) == b"one two"
    assert folder.read(NAME, 3) == b"one"
    folder.write(NAME, [b"three"])
    assert folder.read(NAME, 100) == b"three"
    folder.remove(NAME)
    folder.remove(NAME)
    with pytest.raises(FileNotFoundError):
        folder.read(NAME, 100)


def test_a_write_that_fails_leaves_nothing_behind(
    folder: LocalCacheDirectory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(self: Path, target: Path) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(Path, "rename", fail)
    with pytest.raises(OSError, match="Input/output"):
        folder.write(NAME, [b"data"])
    assert list(blocks(tmp_path).iterdir()) == []


def test_listing_shows_whole_files_with_sizes_and_tidies_up_the_others(
    folder: LocalCacheDirectory, tmp_path: Path
) -> None:
    folder.write(NAME, [b"12345"])
    (blocks(tmp_path) / "b.block.new").write_bytes(b"half")
    (blocks(tmp_path) / "notes.txt").write_bytes(b"somebody's")
    assert [(file.name, file.size_bytes) for file in folder.list()] == [(NAME, 5)]
    assert sorted(path.name for path in blocks(tmp_path).iterdir()) == [NAME, "notes.txt"]


def test_reading_a_file_makes_it_the_most_recently_used(folder: LocalCacheDirectory, tmp_path: Path) -> None:
    for name in ("a.block", "b.block"):
        folder.write(name, [b"data"])
        os.utime(blocks(tmp_path) / name, (1, 1))
    folder.read("a.block", 10)
    used = {file.name: file.used_at_ns for file in folder.list()}
    assert used["a.block"] > used["b.block"] == 1_000_000_000


def test_two_never_share_a_folder_and_a_released_one_can_be_taken(folder: LocalCacheDirectory, tmp_path: Path) -> None:
    second = LocalCacheDirectory(tmp_path / "deep" / "cache")
    with pytest.raises(LockedError):
        second.take()
    folder.release()
    second.take()
    second.release()


def test_nobody_else_can_read_what_is_cached(folder: LocalCacheDirectory, tmp_path: Path) -> None:
    folder.write(NAME, [b"records"])
    assert (blocks(tmp_path) / NAME).stat().st_mode & 0o077 == 0
    assert blocks(tmp_path).stat().st_mode & 0o077 == 0


def test_it_may_be_an_agents_data_folder(tmp_path: Path) -> None:
    files = LocalFiles()
    (tmp_path / "lock").touch()
    held = files.lock(tmp_path / "lock")
    folder = LocalCacheDirectory(tmp_path)
    folder.take()
    folder.release()
    held.release()
