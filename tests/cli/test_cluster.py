"""agents, partitions and doctor: tables, JSON, waiting, exit codes."""

import json
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import msgspec
import pytest

from streamhouse.cli.commands import cluster, partitions
from streamhouse.client.types import AgentStatus, Examination, Finding, PartitionStatus
from tests.cli.conftest import Run
from tests.cli.fakes import World


def an_agent(node: int, *, state: str = "live", led: int = 3, shards: int = 0) -> AgentStatus:
    return AgentStatus(
        node=node,
        session=f"s-{node}",
        kafka=f"127.0.0.1:909{node}",
        http=f"127.0.0.1:808{node}",
        state=state,
        wal="object",
        started_at_ms=1_700_000_000_000,
        expires_in_ms=21_000 if state != "expired" else -4000,
        partitions=led,
        shards=shards,
        is_responder=node == 1,
    )


def a_partition(number: int, **changes: Any) -> PartitionStatus:
    results: dict[str, Any] = {
        "topic": "orders",
        "partition": number,
        "leader": 1,
        "owner": 1,
        "pinned_to": None,
        "epoch": 7,
        "lease_expires_in_ms": 12_000,
        "log_start": 5,
        "flushed_end": 1000,
        "high_watermark": 1500,
        "bytes": 2048,
        "local": True,
        **changes,
    }
    return PartitionStatus(**results)


def responding(**body: object) -> Callable[[httpx.Request], httpx.Response]:
    return lambda request: httpx.Response(200, content=msgspec.json.encode(body))


def responding_in_turn(*bodies: dict[str, object]) -> Callable[[httpx.Request], httpx.Response]:
    """One after the other."""
    left: Iterator[dict[str, object]] = iter(bodies)
    return lambda request: httpx.Response(200, content=msgspec.json.encode(next(left)))


@pytest.fixture(autouse=True)
def no_waiting(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cluster, "POLL_S", 0.0)
    monkeypatch.setattr(partitions, "POLL_S", 0.0)


# --- agents ---------------------------------------------------------------------------------------------------------


def test_agents_are_listed_with_what_each_one_leads(run: Run, world: World) -> None:
    world.http["/v1/agents"] = responding(agents=[an_agent(1, shards=4), an_agent(2, state="expired")])
    lines = run("agents", "list").stdout.splitlines()
    assert lines[1].split()[:9] == ["1", "live", "127.0.0.1:9091", "127.0.0.1:8081", "3", "4", "21", "s", "2023-11-14"]
    assert lines[2].split()[:9] == ["2", "expired", "127.0.0.1:9092", "127.0.0.1:8082", "3", "0", "4", "s", "ago"]
    assert lines[3] == "1 agent alive, 6 partitions led"
    result = json.loads(run("agents", "list", "--json").stdout)["agents"]
    assert (result[0]["node"], result[0]["session"], result[1]["expires_in_ms"]) == (1, "s-1", -4000)


def test_zones_are_listed_where_agents_have_them(run: Run, world: World) -> None:
    world.http["/v1/agents"] = responding(agents=[msgspec.structs.replace(an_agent(1), zone="eu-1b"), an_agent(2)])
    header, *lines = run("agents", "list").stdout.splitlines()
    assert header.split()[:3] == ["node", "state", "zone"]
    assert [line.split()[2] for line in lines[:2]] == ["eu-1b", "-"]


def test_a_drain_waits_until_nothing_is_left_and_says_how_much_is(run: Run, world: World) -> None:
    world.http["/v1/agents/2/drain"] = responding(agents=[an_agent(1), an_agent(2, state="draining", led=2, shards=1)])
    world.http["/v1/agents"] = responding_in_turn(
        {"agents": [an_agent(2, state="draining", led=1)]},
        {"agents": [an_agent(2, state="draining", led=0)]},
    )
    result = run("agents", "drain", "2", "--wait")
    assert (result.exit_code, result.stdout.split(";")[0]) == (
        0,
        "agent 2 is drained: it leads nothing and can be stopped",
    )
    assert result.stderr.splitlines() == [
        "agent 2 drains: 2 partitions and 1 shard of groups left",
        "agent 2 drains: 1 partition and 0 shards of groups left",
    ]


def test_an_agent_that_ends_while_it_drains_is_drained(run: Run, world: World) -> None:
    world.http["/v1/agents/2/drain"] = responding(agents=[an_agent(2, state="draining", led=2)])
    world.http["/v1/agents"] = responding(agents=[an_agent(1)])
    result = json.loads(run("agents", "drain", "2", "--wait", "--json").stdout)["agent"]
    assert (result["state"], result["partitions"]) == ("ended", 0)


def test_a_drain_that_takes_too_long_fails_and_goes_on(run: Run, world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    stuck = [an_agent(2, state="draining", led=2)]
    world.http["/v1/agents/2/drain"] = world.http["/v1/agents"] = responding(agents=stuck)
    monkeypatch.setattr(cluster, "POLL_S", 0.5)
    result = run("agents", "drain", "2", "--wait", "--timeout", "1")
    assert result.exit_code == 1
    assert "not drained after 1 s; draining continues: 2 partitions" in result.stderr


def test_without_waiting_a_drain_says_what_is_left_and_can_be_undone(run: Run, world: World) -> None:
    methods = []

    def drain(request: httpx.Request) -> httpx.Response:
        methods.append(request.method)
        state = "draining" if request.method == "POST" else "live"
        return httpx.Response(200, content=msgspec.json.encode({"agents": [an_agent(2, state=state)]}))

    world.http["/v1/agents/2/drain"] = drain
    assert "3 partitions and 0 shards of groups left; --wait" in run("agents", "drain", "2").stdout
    assert run("agents", "drain", "2", "--undo").stdout == "agent 2 can lead partitions again\n"
    assert methods == ["POST", "DELETE"]
    assert run("agents", "drain", "2", "--undo", "--wait").exit_code == 2


# --- partitions -----------------------------------------------------------------------------------------------------


def test_partitions_are_listed_with_leader_and_watermarks(run: Run, world: World) -> None:
    world.http["/v1/agents"] = responding(agents=[an_agent(1)])
    world.http["/v1/partitions"] = responding(
        partitions=[
            a_partition(0, pinned_to=1),
            a_partition(1, owner=2),
            a_partition(2, leader=None, lease_expires_in_ms=None),
            a_partition(3, leader=None, owner=None),
            a_partition(0, topic="__consumer_offsets"),
        ]
    )
    lines = run("partitions", "list").stdout.splitlines()
    assert lines[1].split() == ["orders", "0", "1", "1", "7", "12", "s", "5", "1,000", "1,500", "?", "2.0", "KiB"]
    assert "1 > 2" in lines[2]
    assert lines[3].split()[2:6] == ["(1)", "-", "7", "-"]
    assert lines[4].split()[2] == "-"
    assert lines[5].startswith("4 partitions, 8.0 KiB; 2 in brackets")
    assert "__consumer_offsets" in run("partitions", "list", "--internal").stdout
    result = json.loads(run("partitions", "list", "--json").stdout)
    assert (result["partitions"][1]["owner"], result["silent"]) == (2, [])


def test_what_a_silent_leader_alone_knows_is_left_out(run: Run, world: World) -> None:
    silent = PartitionStatus(**{**msgspec.structs.asdict(a_partition(0)), "leader": 2, "high_watermark": None})

    def partitions_reported(request: httpx.Request) -> httpx.Response:
        if request.url.port == 8082:
            raise httpx.ConnectError("refused", request=request)
        return httpx.Response(200, content=msgspec.json.encode({"partitions": [silent]}))

    world.http["/v1/agents"] = responding(agents=[an_agent(1), an_agent(2)])
    world.http["/v1/partitions"] = partitions_reported
    result = run("partitions", "list")
    assert result.exit_code == 0
    assert "agent 2 does not answer on http://127.0.0.1:8082" in result.stderr
    assert result.stdout.splitlines()[1].split()[-4:] == ["?", "?", "2.0", "KiB"]


def test_a_cluster_without_partitions_says_so(run: Run, world: World) -> None:
    world.http["/v1/agents"] = responding(agents=[an_agent(1)])
    world.http["/v1/partitions"] = responding(partitions=[])
    assert run("partitions", "list").stdout.startswith("no partitions yet")


def test_a_move_waits_until_it_has_arrived(run: Run, world: World) -> None:
    requests = []

    def move(request: httpx.Request) -> httpx.Response:
        requests.append(json.loads(request.content))
        return httpx.Response(200, content=msgspec.json.encode({"partitions": [a_partition(3, owner=2)]}))

    world.http["/v1/partitions/move"] = move
    world.http["/v1/partitions"] = responding_in_turn(
        {"partitions": [a_partition(2), a_partition(3, owner=2)]},
        {"partitions": [a_partition(2), a_partition(3, leader=2, owner=2)]},
    )
    result = run("partitions", "move", "orders", "3", "--to", "2")
    assert result.stdout == "orders-3: agent 2 leads it\n"
    assert result.stderr == "orders-3 moves from agent 1 to agent 2\n"
    assert requests == [{"topic": "orders", "partition": 3, "node": 2}]
    assert run("partitions", "move", "orders", "3", "--unpin", "--no-wait").stdout.startswith("orders-3 moves from")
    assert requests[1]["node"] is None


@pytest.mark.parametrize("flags", [[], ["--to", "1", "--unpin"]])
def test_a_move_needs_one_goal(run: Run, flags: list[str]) -> None:
    result = run("partitions", "move", "orders", "3", *flags)
    assert result.exit_code == 2
    assert "give --to NODE or --unpin" in result.stderr


def test_a_refused_move_is_shown_in_the_agents_words(run: Run, world: World) -> None:
    problem = {"title": "UnknownAgent", "detail": "unknown agent; node=9", "status": 404}
    world.http["/v1/partitions/move"] = lambda request: httpx.Response(404, json=problem)
    result = run("partitions", "move", "orders", "3", "--to", "9")
    assert (result.exit_code, result.stderr) == (1, "error: unknown agent; node=9\n")


# --- doctor ---------------------------------------------------------------------------------------------------------


def examined(world: World, verdict: str) -> None:
    world.http["/v1/agents"] = responding(agents=[an_agent(1)])
    world.http["/v1/doctor"] = responding(
        **msgspec.structs.asdict(
            Examination(
                node=1,
                version="0.1",
                lease_ttl_s=30,
                members=[1],
                own=[Finding(name="clock", verdict=verdict, text="5.0 s ahead", figures={"ahead_ms": 5000})],
                shared=[Finding(name="sessions", verdict="ok", text="1 agent is alive")],
            )
        )
    )


@pytest.mark.parametrize(
    ("verdict", "code", "said"),
    [
        ("ok", 0, "all is well: 2 checks"),
        ("warning", 1, "0 failures, 1 warning in 2 checks"),
        ("failure", 2, "1 failure, 0 warnings in 2 checks"),
    ],
)
def test_the_exit_code_shows_scripts_the_result(run: Run, world: World, verdict: str, code: int, said: str) -> None:
    examined(world, verdict)
    result = run("doctor")
    assert result.exit_code == code
    assert result.stdout.splitlines()[-1] == said
    assert f"  {verdict:<8} clock  5.0 s ahead".split() in [line.split() for line in result.stdout.splitlines()]
    reported = run("doctor", "--json")
    assert reported.exit_code == code
    body = json.loads(reported.stdout)
    assert (body["verdict"], body["agents"][0]["checks"][0]["figures"]) == (verdict, {"ahead_ms": 5000})


def test_nobody_to_ask_is_a_failure(run: Run, world: World) -> None:
    world.away = True
    result = run("doctor")
    assert result.exit_code == 2
    assert "no agent answers" in result.stderr
