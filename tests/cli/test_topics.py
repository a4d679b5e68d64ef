"""topics create, list, describe, delete."""

import json

from tests.cli.conftest import Run
from tests.cli.fakes import World


def test_a_topic_is_created_with_partitions_and_settings(run: Run, world: World) -> None:
    result = run("topics", "create", "orders", "--partitions", "3", "--config", "retention.ms=1000", "-c", "a=b=c")
    assert result.exit_code == 0
    assert result.stdout == "created orders with 3 partitions\n"
    assert world.topics == {"orders": 3}
    assert world.configs["orders"] == {"retention.ms": "1000", "a": "b=c"}


def test_without_partitions_the_agent_chooses(run: Run, world: World) -> None:
    assert run("topics", "create", "orders").stdout == "created orders with 1 partition\n"


def test_creation_as_json(run: Run) -> None:
    result = run("topics", "create", "orders", "-p", "2", "--json")
    assert json.loads(result.stdout) == {"name": "orders", "partitions": 2, "configs": {}}


def test_a_topic_that_is_there_is_not_created_again(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    result = run("topics", "create", "orders")
    assert (result.exit_code, result.stderr) == (1, "error: topic already exists; name=orders\n")


def test_a_bad_topic_setting_is_refused_in_the_agents_words(run: Run) -> None:
    result = run("topics", "create", "orders", "--config", "bad=1")
    assert (result.exit_code, result.stderr) == (1, "error: unknown topic setting; name='bad'\n")


def test_topics_are_listed_in_aligned_columns(run: Run, world: World) -> None:
    world.topics.update({"orders": 12, "a": 1})
    assert run("topics", "list").stdout == "topic   partitions\na                1\norders          12\n"


def test_records_are_counted_when_asked_for(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.starts["orders", 1] = 5
    for number in range(1200):
        world.append("orders", b"x", partition=number % 2)
    assert run("topics", "list", "--records").stdout.splitlines()[1].split() == ["orders", "2", "1,200"]
    assert json.loads(run("topics", "list", "--records", "--json").stdout) == [
        {"name": "orders", "partitions": 2, "internal": False, "records": 1200}
    ]


def test_no_topics_is_an_invitation_for_people_and_an_empty_list_for_scripts(run: Run) -> None:
    assert "streamhouse topics create NAME" in run("topics", "list").stdout
    assert json.loads(run("topics", "list", "--json").stdout) == []


def test_a_topic_is_described_with_leader_epoch_offsets_and_settings(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.configs["orders"] = {"retention.ms": "1000"}
    world.starts["orders", 0] = 4
    world.append("orders", b"x")
    lines = run("topics", "describe", "orders").stdout.splitlines()
    assert lines[:3] == ["topic       orders", "partitions  2", "records     1"]
    assert lines[4].split() == ["partition", "leader", "epoch", "start", "end", "records"]
    assert lines[5].split() == ["0", "1", "(127.0.0.1:9092)", "7", "4", "5", "1"]
    assert lines[6].split() == ["1", "1", "(127.0.0.1:9092)", "7", "0", "0", "0"]
    assert lines[-1].split() == ["retention.ms", "1000", "topic"]
    assert "cleanup.policy" not in "\n".join(lines)
    assert "cleanup.policy" in run("topics", "describe", "orders", "--all").stdout


def test_a_description_as_json(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    assert json.loads(run("topics", "describe", "orders", "--json").stdout) == {
        "name": "orders",
        "internal": False,
        "partitions": [{"partition": 0, "leader": 1, "epoch": 7, "start": 0, "end": 0}],
        "configs": {"cleanup.policy": "delete"},
    }


def test_an_agent_that_keeps_its_settings_to_itself_is_no_error(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    world.tells_configs = False
    result = run("topics", "describe", "orders")
    assert result.exit_code == 0
    assert "does not tell" in result.stdout
    assert json.loads(run("topics", "describe", "orders", "--json").stdout)["configs"] is None


def test_an_unknown_topic_is_not_described_nor_created(run: Run, world: World) -> None:
    result = run("topics", "describe", "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unknown topic or partition; name=orders; see which there are with:")
    assert world.topics == {}


def test_deleting_asks_first(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    refused = run("topics", "delete", "orders", stdin="n\n")
    assert (refused.exit_code, world.topics) == (1, {"orders": 1})
    assert "nothing was done" in refused.stderr
    accepted = run("topics", "delete", "orders", stdin="y\n")
    assert (accepted.exit_code, world.topics) == (0, {})
    assert accepted.stdout.endswith("deleted orders\n")


def test_deleting_without_an_answer_deletes_nothing(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    assert run("topics", "delete", "orders", stdin="").exit_code == 1
    assert world.topics == {"orders": 1}


def test_yes_does_not_ask(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    assert json.loads(run("topics", "delete", "orders", "--yes", "--json").stdout) == {"deleted": "orders"}
    assert run("topics", "delete", "orders", "--yes").exit_code == 1
