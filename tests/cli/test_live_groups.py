"""Groups on the command line against a real agent: members, lag, resets, and a clean leave."""

import json
import signal
import subprocess
import tarfile
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from streamhouse.cli.commands.support_bundle import without_secrets
from streamhouse.cli.main import app
from tests.cli.test_live import LIMIT_S, Agent, command, environment, start

Live = Callable[..., Result]

AT_ONCE = ("--set", "groups.initial_rebalance_delay_s=0")


@pytest.fixture(scope="module")
def agent(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Agent]:
    started = start(tmp_path_factory.mktemp("groups") / "data", *AT_ONCE)
    yield started
    if started.process.poll() is None:
        started.stop()


@pytest.fixture
def live(agent: Agent) -> Live:
    def invoke(*args: str, stdin: str | bytes | None = None) -> Result:
        env = {"STREAMHOUSE_KAFKA_LISTEN": agent.kafka, "STREAMHOUSE_HTTP_LISTEN": agent.http}
        return CliRunner().invoke(app, list(args), input=stdin, env=env, prog_name="streamhouse")

    return invoke


def output_of(result: Result) -> str:
    assert (result.exit_code, result.stderr) == (0, ""), (result.stdout, result.stderr, result.exception)
    return result.stdout


def described(live: Live, group: str) -> dict[str, object]:
    results: dict[str, object] = json.loads(output_of(live("groups", "describe", group, "--json")))
    return results


def test_a_group_reads_once_and_can_be_sent_back(live: Live) -> None:
    output_of(live("topics", "create", "orders", "-p", "2"))
    output_of(live("produce", "orders", stdin="".join(f"{n}\n" for n in range(100))))
    assert sorted(output_of(live("consume", "orders", "-g", "billing")).split(), key=int) == [
        str(n) for n in range(100)
    ]
    assert output_of(live("consume", "orders", "-g", "billing")) == ""
    assert (described(live, "billing")["lag"], described(live, "billing")["state"]) == (0, "Empty")
    plan = output_of(live("groups", "reset", "billing", "--to-earliest"))
    assert "nothing was changed" in plan
    assert described(live, "billing")["lag"] == 0
    output_of(live("groups", "reset", "billing", "--to-earliest", "--execute"))
    assert described(live, "billing")["lag"] == 100
    assert len(output_of(live("consume", "orders", "-g", "billing", "-n", "40")).split()) == 40
    assert described(live, "billing")["lag"] == 60
    output_of(live("groups", "reset", "billing", "--to-time", "-1h", "-t", "orders:0", "--execute"))
    output_of(live("groups", "reset", "billing", "--shift-by", "-1", "--execute"))
    output_of(live("groups", "delete", "billing", "--yes"))
    assert "no such group" in live("groups", "describe", "billing").stderr
    assert "no such group" in live("groups", "delete", "billing", "--yes").stderr


def test_a_member_is_seen_while_it_reads_and_leaves_at_ctrl_c(live: Live, agent: Agent) -> None:
    output_of(live("topics", "create", "followed", "-p", "2"))
    args = command("consume", "followed", "--group", "watch", "--follow", "--from-beginning", "-b", agent.kafka)
    follower = subprocess.Popen(
        args, stdout=subprocess.PIPE, stderr=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment()
    )
    assert follower.stdout is not None
    for value in ("first", "second"):
        output_of(live("produce", "followed", value))
        assert follower.stdout.readline() == f"{value}\n"
    group = described(live, "watch")
    assert group["state"] == "Stable"
    members = group["members"]
    assert isinstance(members, list)
    assert [(each["client"], each["host"], len(each["assigned"])) for each in members] == [
        ("streamhouse-consumer", "127.0.0.1", 2)
    ]
    refused = live("groups", "reset", "watch", "--to-earliest", "--execute")
    assert "the group has members; group='watch'; stop its consumers" in refused.stderr
    assert "the group has members" in live("groups", "delete", "watch", "--yes").stderr
    follower.send_signal(signal.SIGINT)
    out, err = follower.communicate(timeout=LIMIT_S)
    assert (follower.returncode, out, err) == (0, "", "")
    group = described(live, "watch")
    assert (group["state"], group["lag"], group["members"]) == ("Empty", 0, [])
    assert [each["group"] for each in json.loads(output_of(live("groups", "list", "--json")))] == ["watch"]


def shares(live: Live, group: str) -> list[int]:
    """How many partitions each member has; nothing while there is no such group."""
    result = live("groups", "describe", group, "--json")
    return sorted(len(each["assigned"]) for each in json.loads(result.stdout)["members"]) if result.stdout else []


def read_by(live: Live, group: str) -> int:
    """How many records a group has committed."""
    partitions = described(live, group)["partitions"]
    assert isinstance(partitions, list)
    return sum(each["committed"] or 0 for each in partitions)


def test_two_members_share_a_topic(live: Live, agent: Agent) -> None:
    output_of(live("topics", "create", "shared", "-p", "4"))
    args = command("consume", "shared", "-g", "team", "-f", "--from-beginning", "--json", "-b", agent.kafka)
    with ExitStack() as stack:
        members = [
            stack.enter_context(
                subprocess.Popen(args, stdout=subprocess.PIPE, stdin=subprocess.DEVNULL, text=True, env=environment())
            )
            for _ in range(2)
        ]
        for member in members:
            stack.callback(member.kill)
        while shares(live, "team") != [2, 2]:
            pass  # until both have joined; the test's own time limit bounds this
        output_of(live("produce", "shared", stdin="".join(f"{n}\n" for n in range(200))))
        while read_by(live, "team") < 200:
            pass
        read: list[str] = []
        for member in members:
            member.send_signal(signal.SIGINT)
            out, _ = member.communicate(timeout=LIMIT_S)
            read += [json.loads(line)["value"] for line in out.splitlines()]
    assert sorted(read, key=int) == [str(n) for n in range(200)]


def test_a_data_folder_keeps_its_groups_over_a_restart(tmp_path: Path) -> None:
    first = start(tmp_path / "data", *AT_ONCE)
    for args in (["produce", "kept", "a", "b"], ["consume", "kept", "-g", "g", "-n", "1"]):
        subprocess.run(command(*args, "-b", first.kafka), check=True, capture_output=True, env=environment())
    first.process.kill()
    first.process.communicate(timeout=LIMIT_S)
    second = start(tmp_path / "data", *AT_ONCE)
    read = command("consume", "kept", "-g", "g", "-b", second.kafka)
    result = subprocess.run(read, check=True, capture_output=True, text=True, env=environment(), timeout=LIMIT_S)
    assert result.stdout == "b\n"
    assert second.stop()[0] == 0


def test_several_groups_of_one_coordinator_are_listed(live: Live) -> None:
    output_of(live("produce", "many-readers", "hello"))
    for group in ("one", "three", "two"):
        output_of(live("consume", "many-readers", "--group", group, "--from-beginning", "-n", "1"))
    listed = {each["group"] for each in json.loads(output_of(live("groups", "list", "--json")))}
    assert listed >= {"one", "two", "three"}


def test_lag_says_how_far_groups_are_behind(live: Live) -> None:
    output_of(live("topics", "create", "waits"))
    output_of(live("produce", "waits", "a", "b", "c"))
    output_of(live("consume", "waits", "-g", "slow", "-n", "1"))
    (partition,) = (result := json.loads(output_of(live("lag", "slow", "--json"))))["partitions"]
    assert (result["lag"], partition["committed"], partition["end"], partition["lag"]) == (2, 1, 3, 2)
    assert 0 <= result["lag_ms"] == partition["lag_ms"] < LIMIT_S * 1000
    assert "slow" in output_of(live("lag"))
    assert "2 records" in output_of(live("lag", "slow"))
    unknown = live("lag", "nobody")
    assert (unknown.exit_code, "see which there are" in unknown.stderr) == (1, True)


def test_search_prints_the_records_that_match(live: Live) -> None:
    output_of(live("topics", "create", "found", "-p", "2"))
    for key in ("alice", "bob"):
        output_of(live("produce", "found", '{"user": {"id": 7}}', '{"user": {"id": 8}}', "--key", key))
    result = live("search", "found", "--key", "alice", "--json-path", "user.id=8", "--json")
    assert (result.exit_code, len(result.stdout.splitlines())) == (0, 1), result.stderr
    record = json.loads(result.stdout)
    assert (record["key"], record["value"]) == ("alice", {"user": {"id": 8}})
    assert "found 1 record; searched 4 offsets" in result.stderr
    assert "found 2 records" in live("search", "found", "--text", '"id": 7', "--since", "-1h").stderr
    assert live("search", "found").exit_code == 2
    assert "PATH=VALUE" in live("search", "found", "--json-path", "user").stderr
    assert "--since" in live("search", "found", "--text", "x", "--since", "noon").stderr


def test_top_shows_agents_topics_and_groups_with_rates(live: Live) -> None:
    output_of(live("topics", "create", "busy"))
    output_of(live("produce", "busy", "a"))
    output_of(live("consume", "busy", "-g", "watched"))
    shown = json.loads(output_of(live("top", "--count", "1", "--every", "0.5", "--rows", "100", "--json")))
    (agent,) = shown["agents"]
    assert (agent["state"], agent["written"]) == ("live", 0.0)
    assert agent["memory"] > 0
    assert {"topic": "busy", "records_per_second": 0.0, "stored_bytes": 0} in [
        {**each, "stored_bytes": 0} for each in shown["topics"]
    ]
    assert "watched" in {each["group"] for each in shown["groups"]}
    table = output_of(live("top", "--count", "1", "--every", "0.5"))
    assert "in/s" in table
    assert "busy" in table


def test_a_support_archive_has_what_helpers_need_and_no_secrets(live: Live, tmp_path: Path) -> None:
    output_of(live("topics", "create", "supported"))
    archive = tmp_path / "support.tar.gz"
    result = live("doctor", "--bundle", str(archive))
    assert (result.stderr.strip(), archive.stat().st_mode & 0o777) == (f"wrote {archive}", 0o600)
    with tarfile.open(archive) as opened:
        pages = {name.removeprefix("streamhouse-support/"): opened.extractfile(name) for name in opened.getnames()}
        assert {"about.json", "checks.json", "agent-1/checks.json", "agent-1/metrics.txt", "lag.json"} <= set(pages)
        topics = pages["topics.json"]
        assert topics is not None
        assert b"supported" in topics.read()
        settings = pages["agent-1/settings.json"]
        assert settings is not None
        values = {each["name"]: each["value"] for each in json.load(settings)["settings"]}
        assert values["flush.age_s"]
        assert values["security.cluster_secret"] in ("", "(hidden)")


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ({"password": "s3cret", "user": "u"}, {"password": "(hidden)", "user": "u"}),
        ({"options": [{"sasl.password": "s3cret"}]}, {"options": [{"sasl.password": "(hidden)"}]}),
        ({"url": "postgres://u:s3cret@host/db"}, {"url": "postgres://u:(hidden)@host/db"}),
        ({"text": "WITH (password = 's3cret', n = 1)"}, {"text": "WITH (password = (hidden), n = 1)"}),
        ({"text": "?token=s3cret&a=1"}, {"text": "?token=(hidden)&a=1"}),
        ({"name": "a.secret", "value": "s3cret"}, {"name": "a.secret", "value": "(hidden)"}),
        ({"name": "flush.age_s", "value": "30"}, {"name": "flush.age_s", "value": "30"}),
        ({"lag": 3, "tokens": 5}, {"lag": 3, "tokens": 5}),
    ],
)
def test_what_may_be_a_secret_is_hidden(given: dict[str, object], kept: dict[str, object]) -> None:
    assert without_secrets(given) == kept
