"""Listeners: which address others are told, and what connections have of them."""

import asyncio
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamhouse.agent import build_agent
from streamhouse.config import Address, Settings, load_settings
from streamhouse.errors import Misconfigured
from streamhouse.wire.listener import advertised, bind

Listen = Callable[[str], socket.socket]


@pytest.fixture
def listen() -> Iterator[Listen]:
    opened = []

    def on(host: str) -> socket.socket:
        opened.append(bind(Address(host, 0), flag="--kafka"))
        return opened[-1]

    yield on
    for each in opened:
        each.close()


def test_a_listener_on_one_address_is_reported_as_it_is(listen: Listen) -> None:
    listener = listen("127.0.0.1")
    assert advertised(None, listener, setting="kafka.advertise") == listener.getsockname()


def test_an_address_that_was_given_is_the_one_that_is_reported(listen: Listen) -> None:
    result = Address("agent-7.example", 9092)
    assert advertised(result, listen("0.0.0.0"), setting="kafka.advertise") == result


@pytest.mark.parametrize("host", ["0.0.0.0", "::"])
def test_an_agent_that_listens_everywhere_needs_an_advertised_address(listen: Listen, host: str) -> None:
    try:
        listener = listen(host)
    except (OSError, Misconfigured):
        pytest.skip(f"no {host} here")
    with pytest.raises(Misconfigured, match=r"--set http\.advertise=HOST:\d+ or STREAMHOUSE_HTTP_ADVERTISE=HOST:\d+"):
        advertised(None, listener, setting="http.advertise")


@pytest.mark.parametrize("reported", [Address("0.0.0.0", 9092), Address("::", 9092), Address("10.0.0.5", 0)])
def test_an_address_that_leads_nowhere_is_not_reported(listen: Listen, reported: Address) -> None:
    with pytest.raises(Misconfigured, match="clients can't connect to"):
        advertised(reported, listen("127.0.0.1"), setting="kafka.advertise")


async def test_nothing_that_is_sent_waits_for_an_acknowledgement(listen: Listen) -> None:
    accepted: asyncio.Future[bool] = asyncio.get_running_loop().create_future()

    def on_connection(_: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        connection = writer.get_extra_info("socket")
        accepted.set_result(bool(connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY)))
        writer.close()

    listener = listen("127.0.0.1")
    async with await asyncio.start_server(on_connection, sock=listener):
        with socket.create_connection(listener.getsockname()):
            assert await accepted


def everywhere(data: Path, section: str, **more: str) -> Settings:
    listeners = {"kafka.listen": "127.0.0.1:0", "http.listen": "127.0.0.1:0", f"{section}.listen": "0.0.0.0:0"}
    listeners |= {"grpc.listen": "", "security.allow_anonymous_network_access": "true"}
    return load_settings({"agent.data": str(data), "wal.kind": "disk", **listeners, **more}, {})


@pytest.mark.parametrize("section", ["kafka", "http"])
async def test_agents_that_share_a_store_never_share_an_address_for_they_do_not_start(
    tmp_path: Path, section: str
) -> None:
    settings = everywhere(tmp_path / "data", section, **{"metadata.url": f"sqlite:///{tmp_path}/shared.db"})
    with pytest.raises(Misconfigured, match=rf"--set {section}\.advertise=HOST"):
        async with build_agent(settings):
            raise AssertionError("it started")


async def test_an_agent_that_is_alone_may_listen_everywhere(tmp_path: Path) -> None:
    async with build_agent(everywhere(tmp_path / "data", "kafka")) as agent:
        assert agent.ready.kafka.host == "0.0.0.0"
