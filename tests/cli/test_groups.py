"""groups list, describe, reset, delete."""

import json

import pytest

from streamhouse.cli.commands.offset_reset import LogBounds, Target, new_offset
from streamhouse.client.types import EARLIEST, Group
from streamhouse.model.names import TopicPartition
from tests.cli.conftest import Run
from tests.cli.fakes import World, a_member


@pytest.fixture
def billing(world: World) -> World:
    """An empty group, ten records behind in one partition of `orders` and at the end of another."""
    world.topics["orders"] = 3
    world.starts["orders", 2] = 5
    for number in range(3):
        for n in range(20):
            world.append("orders", b"x", partition=number, timestamp_ms=1_000 * n)
    world.groups["billing"] = Group(name="billing", state="Empty", protocol="", members=())
    world.committed["billing"] = {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}
    return world


@pytest.fixture
def busy(billing: World) -> World:
    members = (a_member("ann", ("orders", 0), ("orders", 2)), a_member("ben", ("orders", 1)))
    billing.groups["billing"] = Group(name="billing", state="Stable", protocol="range", members=members)
    return billing


# --- list and describe


def test_groups_are_listed(run: Run, busy: World) -> None:
    busy.groups["audit"] = Group(name="audit", state="Empty", protocol="", members=())
    lines = [line.split() for line in run("groups", "list").stdout.splitlines()]
    assert lines == [["group", "state", "members"], ["audit", "Empty", "0"], ["billing", "Stable", "2"]]
    assert json.loads(run("groups", "list", "--json").stdout)[1] == {
        "group": "billing",
        "state": "Stable",
        "members": 2,
    }


def test_no_groups_is_an_invitation_for_people_and_an_empty_list_for_scripts(run: Run) -> None:
    assert "streamhouse consume TOPIC --group NAME" in run("groups", "list").stdout
    assert json.loads(run("groups", "list", "--json").stdout) == []


def test_a_group_is_described_with_members_offsets_and_lag(run: Run, busy: World) -> None:
    lines = [line.split() for line in run("groups", "describe", "billing").stdout.splitlines()]
    assert lines[:5] == [
        ["group", "billing"],
        ["state", "Stable"],
        ["protocol", "range"],
        ["members", "2"],
        ["lag", "30"],
    ]
    assert lines[6:10] == [
        ["topic", "partition", "committed", "end", "lag", "member"],
        ["orders", "0", "10", "20", "10", "ann-1"],
        ["orders", "1", "20", "20", "0", "ben-1"],
        ["orders", "2", "-", "25", "20", "ann-1"],
    ]
    assert lines[11:] == [
        ["member", "client", "host", "partitions"],
        ["ann-1", "ann", "127.0.0.1", "2"],
        ["ben-1", "ben", "127.0.0.1", "1"],
    ]


def test_partitions_without_a_commit_count_also_where_nobody_reads_them_now(run: Run, billing: World) -> None:
    result = json.loads(run("groups", "describe", "billing", "--json").stdout)
    assert result["lag"] == 30
    assert [(each["committed"], each["lag"], each["member"]) for each in result["partitions"]] == [
        (10, 10, None),
        (20, 0, None),
        (None, 20, None),
    ]


def test_a_description_as_json(run: Run, busy: World) -> None:
    result = json.loads(run("groups", "describe", "billing", "--json").stdout)
    assert (result["group"], result["state"], result["protocol"], result["lag"]) == ("billing", "Stable", "range", 30)
    assert result["members"][1] == {
        "member": "ben-1",
        "client": "ben",
        "host": "127.0.0.1",
        "assigned": [{"topic": "orders", "partition": 1}],
    }
    assert result["partitions"][2] == {
        "topic": "orders",
        "partition": 2,
        "committed": None,
        "end": 25,
        "lag": 20,
        "member": "ann-1",
    }


def test_an_unknown_group_is_said_in_one_line(run: Run) -> None:
    result = run("groups", "describe", "never")
    assert result.exit_code == 1
    assert result.stderr == "error: no such group; group='never'; see which there are with: streamhouse groups list\n"


# --- reset


def test_a_reset_shows_what_it_would_do_and_does_nothing(run: Run, billing: World) -> None:
    result = run("groups", "reset", "billing", "--to-earliest")
    lines = [line.split() for line in result.stdout.splitlines()]
    assert lines[:3] == [
        ["topic", "partition", "from", "to", "moves"],
        ["orders", "0", "10", "0", "-10"],
        ["orders", "1", "20", "0", "-20"],
    ]
    assert "--execute" in result.stdout
    assert billing.committed["billing"] == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}


def test_a_reset_is_done_when_it_is_reported(run: Run, billing: World) -> None:
    assert run("groups", "reset", "billing", "--to-earliest", "--execute").stdout.endswith("moved billing\n")
    assert billing.committed["billing"] == {TopicPartition("orders", 0): 0, TopicPartition("orders", 1): 0}


@pytest.mark.parametrize(
    ("flags", "offsets"),
    [
        (["--to-latest"], {0: 20, 1: 20, 2: 25}),
        (["--to-earliest"], {0: 0, 1: 0, 2: 5}),
        (["--to-offset", "3"], {0: 3, 1: 3, 2: 5}),
        (["--to-offset", "99"], {0: 20, 1: 20, 2: 25}),
        (["--to-time", "4500"], {0: 5, 1: 5, 2: 10}),
        (["--to-time", "2100-01-01"], {0: 20, 1: 20, 2: 25}),
    ],
)
def test_where_a_reset_goes(run: Run, billing: World, flags: list[str], offsets: dict[int, int]) -> None:
    result = json.loads(run("groups", "reset", "billing", "--topic", "orders", *flags, "--execute", "--json").stdout)
    assert {each["partition"]: each["to"] for each in result["partitions"]} == offsets
    assert result["executed"] is True
    assert billing.committed["billing"] == {
        TopicPartition("orders", number): offset for number, offset in offsets.items()
    }


@pytest.mark.parametrize(("shift", "offsets"), [("-3", (7, 17)), ("5", (15, 20)), ("-999", (0, 0))])
def test_a_shift_stays_within_the_log(run: Run, billing: World, shift: str, offsets: tuple[int, int]) -> None:
    run("groups", "reset", "billing", "--shift-by", shift, "--execute")
    assert tuple(billing.committed["billing"].values()) == offsets


def test_nothing_is_shifted_where_nothing_was_committed(run: Run, billing: World) -> None:
    result = run("groups", "reset", "billing", "--shift-by", "1", "--topic", "orders", "--execute")
    assert result.exit_code == 1
    assert "group=billing partition=orders-2" in result.stderr
    assert billing.committed["billing"] == {TopicPartition("orders", 0): 10, TopicPartition("orders", 1): 20}


def test_only_the_partitions_named_are_moved(run: Run, billing: World) -> None:
    run("groups", "reset", "billing", "--to-earliest", "-t", "orders:1,2", "--execute")
    assert billing.committed["billing"] == {
        TopicPartition("orders", 0): 10,
        TopicPartition("orders", 1): 0,
        TopicPartition("orders", 2): 5,
    }


def test_a_group_that_is_not_there_yet_can_be_given_a_place(run: Run, billing: World) -> None:
    result = run("groups", "reset", "new", "--to-latest", "-t", "orders:0", "--execute")
    assert result.exit_code == 0
    assert billing.committed["new"] == {TopicPartition("orders", 0): 20}
    assert "flag=--topic" in run("groups", "reset", "newer", "--to-latest").stderr


def test_a_group_with_members_is_not_moved(run: Run, busy: World) -> None:
    for more in ([], ["--execute"]):
        result = run("groups", "reset", "billing", "--to-earliest", *more)
        assert result.exit_code == 1
        assert result.stderr.startswith("error: the group has members; group='billing'; stop its consumers")
    assert busy.committed["billing"][TopicPartition("orders", 0)] == 10


@pytest.mark.parametrize(
    ("flags", "said"),
    [
        ([], "give one of --to-earliest"),
        (["--to-earliest", "--to-latest"], "give one of --to-earliest"),
        (["--to-time", "yesterday"], "'yesterday' is not a time"),
        (["--to-latest", "--topic", "orders:"], "'orders:' is not TOPIC or TOPIC:0,2"),
        (["--to-latest", "--topic", "orders:a"], "'orders:a' is not TOPIC or TOPIC:0,2"),
        (["--to-offset", "-1"], "--to-offset"),
    ],
)
def test_misuse_is_said_in_one_line(run: Run, billing: World, flags: list[str], said: str) -> None:
    result = run("groups", "reset", "billing", *flags)
    assert result.exit_code == 2
    assert said in result.stderr
    assert result.stderr.count("\n") == 1


def test_a_partition_that_is_not_there_is_not_moved_to(run: Run, billing: World) -> None:
    result = run("groups", "reset", "billing", "--to-latest", "--topic", "orders:3")
    assert result.stderr == "error: no such partition; topic=orders partition=3 allowed=0 to 2\n"


def test_a_time_before_everything_is_the_beginning() -> None:
    assert new_offset(Target(at=EARLIEST), LogBounds(start=5, end=9, at_target=5), None) == 5
    assert new_offset(Target(shift=1), LogBounds(start=5, end=9), None) is None


# --- delete


def test_deleting_asks_first(run: Run, billing: World) -> None:
    refused = run("groups", "delete", "billing", stdin="n\n")
    assert (refused.exit_code, "billing" in billing.groups) == (1, True)
    assert run("groups", "delete", "billing", stdin="y\n").stdout.endswith("deleted billing\n")
    assert "billing" not in billing.groups


def test_yes_does_not_ask(run: Run, billing: World) -> None:
    assert json.loads(run("groups", "delete", "billing", "--yes", "--json").stdout) == {"deleted": "billing"}
    assert run("groups", "delete", "billing", "--yes").exit_code == 1


def test_a_group_with_members_is_not_deleted(run: Run, busy: World) -> None:
    result = run("groups", "delete", "billing", "--yes")
    assert (result.exit_code, "billing" in busy.groups) == (1, True)
    assert "stop its consumers" in result.stderr


# --- consume in a group


def test_a_member_reads_what_its_group_has_not_read_and_commits_it(run: Run, world: World) -> None:
    for n in range(5):
        world.append("orders", b"%d" % n)
    assert run("consume", "orders", "--group", "g").stdout == "0\n1\n2\n3\n4\n"
    assert world.committed["g"] == {TopicPartition("orders", 0): 5}
    world.append("orders", b"5")
    assert run("consume", "orders", "--group", "g").stdout == "5\n"
    assert run("consume", "orders", "--group", "g").stdout == ""
    assert world.left == ["g", "g", "g"]


def test_so_many_records_and_no_more_are_committed(run: Run, world: World) -> None:
    for n in range(5):
        world.append("orders", b"%d" % n)
    assert run("consume", "orders", "--group", "g", "-n", "2").stdout == "0\n1\n"
    assert world.committed["g"] == {TopicPartition("orders", 0): 2}


def test_a_follower_of_a_new_group_starts_at_the_end_and_leaves_at_ctrl_c(run: Run, world: World) -> None:
    world.append("orders", b"old")
    result = run("consume", "orders", "--group", "g", "--follow")
    assert (result.exit_code, result.stdout, result.stderr, world.left) == (0, "", "", ["g"])
    assert run("consume", "orders", "--group", "h", "--follow", "--from-beginning").stdout == "old\n"


@pytest.mark.parametrize("flags", [["--offset", "1"], ["--from-time", "-1h"], ["--partition", "0"]])
def test_a_group_decides_itself_what_its_members_read(run: Run, world: World, flags: list[str]) -> None:
    world.append("orders", b"x")
    result = run("consume", "orders", "--group", "g", *flags)
    assert result.exit_code == 2
    assert "streamhouse groups reset" in result.stderr


def test_an_unknown_topic_is_not_created_by_a_group(run: Run, world: World) -> None:
    assert run("consume", "nothing", "--group", "g").exit_code == 1
    assert world.topics == {}
