"""Kafka security: how aiokafka connects with `Credentials`, and why such a connection failed.

Users log in with SCRAM, tokens and API keys with OAUTHBEARER (KIP-255).
"""

import asyncio
from contextlib import suppress
from typing import Any, Final

from aiokafka.abc import AbstractTokenProvider
from aiokafka.conn import create_conn
from aiokafka.errors import (
    IllegalSaslStateError,
    KafkaError,
    SaslAuthenticationFailed,
    UnsupportedSaslMechanismError,
)
from aiokafka.protocol.metadata import MetadataRequest

from streamhouse.client.credentials import Credentials
from streamhouse.client.tls_errors import explain_tls, wants_tls
from streamhouse.config.fields import parse_address
from streamhouse.errors import Misconfigured, NotAuthenticated, StreamhouseError

EXPLAIN_TIMEOUT_S: Final = 10.0


class _Token(AbstractTokenProvider):  # type: ignore[misc]
    def __init__(self, token: str) -> None:
        self._token = token

    async def token(self) -> str:
        return self._token


def kafka_protocol(credentials: Credentials) -> str:
    """The protocol of the Kafka listener that clients with these credentials use."""
    if credentials.kafka_protocol is not None:
        return credentials.kafka_protocol
    transport = "SSL" if credentials.uses_tls else "PLAINTEXT"
    return f"SASL_{transport}" if credentials.has_login else transport


def connection_options(credentials: Credentials) -> dict[str, Any]:
    """Security options of aiokafka's clients and consumers. Raises `Misconfigured` for unusable TLS files."""
    protocol = kafka_protocol(credentials)
    options: dict[str, Any] = {"security_protocol": protocol}
    if protocol.endswith("SSL"):
        options["ssl_context"] = credentials.ssl_context()
    if protocol.startswith("SASL_"):
        options |= _login(credentials)
    return options


def _login(credentials: Credentials) -> dict[str, Any]:
    if credentials.has_token:
        return {"sasl_mechanism": "OAUTHBEARER", "sasl_oauth_token_provider": _Token(credentials.bearer)}
    if credentials.user:
        return {
            "sasl_mechanism": credentials.sasl_mechanism,
            "sasl_plain_username": credentials.user,
            "sasl_plain_password": credentials.password,
        }
    raise Misconfigured(f"{credentials.kafka_protocol} needs a login; give a user with a password, or a token")


async def explain_failure(bootstrap: str, credentials: Credentials) -> StreamhouseError | None:
    """Connect again to find out why the connection failed, which aiokafka only logs; None if nothing listens."""
    with suppress(TimeoutError):
        async with asyncio.timeout(EXPLAIN_TIMEOUT_S):
            for address in bootstrap.split(","):
                explained = await _explain_connection(address, credentials)
                if explained is not None:
                    return explained
    return None


async def _explain_connection(address: str, credentials: Credentials) -> StreamhouseError | None:
    host, port = parse_address(address)
    try:
        connection = await create_conn(host, port, **connection_options(credentials))
    except (KafkaError, OSError) as error:
        return await _explained(error, address, credentials)
    try:
        await connection.send(MetadataRequest([]))
    except KafkaError:
        # aiokafka takes the error response to a wrong token (RFC 7628) for a success
        return _login_failed(address, credentials) if credentials.has_token else None
    finally:
        connection.close()
    return None


async def _explained(error: BaseException, address: str, credentials: Credentials) -> StreamhouseError | None:
    if isinstance(error, SaslAuthenticationFailed | IllegalSaslStateError):
        return _login_failed(address, credentials)
    if isinstance(error, UnsupportedSaslMechanismError):
        return NotAuthenticated(f"login failed at {address}; why={error}")
    if kafka_protocol(credentials).endswith("SSL"):
        return explain_tls(error, address)
    if isinstance(error, ConnectionRefusedError) or not await wants_tls(*parse_address(address)):
        return None
    return Misconfigured(f"{address} wants TLS; give the authority of its certificate with --ca or STREAMHOUSE_CA")


def _login_failed(address: str, credentials: Credentials) -> NotAuthenticated:
    reason = f"user={credentials.user}" if credentials.user else "the token is wrong, revoked or expired"
    return NotAuthenticated(f"login failed at {address}; {reason}")
