"""The plan of several agents: ports, folders, and what their stores must be."""

from pathlib import Path

import pytest

from streamhouse.config import Settings, load_settings
from streamhouse.errors import Misconfigured
from streamhouse.process_manager import plan as plans
from streamhouse.process_manager.manager import numbers_with_logs
from streamhouse.process_manager.plan import AgentSlot, agent_count, check_left_logs, check_stores, plan_agents
from streamhouse.process_manager.restarts import FIRST_WAIT_S, MAX_ENDS, WINDOW_S, Restarts

STORES = {"metadata.url": "postgresql://db/streamhouse", "store.url": "s3://records"}


def settings_of(**flags: str) -> Settings:
    return load_settings({name.replace("__", "."): value for name, value in flags.items()}, {})


def planned(agents: int, **flags: str) -> list[AgentSlot]:
    ports = iter(range(40_000, 40_100))
    return plan_agents(settings_of(**flags), agents, free_port=lambda: next(ports))


def ports(slots: list[AgentSlot], name: str) -> list[int]:
    return [int(slot.settings[name].rpartition(":")[2]) for slot in slots]


def test_ports_are_consecutive_and_pass_over_those_of_other_listeners() -> None:
    slots = planned(4)
    assert ports(slots, "kafka.listen") == [9092, 9093, 9094, 9095]
    assert ports(slots, "http.listen") == [8080, 8081, 8082, 8083]
    assert ports(slots, "grpc.listen") == [9090, 9091, 9096, 9097]


def test_the_first_agent_has_exactly_what_is_configured() -> None:
    first = planned(3, kafka__listen="127.0.0.1:1000", http__listen="[::1]:1001", grpc__listen="")[0]
    assert first.settings["kafka.listen"] == "127.0.0.1:1000"
    assert first.settings["http.listen"] == "[::1]:1001"
    assert first.settings["grpc.listen"] == ""
    assert first.settings["kafka.advertise"] == ""
    assert first.settings["agent.data"] == str(Path("data").absolute())


def test_every_listener_with_a_name_moves_and_its_advertised_port_with_it() -> None:
    second = planned(
        2, kafka__listen="INTERNAL://0.0.0.0:9092,PUBLIC://0.0.0.0:9093", kafka__advertise="PUBLIC://broker.example:443"
    )[1]
    assert second.settings["kafka.listen"] == "INTERNAL://0.0.0.0:9094,PUBLIC://0.0.0.0:9095"
    assert second.settings["kafka.advertise"] == "PUBLIC://broker.example:445"


def test_port_0_is_a_free_port_for_each() -> None:
    slots = planned(3, kafka__listen="127.0.0.1:0")
    assert ports(slots, "kafka.listen") == [40_000, 40_001, 40_002]


def test_no_two_agents_share_a_folder(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    slots = planned(3, agent__data=str(tmp_path), fetch__disk_cache_path=cache)
    assert [slot.settings["agent.data"] for slot in slots] == [
        str(tmp_path),
        str(tmp_path / "agents" / "2"),
        str(tmp_path / "agents" / "3"),
    ]
    assert len({slot.settings["fetch.disk_cache_path"] for slot in slots}) == 3


def test_ports_end() -> None:
    with pytest.raises(Misconfigured, match="no port is left"):
        planned(3, kafka__listen="127.0.0.1:65534")


@pytest.mark.parametrize(
    ("stores", "lacking"),
    [
        ({}, "PostgreSQL.* and .*object store"),
        ({"metadata.url": STORES["metadata.url"]}, "object store"),
        ({"metadata.url": "sqlite:////srv/meta.db", "store.url": STORES["store.url"]}, "PostgreSQL"),
    ],
)
def test_embedded_stores_are_refused_with_what_to_do(stores: dict[str, str], lacking: str) -> None:
    with pytest.raises(Misconfigured, match=f"4 agents need .*{lacking}.*dev cluster --agents 4"):
        check_stores(load_settings(stores, {}), 4)


def test_shared_stores_are_taken() -> None:
    check_stores(load_settings(STORES, {}), 4)
    check_stores(load_settings({**STORES, "store.url": "file:///srv/records"}, {}), 4)


def test_access_rules_need_one_secret_for_all() -> None:
    with pytest.raises(Misconfigured, match="cluster_secret"):
        check_stores(load_settings({**STORES, "security.authorization": "acls"}, {}), 2)


def test_auto_is_an_agent_for_each_core_that_may_be_used(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(plans, "usable_cores", lambda: 7)
    assert agent_count("auto") == 7
    assert agent_count("3") == 3


@pytest.mark.parametrize("text", ["0", "-1", "many", "1.5", "", "129"])
def test_other_counts_are_refused(text: str) -> None:
    with pytest.raises(Misconfigured, match="--agents"):
        agent_count(text)


def test_a_log_that_no_agent_would_read_stops_the_start(tmp_path: Path) -> None:
    settings = settings_of(agent__data=str(tmp_path))
    log = tmp_path / "agents" / "3" / "wal" / "session-1"
    log.mkdir(parents=True)
    assert numbers_with_logs(settings) == []
    (log / "00000000000000000000.wal").touch()
    assert numbers_with_logs(settings) == [3]
    check_left_logs(settings, 3, numbers_with_logs=[3])
    with pytest.raises(Misconfigured, match="--agents 3"):
        check_left_logs(settings, 2, numbers_with_logs=[3])


def test_an_agent_that_ends_is_started_later_each_time_and_in_the_end_no_more() -> None:
    restarts = Restarts()
    waits = [restarts.wait_after_end(float(number)) for number in range(MAX_ENDS)]
    assert waits == [*(FIRST_WAIT_S * 2.0**number for number in range(MAX_ENDS - 1)), None]


def test_ends_of_long_ago_are_forgotten() -> None:
    restarts = Restarts()
    assert {restarts.wait_after_end(number * (WINDOW_S + 1)) for number in range(3 * MAX_ENDS)} == {FIRST_WAIT_S}
