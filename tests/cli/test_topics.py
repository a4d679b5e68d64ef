"""topics create, list, describe, alter, delete."""

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


def test_a_topic_that_not_every_agent_has_heard_of_is_created_all_the_same(run: Run, world: World) -> None:
    world.late_news = 2
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


def test_records_are_counted_when_requested(run: Run, world: World) -> None:
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


def test_a_topic_is_described_with_leader_offsets_size_times_and_settings(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.configs["orders"] = {"retention.ms": "1000"}
    world.starts["orders", 0] = 4
    world.sizes = {0: 2048, 1: 0}
    world.append("orders", b"x", timestamp_ms=1_700_000_000_000)
    world.append("orders", b"y", timestamp_ms=1_700_000_060_000)
    lines = run("topics", "describe", "orders").stdout.splitlines()
    assert lines[:5] == [
        "topic       orders",
        "partitions  2",
        "records     2",
        "size        2.0 KiB",
        "time        2023-11-14 22:13:20.000Z to 2023-11-14 22:14:20.000Z",
    ]
    assert lines[6].split() == ["partition", "leader", "epoch", "start", "end", "records", "size", "first", "last"]
    first = "0 1 (127.0.0.1:9092) 7 4 6 2 2.0 KiB 2023-11-14 22:13:20.000Z 2023-11-14 22:14:20.000Z"
    assert lines[7].split() == first.split()
    assert lines[8].split() == ["1", "1", "(127.0.0.1:9092)", "7", "0", "0", "0", "0", "B", "-", "-"]
    assert lines[-1].split() == ["retention.ms", "1000", "topic"]
    assert "cleanup.policy" not in "\n".join(lines)
    assert "cleanup.policy" in run("topics", "describe", "orders", "--all").stdout


def test_a_description_as_json(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.sizes = {0: 70, 1: 0}
    world.append("orders", b"x", timestamp_ms=5)
    empty = {"leader": 1, "epoch": 7, "start": 0, "end": 0, "bytes": 0, "first_ms": None, "last_ms": None}
    assert json.loads(run("topics", "describe", "orders", "--json").stdout) == {
        "name": "orders",
        "internal": False,
        "bytes": 70,
        "first_ms": 5,
        "last_ms": 5,
        "partitions": [
            {"partition": 0, **empty, "end": 1, "bytes": 70, "first_ms": 5, "last_ms": 5},
            {"partition": 1, **empty},
        ],
        "configs": {"cleanup.policy": "delete"},
    }


def test_an_empty_topic_has_no_time_range(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    lines = run("topics", "describe", "orders").stdout.splitlines()
    assert not any(line.startswith("time") for line in lines)


def test_an_agent_that_keeps_its_settings_to_itself_is_no_error(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    world.tells_configs = False
    result = run("topics", "describe", "orders")
    assert result.exit_code == 0
    assert "does not report" in result.stdout
    reported = json.loads(run("topics", "describe", "orders", "--json").stdout)
    assert (reported["configs"], reported["bytes"], reported["first_ms"]) == (None, None, None)


def test_an_unknown_topic_is_not_described_nor_created(run: Run, world: World) -> None:
    result = run("topics", "describe", "orders")
    assert result.exit_code == 1
    assert result.stderr.startswith("error: unknown topic or partition; name=orders; see which there are with:")
    assert world.topics == {}


def test_settings_are_altered_and_deleted_and_the_others_stay(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.configs["orders"] = {"retention.ms": "1000", "segment.ms": "5"}
    world.known_configs = {"retention.ms": "7", "segment.ms": "8", "flush.ms": "9"}
    result = run(
        "topics", "alter", "orders", "-c", "flush.ms=1", "--config", "retention.ms=2", "--delete-config", "segment.ms"
    )
    assert (result.exit_code, result.stdout) == (0, "altered orders: 2 partitions, flush.ms=1, retention.ms=2\n")
    assert world.configs["orders"] == {"retention.ms": "2", "flush.ms": "1"}


def test_a_topic_is_given_more_partitions(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    result = run("topics", "alter", "orders", "--partitions", "6")
    assert result.stdout == "altered orders: 6 partitions, all settings are the defaults\n"
    assert json.loads(run("topics", "alter", "orders", "-p", "7", "--json").stdout) == {
        "name": "orders",
        "partitions": 7,
        "configs": {},
    }


def test_what_was_set_is_shown_though_the_agent_that_is_asked_next_has_not_heard_of_it(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.configs["orders"] = {"retention.ms": "1000", "segment.ms": "5"}
    world.known_configs = {"retention.ms": "7", "segment.ms": "8"}
    world.reported_late = True
    result = run("topics", "alter", "orders", "-c", "retention.ms=2", "--delete-config", "segment.ms", "-p", "6")
    assert (result.exit_code, result.stdout) == (0, "altered orders: 6 partitions, retention.ms=2\n")


def test_everything_is_tried_before_anything_is_changed(run: Run, world: World) -> None:
    world.topics["orders"] = 2
    world.known_configs = {"retention.ms": "7"}
    refused = run("topics", "alter", "orders", "-c", "retention.ms=1", "-p", "2")
    assert (refused.exit_code, refused.stderr) == (1, "error: a topic can only get more partitions\n")
    assert world.configs.get("orders", {}) == {}
    world.alterations.clear()
    run("topics", "alter", "orders", "-c", "retention.ms=1", "-p", "3")
    assert world.alterations == [("configs", True), ("partitions", True), ("configs", False), ("partitions", False)]


def test_what_makes_no_sense_is_refused_before_the_agent_is_asked_to_change(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    for args, code, words in (
        ((), 2, "give a change"),
        (("--config", "nothing"), 2, "is not KEY=VALUE"),
        (("-c", "cleanup.policy=compact", "--delete-config", "cleanup.policy"), 2, "at once"),
        (("-p", "0"), 2, "--partitions"),
        (("--delete-config", "no.such"), 1, "unknown topic setting; name='no.such'"),
        (("--config", "no.such=1"), 1, "unknown topic setting; name='no.such'"),
    ):
        result = run("topics", "alter", "orders", *args)
        assert (result.exit_code, words in result.stderr) == (code, True), result.stderr
    assert run("topics", "alter", "missing", "-p", "2").exit_code == 1
    assert world.alterations == []


def test_deleting_asks_first(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    refused = run("topics", "delete", "orders", stdin="n\n")
    assert (refused.exit_code, world.topics) == (1, {"orders": 1})
    assert "nothing was done" in refused.stderr
    accepted = run("topics", "delete", "orders", stdin="y\n")
    assert (accepted.exit_code, world.topics) == (0, {})
    assert accepted.stdout.endswith("deleted orders\n")


def test_deleting_without_a_response_deletes_nothing(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    assert run("topics", "delete", "orders", stdin="").exit_code == 1
    assert world.topics == {"orders": 1}


def test_yes_does_not_ask(run: Run, world: World) -> None:
    world.topics["orders"] = 1
    assert json.loads(run("topics", "delete", "orders", "--yes", "--json").stdout) == {"deleted": "orders"}
    assert run("topics", "delete", "orders", "--yes").exit_code == 1
