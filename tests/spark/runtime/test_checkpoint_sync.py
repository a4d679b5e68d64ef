"""What a commit relies on is on the disk before it is made."""

import os
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamhouse.model.external_commit import QueryId
from streamhouse.spark.agents.commits import CommitClient, CommitRequest, CommitResult, RunRow, SegmentRow
from streamhouse.spark.datasource import data_writer
from streamhouse.spark.datasource.write_options import CommitId, WriteOptions
from streamhouse.spark.runtime import checkpoint_sync
from streamhouse.spark.runtime.checkpoint_sync import CheckpointSync, write_synced

OFFSETS = 'v1\n{"batchWatermarkMs":0}\n{"offsets":{"orders":{"0":17}}}'


class Disk:
    """Takes note of what is synced, below a folder."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.done: list[str] = []

    def fsync(self, opened: int) -> None:
        path = Path(os.readlink(f"/proc/self/fd/{opened}"))
        if path.is_relative_to(self._folder):
            self.done.append(str(path.relative_to(self._folder)))

    def since(self) -> list[str]:
        done, self.done = self.done, []
        return done


def write(folder: Path, names: Sequence[str]) -> None:
    for name in names:
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        made = folder / f"{name}.made"
        made.write_text(OFFSETS)
        made.rename(folder / name)


def test_everything_new_is_synced_with_its_folders(tmp_path: Path) -> None:
    disk, folder = Disk(tmp_path), tmp_path / "1"
    sync = CheckpointSync(disk.fsync)
    write(folder, ["metadata", "offsets/0", "sources/0/0", "state/0/0/1.zip", "state/0/0/SSTs/a.sst"])
    sync.sync(str(folder))
    done = disk.since()
    assert set(done) >= {"1/metadata", "1/offsets/0", "1/sources/0/0", "1/state/0/0/1.zip", "1/state/0/0/SSTs/a.sst"}
    assert set(done) >= {".", "1", "1/offsets", "1/state", "1/state/0/0", "1/state/0/0/SSTs"}
    assert done.index("1/offsets/0") < done.index("1/state/0/0/1.zip") < len(done)

    sync.sync(folder.as_uri())
    assert disk.since() == []
    write(folder, ["offsets/1", "commits/0", "state/0/0/2.zip", "offsets/.2.crc.tmp"])
    write(folder, ["state/0/0/1.zip"])  # written again, as by a micro-batch that comes again
    sync.sync(str(folder))
    done = disk.since()
    assert {each for each in done if "." in each or each[-1].isdigit()} >= {
        "1/offsets/1", "1/commits/0", "1/state/0/0/1.zip", "1/state/0/0/2.zip",
    }  # fmt: skip
    assert "1/offsets/0" not in done
    assert not any(each.endswith(".tmp") for each in done)
    assert done.index("1/offsets/1") < done.index("1/offsets")  # the name behind the content


def test_checkpoints_elsewhere_are_left_alone(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    for checkpoint in ("s3a://bucket/checkpoint", "hdfs:///checkpoint", str(tmp_path / "none")):
        CheckpointSync(disk.fsync).sync(checkpoint)
    assert disk.done == []


def test_a_disk_that_fails_is_reported_and_asked_again(tmp_path: Path) -> None:
    disk = Disk(tmp_path)
    write(tmp_path, ["offsets/0"])

    def fails(opened: int) -> None:
        if not disk.done:
            disk.done.append("failed")
            raise OSError(5, "Input/output error")
        disk.fsync(opened)

    sync = CheckpointSync(fails)
    with pytest.raises(OSError, match="Input/output"):
        sync.sync(str(tmp_path))
    sync.sync(str(tmp_path))
    assert "offsets/0" in disk.done


def test_a_commit_to_a_topic_comes_behind_the_sync(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk = Disk(tmp_path)
    write(tmp_path, ["metadata", "offsets/3", "commits/2", "state/0/0/4.zip"])

    async def commit(self: CommitClient, commit: CommitRequest, *, timeout_s: float) -> CommitResult:
        disk.done.append(f"commit covers={commit.covers}")
        return CommitResult(placed=[], replayed=False)

    monkeypatch.setattr(checkpoint_sync, "_SYNC", CheckpointSync(disk.fsync))
    monkeypatch.setattr(CommitClient, "commit", commit)
    monkeypatch.setattr(data_writer, "fitting_segments", lambda options, identity, segments: segments)
    row = RunRow(
        topic="orders", partition=0, records=1, stored_base=0, stored_end=1, position=0, length=1, index_position=0,
        index_length=1, max_timestamp_ms=0,
    )  # fmt: skip
    written = data_writer.TaskCommit(CommitId(QueryId("q"), 3), (SegmentRow("key", 1, 0, (row,)),))
    options = WriteOptions(agents="127.0.0.1:1", topic="orders", checkpoint=str(tmp_path))
    data_writer.commit_segments(options, [written])
    assert disk.done[-1] == 'commit covers={"offsets":{"orders":{"0":17}}}'
    assert set(disk.done[:-1]) >= {"offsets/3", "offsets", "commits/2", "state/0/0/4.zip", "metadata"}


def test_a_small_file_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    disk, path = Disk(tmp_path), tmp_path / "a" / "metadata"
    monkeypatch.setattr(os, "fsync", disk.fsync)
    write_synced(path, "one")
    assert disk.since()[:2] == ["a/.metadata.making", "a"]
    (tmp_path / "a" / ".metadata.crc").write_text("of one")
    write_synced(path, "two")
    assert path.read_text() == "two"
    assert [each.name for each in path.parent.iterdir()] == ["metadata"]
