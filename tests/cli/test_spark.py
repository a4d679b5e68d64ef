"""spark: arguments go to Spark as they were typed, and the settings are printed for people and for programs."""

import json

import pytest

from streamhouse.spark.runtime.launch import spark_settings
from tests.cli.conftest import Run
from tests.cli.fakes import World

USUAL = "127.0.0.1:8080"


@pytest.mark.parametrize("kind", ["shell", "submit", "pipelines"])
def test_what_is_not_ours_goes_to_spark_as_it_was_typed(run: Run, world: World, kind: str) -> None:
    typed = ["--master", "local[2]", "--conf", "a=b c", "job.py", "--agents", "mine", "--help", "-v"]
    assert run("spark", kind, *typed).exit_code == 0
    assert world.spark == (kind, typed, USUAL)


def test_agents_are_ours_when_they_come_first(run: Run, world: World) -> None:
    assert run("spark", "submit", "--agents", "a:1, http://b:2/", "job.py").exit_code == 0
    assert world.spark == ("submit", ["job.py"], "a:1,b:2")


def test_agents_come_from_the_environment_else_from_the_settings(run: Run, world: World) -> None:
    run("spark", "shell", env={"STREAMHOUSE_AGENTS": "c:3"})
    assert world.spark == ("shell", [], "c:3")
    run("spark", "shell", env={"STREAMHOUSE_HTTP_LISTEN": "0.0.0.0:18080"})
    assert world.spark == ("shell", [], "127.0.0.1:18080")


@pytest.mark.parametrize(("typed", "said"), [((), "name a program"), (("--agents", "nowhere", "x.py"), "'nowhere'")])
def test_what_can_not_be_meant_is_refused(run: Run, world: World, typed: tuple[str, ...], said: str) -> None:
    result = run("spark", "submit", *typed)
    assert result.exit_code == 2
    assert said in result.stderr
    assert world.spark is None


def test_the_settings_are_lines_of_sparks_own_file(run: Run) -> None:
    lines = run("spark", "config").stdout.splitlines()
    assert dict(line.split(" ", 1) for line in lines if not line.startswith("#")) == spark_settings()


def test_the_settings_are_json_for_programs(run: Run) -> None:
    assert json.loads(run("spark", "config", "--agents", "a:1", "--json").stdout) == spark_settings("a:1")
