"""The command line against a real agent in a process of its own."""

import json
import os
import signal
import subprocess
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.main import app

LIMIT_S = 30


@dataclass(frozen=True, slots=True, kw_only=True)
class Agent:
    process: subprocess.Popen[str]
    data: Path
    kafka: str
    http: str

    def stop(self, number: int = signal.SIGINT) -> tuple[int, str, str]:
        self.process.send_signal(number)
        out, err = self.process.communicate(timeout=LIMIT_S)
        return self.process.returncode, out, err


def command(*args: str) -> list[str]:
    return [sys.executable, "-m", "streamhouse", *args]


def environment() -> dict[str, str]:
    return {name: value for name, value in os.environ.items() if not name.startswith("STREAMHOUSE_")}


def start(data: Path, *more: str) -> Agent:
    """An agent on free ports, which it prints."""
    process = subprocess.Popen(
        command("up", "--data", str(data), "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "", *more),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env=environment(),
    )
    assert process.stdout is not None
    facts: dict[str, str] = {}
    for line in process.stdout:
        name, _, value = line.strip().partition(" ")
        facts[name] = value.strip()
        if name == "curl":
            break
    if "Kafka" not in facts:
        raise AssertionError(process.communicate(timeout=LIMIT_S))
    return Agent(process=process, data=data, kafka=facts["Kafka"], http=facts["HTTP"].removeprefix("http://"))


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    started = start(tmp_path_factory.mktemp("live") / "data", "--set", "flush.age_s=0.1", "--set", "flush.check_s=0.05")
    yield started
    if started.process.poll() is None:
        started.stop()


Live = Callable[..., Result]


@pytest.fixture
def live(agent: Agent) -> Live:
    def invoke(*args: str, stdin: str | bytes | None = None) -> Result:
        env = {"STREAMHOUSE_KAFKA_LISTEN": agent.kafka, "STREAMHOUSE_HTTP_LISTEN": agent.http}
        return CliRunner().invoke(app, list(args), input=stdin, env=env, prog_name="streamhouse")

    return invoke


def output_of(result: Result) -> str:
    """Standard output of a command that went well."""
    assert (result.exit_code, result.stderr) == (0, "")
    return result.stdout


def test_the_life_of_a_topic(live: Live) -> None:
    assert output_of(live("topics", "create", "life", "-p", "3", "-c", "retention.ms=1000000")) == (
        "created life with 3 partitions\n"
    )
    assert live("topics", "create", "life").stderr == "error: topic already exists; name=life\n"
    assert {"name": "life", "partitions": 3, "internal": False} in json.loads(
        output_of(live("topics", "list", "--json"))
    )
    described = json.loads(output_of(live("topics", "describe", "life", "--json")))
    assert [(p["partition"], p["start"], p["end"]) for p in described["partitions"]] == [
        (0, 0, 0),
        (1, 0, 0),
        (2, 0, 0),
    ]
    assert all(p["epoch"] > 0 for p in described["partitions"])
    assert (described["bytes"], described["first_ms"], described["configs"]["retention.ms"]) == (0, None, "1000000")
    assert output_of(live("topics", "delete", "life", "--yes")) == "deleted life\n"
    assert live("topics", "describe", "life").exit_code == 1


def test_a_topic_is_altered_while_it_is_used(live: Live) -> None:
    output_of(live("topics", "create", "changing", "-c", "retention.ms=1000000"))
    output_of(live("produce", "changing", "x" * 300))
    altered = live(
        "topics", "alter", "changing", "-p", "2", "-c", "max.message.bytes=200", "--delete-config", "retention.ms"
    )
    assert output_of(altered) == "altered changing: 2 partitions, max.message.bytes=200\n"
    assert "too large" in live("produce", "changing", "x" * 300).stderr
    described = json.loads(output_of(live("topics", "describe", "changing", "--json")))
    assert [(p["end"] - p["start"], p["bytes"] > 0) for p in described["partitions"]] == [(1, True), (0, False)]
    assert described["bytes"] > 0
    assert described["first_ms"] == described["last_ms"] > 1_700_000_000_000
    assert described["configs"]["max.message.bytes"] == "200"
    refused = live("topics", "alter", "changing", "-c", "retention.ms=soon")
    assert refused.stderr.startswith("error: topic setting has a bad value; name=retention.ms value='soon'")
    assert "has=2 requested=2" in live("topics", "alter", "changing", "-p", "2").stderr


def test_a_bad_topic_is_refused_in_words(live: Live) -> None:
    assert "allowed=[A-Za-z0-9._-]" in live("topics", "create", "a b").stderr
    assert "unknown topic setting; name='colour'" in live("topics", "create", "x", "-c", "colour=red").stderr


def test_partitions_default_to_the_agents_setting(live: Live) -> None:
    assert output_of(live("topics", "create", "one")) == "created one with 1 partition\n"


@pytest.mark.parametrize("compression", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_what_is_produced_is_consumed(live: Live, compression: str) -> None:
    topic = f"round-{compression}"
    lines = "".join(f"key-{n}:value {n} é\n" for n in range(2000))
    summary = output_of(live("produce", topic, "-K", ":", "-H", "a=1", "-z", compression, stdin=lines))
    assert summary.startswith(
        f"2,000 records, {sum(len(s.encode()) - 2 for s in lines.splitlines(True)) / 1024:.1f} KiB"
    )
    assert sorted(output_of(live("consume", topic)).splitlines()) == sorted(f"value {n} é" for n in range(2000))
    first = json.loads(output_of(live("consume", topic, "-n", "1", "--json")))
    assert (first["key"], first["value"], first["headers"]) == ("key-0", "value 0 é", [{"key": "a", "value": "1"}])
    assert first["offset"] == 0


@pytest.mark.parametrize("acks", ["0", "1", "all"])
def test_every_acknowledgement_works(live: Live, acks: str) -> None:
    output_of(live("produce", f"acks-{acks}", "v", "--acks", acks))
    assert output_of(live("consume", f"acks-{acks}", "--follow", "-n", "1", "--from-beginning")) == "v\n"


def test_bytes_and_nulls_survive(live: Live, tmp_path: Path) -> None:
    file = tmp_path / "bytes"
    file.write_bytes(b"k\t\x00\xff\r\nk\tNIL\n\tlast")
    output_of(live("produce", "bytes", "--file", str(file), "-K", r"\t", "--null", "NIL"))
    records = [json.loads(line) for line in output_of(live("consume", "bytes", "--json")).splitlines()]
    assert [(r["key"], r.get("value", r.get("value_base64"))) for r in records] == [
        ("k", "AP8N"),
        ("k", None),
        ("", "last"),
    ]


def test_reading_starts_at_the_given_offset(live: Live) -> None:
    output_of(live("produce", "starts", "a", "b", "c"))
    assert output_of(live("consume", "starts", "--offset", "1")) == "b\nc\n"
    assert output_of(live("consume", "starts", "--offset", "-1")) == "c\n"
    assert output_of(live("consume", "starts", "--from-time", "-1h")) == "a\nb\nc\n"
    assert output_of(live("consume", "starts", "--from-time", "2100-01-01")) == ""
    assert "start=0 end=3" in live("consume", "starts", "--offset", "9").stderr


def test_a_record_that_is_too_large_is_named(live: Live) -> None:
    result = live("produce", "large", "small", "x" * 2_000_000, "small")
    assert result.exit_code == 1
    assert "record 2 failed: " in result.stderr
    assert "1 record of 3 failed" in result.stderr
    assert output_of(live("consume", "large")) == "small\nsmall\n"


def test_records_behind_refused_ones_are_stored_in_order(live: Live) -> None:
    lines = "".join(f"{'x' * 1_200_000 if n % 50 == 7 else n}\n" for n in range(200))
    result = live("produce", "mixed", stdin=lines)
    assert result.exit_code == 1
    assert "4 records of 200 failed" in result.stderr
    assert output_of(live("consume", "mixed")).split() == [str(n) for n in range(200) if n % 50 != 7]


def test_segments_are_listed_and_their_files_can_be_inspected(live: Live, agent: Agent) -> None:
    output_of(live("produce", "segments", "a", "b", "c"))
    segments: list[dict[str, object]] = []
    while not segments:  # the flush is due a tenth of a second later; the test's own time limit bounds this
        segments = json.loads(output_of(live("segments", "list", "--topic", "segments", "--json")))["segments"]
    assert [(s["topic"], s["base"], s["end"], s["records"]) for s in segments] == [("segments", 0, 3, 3)]
    inspected = json.loads(
        output_of(live("segments", "inspect", f"{agent.data}/objects/{segments[0]['object']}", "--json"))
    )
    assert [(run["base"], run["end"], run["records"]) for run in inspected["runs"] if run["base"] == 0]
    assert all(block["ok"] for run in inspected["runs"] for block in run["blocks"])


def test_an_unknown_topic_has_no_segments(live: Live) -> None:
    assert "name=never" in live("segments", "list", "--topic", "never").stderr


def test_the_wal_can_be_inspected_while_it_is_written(live: Live, agent: Agent) -> None:
    output_of(live("produce", "logged", "a"))
    files = json.loads(output_of(live("wal", "inspect", str(agent.data / "wal"), "--json")))["files"]
    assert files
    assert not [damage for file in files for damage in file["damage"] if not damage["tail"]]


def test_a_follower_sees_new_records_and_stops_cleanly_at_ctrl_c(live: Live, agent: Agent) -> None:
    output_of(live("topics", "create", "followed"))
    args = command("consume", "followed", "--follow", "--from-beginning", "-b", agent.kafka)
    follower = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment()
    )
    assert follower.stdout is not None
    for value in ("first", "second"):
        output_of(live("produce", "followed", value))
        assert follower.stdout.readline() == f"{value}\n"
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=LIMIT_S)
    assert (follower.returncode, out, err) == (0, "", "")


def test_a_reader_that_goes_away_is_no_error_text(live: Live, agent: Agent) -> None:
    output_of(live("produce", "piped", stdin="\n".join("x" * 100 for _ in range(20_000))))
    reader = subprocess.run(
        f"{' '.join(command('consume', 'piped', '-b', agent.kafka))} | head -n 1",
        shell=True,
        capture_output=True,
        text=True,
        env=environment(),
        timeout=LIMIT_S,
        check=False,
    )
    assert (reader.stdout, reader.stderr) == ("x" * 100 + "\n", "")


def test_the_shell_completes_topic_names(live: Live, agent: Agent) -> None:
    output_of(live("topics", "create", "completed-one"))
    output_of(live("topics", "create", "completed-two"))
    words = {
        "_STREAMHOUSE_COMPLETE": "complete_bash",
        "COMP_WORDS": "streamhouse consume completed-",
        "COMP_CWORD": "2",
    }
    env = environment() | words | {"STREAMHOUSE_KAFKA_LISTEN": agent.kafka}
    shell = subprocess.run(command(), capture_output=True, text=True, env=env, timeout=LIMIT_S, check=False)
    assert shell.stdout.split() == ["completed-one", "completed-two"]
    env["STREAMHOUSE_KAFKA_LISTEN"] = "127.0.0.1:1"
    shell = subprocess.run(command(), capture_output=True, text=True, env=env, timeout=LIMIT_S, check=False)
    assert (shell.stdout.strip(), shell.stderr) == ("", "")


def refused(*args: str) -> str:
    result = subprocess.run(
        command("up", *args), capture_output=True, text=True, env=environment(), timeout=LIMIT_S, check=False
    )
    assert result.returncode == 2
    assert result.stdout == ""
    assert result.stderr.startswith("error: ")
    assert result.stderr.count("\n") == 1
    return result.stderr


def test_a_folder_or_port_in_use_is_said_in_one_line(agent: Agent, tmp_path: Path) -> None:
    free = ("--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", "127.0.0.1:0")
    said = refused("--data", str(agent.data), *free)
    assert str(agent.data) in said
    assert "--data" in said
    said = refused("--data", str(tmp_path / "a"), *free, "--kafka", agent.kafka)
    assert agent.kafka in said
    assert "--kafka" in said
    said = refused("--data", str(tmp_path / "b"), *free, "--http", agent.http)
    assert agent.http in said
    assert "--http" in said
    said = refused("--data", str(tmp_path / "c"), *free, "--grpc", agent.kafka)
    assert agent.kafka in said
    assert "--grpc" in said


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_stopped_agent_goes_on_where_it_was(tmp_path: Path, number: signal.Signals) -> None:
    first = start(tmp_path / "data")
    args = command("produce", "kept", "a", "b", "-b", first.kafka)
    subprocess.run(args, check=True, capture_output=True, env=environment(), timeout=LIMIT_S)
    code, out, _ = first.stop(number)
    assert (code, out.splitlines()[-1]) == (0, "stopped")
    gone = subprocess.run(args, capture_output=True, text=True, env=environment(), timeout=LIMIT_S, check=False)
    assert gone.returncode == 1
    assert gone.stderr == f"error: no agent answers on {first.kafka}; start one with: streamhouse up\n"
    second = start(tmp_path / "data")
    read = command("consume", "kept", "-b", second.kafka)
    result = subprocess.run(read, check=True, capture_output=True, text=True, env=environment(), timeout=LIMIT_S)
    assert result.stdout == "a\nb\n"
    assert second.stop(number)[0] == 0


@pytest.mark.parametrize("acks", ["1", "all"])
def test_producing_ends_with_an_error_when_the_agent_dies(tmp_path: Path, acks: str) -> None:
    doomed = start(tmp_path / "data")
    args = command("produce", "doomed", "--acks", acks, "--timeout", "1", "-b", doomed.kafka)
    producer = subprocess.Popen(
        args, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env=environment()
    )
    assert producer.stdin is not None
    producer.stdin.write("before\n")
    producer.stdin.flush()
    read = command("consume", "doomed", "--follow", "--from-beginning", "-n", "1", "-b", doomed.kafka)
    while (
        subprocess.run(read, capture_output=True, env=environment(), timeout=LIMIT_S, check=False).stdout != b"before\n"
    ):
        pass  # until the topic is there
    doomed.process.kill()
    doomed.process.communicate(timeout=LIMIT_S)
    out, err = producer.communicate("after\n", timeout=LIMIT_S)
    assert producer.returncode == 1
    assert out.startswith("1 record, 6 B to doomed")
    assert err.splitlines() == [
        f"error: record 2 failed: no agent answers on {doomed.kafka}; start one with: streamhouse up",
        "error: 1 record of 2 failed",
    ]
