"""Handshakes that are never finished: they count as connections, take limited time, and leave nothing behind."""

import asyncio
import errno
import socket
import ssl
from dataclasses import replace
from pathlib import Path
from typing import Any, Final

import pytest

from streamhouse.agent import Agent
from streamhouse.clock import SystemClock
from streamhouse.config.fields import Address
from streamhouse.wire.listener import OpenListener, bind
from streamhouse.wire.tls_acceptor import TlsAcceptor
from tests.wire.http.test_secure_listeners import running

LIMIT: Final = 3
TIMEOUT_S: Final = 0.5
SETTINGS: Final = {
    "kafka__protocol": "SASL_SSL",
    "kafka__max_connections": str(LIMIT),
    "http__protocol": "SASL_SSL",
    "http__max_connections": str(LIMIT),
    "http__header_timeout_s": str(TIMEOUT_S),
    "security__login_timeout_s": str(TIMEOUT_S),
}
SENT: Final = {"nothing": b"", "half a record": b"\x16\x03\x01\x02\x00\x01\x00", "no TLS": b"GET / HTTP/1.1\r\n\r\n"}


def port_of(agent: Agent, interface: str) -> int:
    return agent.ready.kafka.port if interface == "kafka" else agent.ready.http.port


async def ends(reader: asyncio.StreamReader) -> None:
    """Wait for the server to end the connection."""
    try:
        while await reader.read(1000):
            pass
    except ConnectionError:
        pass


async def is_encrypted(port: int, folder: Path) -> bool:
    context = ssl.create_default_context(cafile=str(folder / "ca.pem"))
    try:
        _, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    except (ConnectionError, ssl.SSLError):
        return False
    writer.close()
    return True


@pytest.mark.parametrize("sent", SENT)
@pytest.mark.parametrize("interface", ["kafka", "http"])
async def test_handshakes_that_are_not_finished_count_and_end(tmp_path: Path, interface: str, sent: str) -> None:
    async with running(tmp_path, **SETTINGS) as agent:
        port = port_of(agent, interface)
        for _ in range(2):  # what ended is not counted any more
            slow = [await asyncio.open_connection("127.0.0.1", port) for _ in range(LIMIT)]
            await asyncio.sleep(0.05)
            assert not await is_encrypted(port, tmp_path)
            for _, writer in slow:
                writer.write(SENT[sent])
            async with asyncio.timeout(TIMEOUT_S * 6):
                await asyncio.gather(*(ends(reader) for reader, _ in slow))
            for _, writer in slow:
                writer.close()
            await asyncio.sleep(0.05)
        assert await is_encrypted(port, tmp_path)


@pytest.mark.parametrize("interface", ["kafka", "http"])
async def test_a_client_is_told_why_its_handshake_failed(tmp_path: Path, interface: str) -> None:
    mutual = {"security__tls_client_auth": "required", "kafka__protocol": "SSL", "http__protocol": "SSL"}
    async with running(tmp_path, security__tls_min_version="1.3", **mutual) as agent:
        trusting = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        reader, writer = await asyncio.open_connection("127.0.0.1", port_of(agent, interface), ssl=trusting)
        with pytest.raises(ssl.SSLError, match="certificate required"):
            async with asyncio.timeout(10):
                await reader.read(1)  # in TLS 1.3 the client learns of it here
        writer.close()
        old = ssl.create_default_context(cafile=str(tmp_path / "ca.pem"))
        old.maximum_version = ssl.TLSVersion.TLSv1_2
        with pytest.raises(ssl.SSLError, match="alert protocol version"):
            await asyncio.open_connection("127.0.0.1", port_of(agent, interface), ssl=old)


class Gone(socket.socket):
    """A connection whose client was gone before it was encrypted: some systems say so here."""

    def setsockopt(self, *_: Any) -> None:
        raise OSError(errno.EINVAL, "Invalid argument")


async def test_a_connection_that_is_gone_at_once_is_not_counted() -> None:
    left: list[str] = []
    with bind(Address("127.0.0.1", 0), flag="--kafka") as listening, Gone() as accepted:
        acceptor = TlsAcceptor(
            OpenListener.plain(listening),
            admit=lambda _: 0.0,
            leave=left.append,
            make=asyncio.Protocol,
            timeout_s=TIMEOUT_S,
            clock=SystemClock(),
        )
        await acceptor._encrypt(accepted, "10.0.0.1", 0.0)
        assert accepted.fileno() == -1
    assert left == ["10.0.0.1"]


async def test_a_client_above_its_rate_waits_before_the_handshake() -> None:
    steps: list[object] = []

    class Recorder(SystemClock):
        async def sleep(self, seconds: float) -> None:
            steps.append(seconds)

    def make() -> asyncio.Protocol:
        steps.append("handshake")
        return asyncio.Protocol()

    with bind(Address("127.0.0.1", 0), flag="--kafka") as listening:
        client = socket.create_connection(listening.getsockname())
        accepted, _ = listening.accept()
        client.close()
        acceptor = TlsAcceptor(
            replace(OpenListener.plain(listening), tls=ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)),
            admit=lambda _: 0.0,
            leave=lambda _: None,
            make=make,
            timeout_s=TIMEOUT_S,
            clock=Recorder(),
        )
        await acceptor._encrypt(accepted, "10.0.0.1", 2.0)
    assert steps == [2.0, "handshake"]
