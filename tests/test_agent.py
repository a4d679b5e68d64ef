"""Whole agents in processes of their own: who may start where."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.support.agent import LiveAgent


def test_a_second_agent_on_the_same_metadata_store_is_refused_and_harms_nobody(tmp_path: Path) -> None:
    shared = ("--metadata", f"sqlite:///{tmp_path}/shared.db", "--store", f"file://{tmp_path}/objects")
    with LiveAgent(tmp_path / "first", *shared) as first:
        second = LiveAgent(tmp_path / "second", *shared)
        with pytest.raises(AssertionError, match="another agent uses this SQLite database"):
            second.start()
        assert first.stop() == 0


def test_an_agent_that_was_killed_comes_back_at_once_on_a_metadata_store_of_its_own(tmp_path: Path) -> None:
    with LiveAgent(tmp_path / "data", "--metadata", f"sqlite:///{tmp_path}/facts.db") as agent:
        agent.kill()
        agent.start()


def test_what_is_open_to_others_is_told_at_the_start_and_by_the_doctor(tmp_path: Path) -> None:
    exposed = "everybody on the network of gRPC 0.0.0.0:0 may do what access rules allow User:ANONYMOUS"
    nameable = "whose claim email is the name of a super user (User:ANONYMOUS)"
    settings = {
        "allow_anonymous_network_access": "true",
        "authorization": "acls",
        "super_users": "User:ANONYMOUS,Group:ops",
        "oauth_issuer": "https://127.0.0.1:1",
        "oauth_jwks_url": "https://127.0.0.1:1/keys",
        "oauth_audience": "streamhouse",
        "oauth_principal_claim": "email",
    }
    options = [part for name, value in settings.items() for part in ("--set", f"security.{name}={value}")]
    with LiveAgent(tmp_path / "data", "--grpc", "0.0.0.0:0", *options) as agent:
        lines = agent.output.splitlines()
        (logged,) = [line for line in lines if exposed in line and "WARNING:" not in line]
        assert "warning" in logged.lower()
        assert [line for line in lines if exposed in line and "WARNING:" in line]
        assert [line for line in lines if nameable in line and "warning" in line.lower()]
        command = [sys.executable, "-m", "streamhouse", "doctor", "--json", "--http", agent.http]
        request = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert request.returncode == 1, request.stderr
    (result,) = json.loads(request.stdout)["agents"]
    checks = {each["name"]: each for each in result["checks"]}
    for name, said in {"exposure": exposed, "super users": nameable}.items():
        assert checks[name]["verdict"] == "warning"
        assert said in checks[name]["text"]


STARTED = """
import os, signal, socket, struct, sys, threading
from streamhouse.cli.commands import agent
from streamhouse.cli.main import app

def ask(address):
    with socket.create_connection(tuple(address)) as connection:
        metadata = struct.pack(">hhih1si", 3, 1, 1, 1, b"a", 0)
        connection.sendall(struct.pack(">i", len(metadata)) + metadata)
        assert len(connection.recv(65_536)) > 4
    print("modules:", *sys.modules, flush=True)
    os.kill(os.getpid(), signal.SIGTERM)

agent.show_ready = lambda ready, settings: threading.Thread(target=ask, args=(ready.kafka,)).start()
app(["up", "--data", sys.argv[1], "--kafka", "127.0.0.1:0", "--http", "127.0.0.1:0", "--grpc", ""])
"""
NOT_AT_START = {
    *("aiokafka", "asyncpg", "click", "cramjam", "cryptography", "google", "grpc", "h11", "httpcore", "httpx"),
    *("jsonschema_rs", "obstore", "pydantic", "pygments", "pyspark", "rich", "starlette", "uvicorn", "zstandard"),
    "streamhouse.cli.commands.topics",
    "streamhouse.client.kafka_admin",
    "streamhouse.schemas.avro",
    "streamhouse.schemas.json_schema",
    "streamhouse.schemas.protobuf",
    "streamhouse.spark",
    "streamhouse.stores.metadata.postgres",
    "streamhouse.stores.objects.remote",
    "streamhouse.wire.grpc",
    "streamhouse.wire.http.app",
    "streamhouse.wire.http.openapi",
    "streamhouse.wire.http.server",
}


def test_nothing_is_imported_before_it_is_needed(tmp_path: Path) -> None:
    """An agent with a folder and SQLite, until it has answered its first Metadata request."""
    command = [sys.executable, "-c", STARTED, str(tmp_path / "data")]
    ended = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    (line,) = [each for each in ended.stdout.splitlines() if each.startswith("modules: ")]
    imported = set(line.split()[1:])
    assert "streamhouse.wire.kafka.server" in imported
    assert imported & NOT_AT_START == set(), "import these where they are used first, or in a thread"
