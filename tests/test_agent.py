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


def test_listeners_that_others_reach_are_told_at_the_start_and_by_the_doctor(tmp_path: Path) -> None:
    said = "everybody on the network of gRPC 0.0.0.0:0 is an administrator"
    allow = ("--set", "security.allow_anonymous_network_access=true")
    with LiveAgent(tmp_path / "data", "--grpc", "0.0.0.0:0", *allow) as agent:
        lines = agent.output.splitlines()
        (logged,) = [line for line in lines if said in line and "WARNING:" not in line]
        assert "warning" in logged.lower()
        assert [line for line in lines if said in line and "WARNING:" in line]
        command = [sys.executable, "-m", "streamhouse", "doctor", "--json", "--http", agent.http]
        asked = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert asked.returncode == 1, asked.stderr
    (told,) = json.loads(asked.stdout)["agents"]
    (check,) = [each for each in told["checks"] if each["name"] == "exposure"]
    assert check["verdict"] == "warning"
    assert said in check["text"]
