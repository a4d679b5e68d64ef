"""wal inspect, wal damaged, wal discard."""

import json
import uuid
from pathlib import Path

import httpx
import pytest

from streamhouse.format.wal_file import FileHeader, WalEntry, encode_entry, encode_file_header
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from tests.cli.conftest import Run
from tests.cli.fakes import World

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
    (result,) = json.loads(run("wal", "inspect", str(next(folder.rglob("*1.wal"))), "--json").stdout)["files"]
    assert (result["session"], result["sequence"], result["entries"], result["damage"]) == ("s-abc", 1, 4, [])
    assert result["partitions"][0] == {
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
    assert "damage   1 range" in result.stdout
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


# --- damaged logs

SESSION = "s-" + "a" * 32
LOG = {
    "session": SESSION,
    "kind": "object",
    "where": f"wal/{SESSION}/",
    "files": 76,
    "bytes": 1000,
    "loss": True,
    "found_at_ms": 1_700_000_000_000,
    "losses": 1,
    "places": ["10@missing"],
    "partitions": [
        {
            "topic": "orders",
            "topic_id": str(TOPIC),
            "partition": 0,
            "epoch": 3,
            "gaps": [[30, 33]],
            "skipped": [],
            "unpublished": [],
        }
    ],
}


@pytest.fixture
def deleted(world: World) -> list[str]:
    results: list[str] = []

    def delete(request: httpx.Request) -> httpx.Response:
        results.append(f"{request.method} {request.url.path}")
        return httpx.Response(200, json={"files": 77})

    world.http["/v1/damaged-logs"] = lambda request: httpx.Response(200, json={"logs": [LOG]})
    world.http[f"/v1/damaged-logs/{SESSION}"] = delete
    return results


def test_damaged_logs_are_shown_with_what_was_lost(run: Run, deleted: list[str]) -> None:
    text = run("wal", "damaged").stdout
    assert SESSION in text
    assert "10@missing" in text
    assert "[30, 33)" in text
    assert json.loads(run("wal", "damaged", "--json").stdout) == {"logs": [LOG]}


def test_a_damaged_log_is_discarded_after_its_contents_were_shown_and_confirmed(run: Run, deleted: list[str]) -> None:
    refused = run("wal", "discard", SESSION, stdin="n\n")
    assert refused.exit_code != 0
    assert "[30, 33)" in refused.stdout
    assert deleted == []
    assert run("wal", "discard", SESSION, stdin="y\n").exit_code == 0
    assert json.loads(run("wal", "discard", SESSION, "--yes", "--json").stdout) == {"session": SESSION, "files": 77}
    assert deleted == [f"DELETE /v1/damaged-logs/{SESSION}"] * 2
