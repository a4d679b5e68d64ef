"""dev cluster: flags become a plan, one screen says what runs where, and scripts get one line."""

import json
from pathlib import Path

import pytest

from streamhouse.config import LeaseSettings, load_settings
from streamhouse.dev.cluster import ClusterPlan
from streamhouse.errors import ChildFailed
from tests.cli.conftest import Run
from tests.cli.fakes import World


def test_every_flag_is_in_the_plan(run: Run, world: World) -> None:
    flags = (
        "--agents 5 --dir here --kafka-port 19092 --http-port 18080 --set flush.age_s=5s --set wal.kind=disk --restart"
    )
    assert run("dev", "cluster", *flags.split()).exit_code == 0
    assert world.cluster == ClusterPlan(
        agents=5,
        folder=Path("here"),
        settings={"wal.kind": "disk", "flush.age_s": "5s"},
        kafka_port=19_092,
        http_port=18_080,
        restart=True,
    )


def test_without_flags_there_are_three_agents_with_nothing_on_disk_that_stay_dead(run: Run, world: World) -> None:
    assert run("dev", "cluster").exit_code == 0
    plan = world.cluster
    assert plan is not None
    assert (plan.agents, plan.settings, plan.restart) == (3, {"wal.kind": "object"}, False)


@pytest.mark.parametrize("ttl", ["2s", "3", "1500ms", "1min"])
def test_margins_and_heartbeats_keep_their_proportion_to_the_lease(run: Run, world: World, ttl: str) -> None:
    assert run("dev", "cluster", "--lease-ttl", ttl).exit_code == 0
    assert world.cluster is not None
    lease = load_settings(world.cluster.settings, {}).lease  # which refuses what doesn't fit together
    assert lease.ttl_s == {"2s": 2, "3": 3, "1500ms": 1.5, "1min": 60}[ttl]
    usual = LeaseSettings()
    assert lease.renew_s == pytest.approx(lease.ttl_s * usual.renew_s / usual.ttl_s, rel=1e-4)
    assert lease.heartbeat_timeout_s == pytest.approx(lease.ttl_s * usual.heartbeat_timeout_s / usual.ttl_s, rel=1e-4)
    assert lease.margin_s == pytest.approx(lease.ttl_s * usual.margin_s / usual.ttl_s, rel=1e-4)


def test_a_setting_that_is_given_wins_over_what_the_lease_implies(run: Run, world: World) -> None:
    assert run("dev", "cluster", "--lease-ttl", "3s", "--set", "lease.renew_s=0.25").exit_code == 0
    assert world.cluster is not None
    assert world.cluster.settings["lease.renew_s"] == "0.25"


def test_scripts_get_one_line_and_nothing_else(run: Run) -> None:
    result = run("dev", "cluster", "--agents", "2", "--json")
    assert result.stdout.count("\n") == 1
    assert json.loads(result.stdout) == {
        "bootstrap": "127.0.0.1:19092,127.0.0.1:19093",
        "agents": [
            {"node": 3, "pid": 100, "kafka": "127.0.0.1:19092", "http": "127.0.0.1:80", "grpc": "127.0.0.1:19190"},
            {"node": 4, "pid": 101, "kafka": "127.0.0.1:19093", "http": "127.0.0.1:81", "grpc": "127.0.0.1:19191"},
        ],
        "postgres": "postgresql://ann:secret@127.0.0.1:15432/postgres",
        "s3": "http://127.0.0.1:18333",
    }


def test_the_screen_says_what_runs_where_and_how_to_go_on(run: Run) -> None:
    result = run("dev", "cluster")
    for said in (
        "a cluster of 3 agents is running",
        "127.0.0.1:19092,127.0.0.1:19093,127.0.0.1:19094",
        "http://127.0.0.1:82",
        "127.0.0.1:19192",
        "http://127.0.0.1:18333",
        "/srv/cluster/logs",
        "streamhouse produce orders hello --agents 127.0.0.1:80",
        "kill -9 100",
        ". /srv/cluster/env",
        "Ctrl-C stops everything",
    ):
        assert said in result.stdout
    assert "secret" not in result.stdout
    assert result.stdout.endswith("stopped\n")
    assert "agent 1, pid 100, ended" in result.stderr


@pytest.mark.parametrize(
    "flags", [("--lease-ttl", "soon"), ("--lease-ttl", "0s"), ("--agents", "0"), ("--set", "x"), ("--kafka-port", "-1")]
)
def test_what_can_not_be_meant_is_refused_before_anything_starts(
    run: Run, world: World, flags: tuple[str, ...]
) -> None:
    result = run("dev", "cluster", "--json", *flags)
    assert result.exit_code == 2
    assert result.stderr.startswith("error: ")
    assert world.cluster is None


def test_a_child_that_did_not_start_is_named_with_its_last_words(run: Run, world: World) -> None:
    world.wont_start = ChildFailed("agent 2 did not start", log_path="/logs/agent-2.log", last_lines=("why", "oh why"))
    result = run("dev", "cluster", "--json")
    assert result.exit_code == 2
    assert result.stderr == "  why\n  oh why\nerror: agent 2 did not start; log=/logs/agent-2.log\n"
    assert result.stdout == ""


def test_a_secure_cluster_says_how_clients_connect_and_shows_no_password(run: Run, world: World) -> None:
    result = run("dev", "cluster", "--secure")
    assert result.exit_code == 0, result.stderr
    assert world.cluster is not None
    assert world.cluster.secure
    for word in ("https://127.0.0.1:80", "curl -K", "kcat -F", "--command-config", "ssl.create_default_context"):
        assert word in result.stdout
    assert "hunter22" not in result.stdout


def test_the_line_of_a_secure_cluster_has_what_a_program_needs_to_log_in(run: Run, world: World) -> None:
    ready = json.loads(run("dev", "cluster", "--secure", "--json").stdout)
    assert ready["security"] == {"ca": "/x/security/ca.pem", "user": "admin", "password": "hunter22"}
    assert "security" not in json.loads(run("dev", "cluster", "--json").stdout)
