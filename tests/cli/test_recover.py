"""`streamhouse recover` and refusals of `streamhouse up`, with real agents on a folder whose database is exchanged."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

from tests.support.agent import LiveAgent, _clean_environment

LIMIT_S = 60


def run(*args: str, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "streamhouse", *args]
    return subprocess.run(
        command, input=stdin, capture_output=True, text=True, timeout=LIMIT_S, env=_clean_environment()
    )


def produce(agent: LiveAgent, *values: str) -> None:
    done = run("produce", "orders", "-b", agent.bootstrap, stdin="".join(f"{value}\n" for value in values))
    assert done.returncode == 0, done.stderr


def consumed(agent: LiveAgent) -> list[tuple[int, str]]:
    done = run("consume", "orders", "--from-beginning", "--json", "-b", agent.bootstrap)
    assert done.returncode == 0, done.stderr
    records = [json.loads(line) for line in done.stdout.splitlines()]
    return [(record["offset"], record["value"]) for record in records]


def up(data: Path) -> "subprocess.CompletedProcess[str]":
    return run("up", "--data", str(data), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "")


def files_below(folder: Path) -> dict[str, bytes]:
    return {
        str(path.relative_to(folder)): path.read_bytes()
        for path in folder.rglob("*")
        if path.is_file() and not {"proof", "~uploads"} & {*path.parts}
    }


def test_an_older_database_and_a_lost_one_are_refused_and_recovered(tmp_path: Path) -> None:
    data, kept = tmp_path / "data", tmp_path / "kept.db"
    agent = LiveAgent(data, "--set", "flush.age_s=0.2", "--set", "flush.check_s=0.1")
    first, second, third = ["a1", "a2"], [f"b{number}" for number in range(50)], ["c1", "c2", "c3"]
    with agent:
        assert run("topics", "create", "orders", "-b", agent.bootstrap).returncode == 0
        produce(agent, *first)
    shutil.copy(data / "metadata.db", kept)
    with agent:
        produce(agent, *second)
    agent.start()
    produce(agent, *third)
    agent.kill()
    sent = list(enumerate([*first, *second, *third]))

    for database in (kept, None):
        for path in data.glob("metadata.db*"):
            path.unlink()
        if database is not None:
            shutil.copy(database, data / "metadata.db")
        before = files_below(data / "objects")
        refused = up(data)
        assert refused.returncode == 2
        words = "is older than the object store" if database is not None else "the metadata database is empty"
        assert words in refused.stderr
        assert "streamhouse recover" in refused.stderr
        assert files_below(data / "objects") == before

        preview = run("recover", "--data", str(data))
        assert preview.returncode == 0, preview.stderr
        assert "nothing was changed" in preview.stdout
        assert files_below(data / "objects") == before
        applied = run("recover", "--data", str(data), "--apply", "--json")
        assert applied.returncode == 0, applied.stderr
        report = json.loads(applied.stdout)
        assert report["is_applied"]
        assert files_below(data / "objects").items() >= before.items()
        with agent:
            assert consumed(agent) == sent


def test_a_running_agent_keeps_its_folder_to_itself(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data"):
        refused = run("recover", "--data", str(tmp_path / "data"), "--apply")
        assert refused.returncode == 2
        assert "another agent uses the data folder" in refused.stderr
