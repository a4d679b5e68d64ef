"""wal inspect."""

import json
import uuid
from pathlib import Path

import pytest

from streamhouse.format.wal import FileHeader, WalEntry, encode_entry, encode_file_header
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from tests.cli.conftest import Run

TOPIC = TopicId(uuid.UUID(int=5))
MARK = b"12345678"


def wal_bytes(entries: int, sequence: int = 1) -> bytes:
    data = bytearray(encode_file_header(FileHeader(session=SessionId("s-abc"), sequence=sequence, mark=MARK)))
    for number in range(entries):
        entry = WalEntry(PartitionId(TOPIC, number % 2), Epoch(4), number * 10, number * 10 + 10, b"x" * 100)
        data += b"".join(map(bytes, encode_entry(entry, mark=MARK, position=len(data))))
    return bytes(data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    session = tmp_path / "wal" / "s-abc"
    session.mkdir(parents=True)
    (session / "00000000000000000001.wal").write_bytes(wal_bytes(4, 1))
    (session / "00000000000000000002.wal").write_bytes(wal_bytes(1, 2))
    (session / "lock").write_bytes(b"")
    return tmp_path / "wal"


def test_files_are_shown_with_entries_and_ranges(run: Run, folder: Path) -> None:
    result = run("wal", "inspect", str(folder))
    assert result.exit_code == 0
    lines = result.stdout.splitlines()
    assert "session  s-abc, file 1" in lines
    assert "session  s-abc, file 2" in lines
    assert "entries  4" in lines
    assert lines.count("damage   none") == 2
    rows = [line.split() for line in lines if line.strip().startswith(str(TOPIC))]
    assert rows[0] == [str(TOPIC), "0", "[0,", "30)", "4", "2", "200", "B"]
    assert rows[1] == [str(TOPIC), "1", "[10,", "40)", "4", "2", "200", "B"]


def test_a_file_as_json(run: Run, folder: Path) -> None:
    (told,) = json.loads(run("wal", "inspect", str(next(folder.rglob("*1.wal"))), "--json").stdout)["files"]
    assert (told["session"], told["sequence"], told["entries"], told["damage"]) == ("s-abc", 1, 4, [])
    assert told["partitions"][0] == {
        "topic_id": str(TOPIC),
        "partition": 0,
        "epoch": 4,
        "base": 0,
        "end": 30,
        "entries": 2,
        "bytes": 200,
    }


def test_a_torn_tail_is_shown_and_is_no_failure(run: Run, folder: Path) -> None:
    path = next(folder.rglob("*1.wal"))
    path.write_bytes(path.read_bytes()[:-10])
    result = run("wal", "inspect", str(path))
    assert result.exit_code == 0
    assert "damage   1 place" in result.stdout
    assert "torn tail" in result.stdout
    assert "entries  3" in result.stdout


def test_damage_in_the_middle_is_a_failure(run: Run, folder: Path) -> None:
    path = next(folder.rglob("*1.wal"))
    data = bytearray(path.read_bytes())
    data[-200] ^= 1
    path.write_bytes(data)
    result = run("wal", "inspect", str(folder))
    assert result.exit_code == 1
    assert "DAMAGED" in result.stdout
    assert str(path) in result.stderr


def test_an_empty_folder_has_no_files(run: Run, tmp_path: Path) -> None:
    assert run("wal", "inspect", str(tmp_path)).stdout == f"no WAL files in {tmp_path}\n"
    assert json.loads(run("wal", "inspect", str(tmp_path), "--json").stdout) == {"files": []}
