"""Clients that log in, written from the RFCs, and a server that asks them to."""

import base64
import hashlib
import hmac
from contextlib import AbstractAsyncContextManager

from msgspec.structs import replace

from streamhouse.broker.broker import Broker
from streamhouse.clock import Clock
from streamhouse.config import KafkaSettings, SecuritySettings, Settings
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from streamhouse.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from streamhouse.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from streamhouse.wire.listener import OpenListener, bind
from tests.wire.kafka.talk import Client, Served, a_server, quick_settings

PASSWORD = "correct horse"


def secure(**changes: object) -> Settings:
    security = SecuritySettings(
        authorization="acls", super_users="User:alice", failed_login_delay_s=0.01, login_timeout_s=2.0
    )
    return replace(quick_settings(KafkaSettings()), security=replace(security, **changes))


def login_server(broker: Broker, settings: Settings, clock: Clock | None = None) -> AbstractAsyncContextManager[Served]:
    listening = bind(Address("127.0.0.1", 0), flag="--kafka")
    bound = Address(*listening.getsockname()[:2])
    spec = ListenerSpec(name="SECURE", bind=bound, protocol=ListenerProtocol.SASL_PLAINTEXT)
    listener = OpenListener(spec=spec, listening=listening, advertised=bound)
    return a_server(broker, settings, clock, listeners=[listener])


async def handshake(client: Client, mechanism: str, version: int = 1) -> SaslHandshakeResponse:
    return await client.call(SaslHandshakeRequest(mechanism=mechanism), SaslHandshakeResponse, version)


async def authenticate(client: Client, message: bytes, version: int = 2) -> SaslAuthenticateResponse:
    return await client.call(SaslAuthenticateRequest(auth_bytes=message), SaslAuthenticateResponse, version)


def plain(user: str = "alice", password: str = PASSWORD) -> bytes:
    return f"\x00{user}\x00{password}".encode()


async def log_in(client: Client, user: str = "alice") -> SaslAuthenticateResponse:
    assert (await handshake(client, "PLAIN")).error_code == ErrorCode.NONE
    return await authenticate(client, plain(user))


async def is_served(client: Client) -> bool:
    return (await client.call(MetadataRequest(topics=[]), MetadataResponse, 9)).error_code == ErrorCode.NONE


class ScramClient:
    """The client's side, written from the RFC."""

    def __init__(self, mechanism: str, user: str, password: str, extensions: str = "") -> None:
        self._hash = "sha256" if mechanism.endswith("256") else "sha512"
        self._password = password
        self._bare = f"n={user},r=clientnonce{extensions}"

    def first(self) -> bytes:
        return f"n,,{self._bare}".encode()

    def final(self, challenge: bytes) -> bytes:
        parts = dict(part.split("=", 1) for part in challenge.decode().split(","))
        salted = hashlib.pbkdf2_hmac(self._hash, self._password.encode(), base64.b64decode(parts["s"]), int(parts["i"]))
        client_key = hmac.digest(salted, b"Client Key", self._hash)
        unproven = f"c=biws,r={parts['r']}"
        message = f"{self._bare},{challenge.decode()},{unproven}".encode()
        signature = hmac.digest(hashlib.new(self._hash, client_key).digest(), message, self._hash)
        proof = base64.b64encode(bytes(a ^ b for a, b in zip(client_key, signature, strict=True))).decode()
        self.expected = b"v=" + base64.b64encode(
            hmac.digest(hmac.digest(salted, b"Server Key", self._hash), message, self._hash)
        )
        return f"{unproven},p={proof}".encode()
