"""Well-framed nonsense for every API and version: the server answers or closes, and never stumbles."""

import asyncio
import logging
import random
import struct
from contextlib import suppress

import pytest

from streamhouse.wire.kafka.api_registry import APIS
from streamhouse.wire.kafka.codec import encode_bytes
from streamhouse.wire.kafka.messages.header import RequestHeader
from streamhouse.wire.kafka.messages.metadata import MetadataRequest, MetadataResponse
from tests.support.depth import scaled
from tests.wire.kafka.talk import Served, until

ROUNDS = scaled(quick=4, nightly=60)


def nonsense(chance: random.Random) -> bytes:
    """Random bytes, with more small numbers than chance would give, so that lengths are often believable."""
    size = chance.choice([0, 1, 5, 30, 200])
    return bytes(chance.choice([0, 0, 0, 1, 2, 3, 255, chance.randrange(256)]) for _ in range(size))


@pytest.mark.parametrize("key", sorted(APIS))
async def test_nonsense_is_answered_or_closed(served: Served, key: int, caplog: pytest.LogCaptureFixture) -> None:
    api, chance = APIS[key], random.Random(key)
    for version in range(api.first, api.last + 1):
        header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=1, client_id="x")
        head = encode_bytes(header, api.request.header_version(version))
        for _ in range(ROUNDS):
            body = head + nonsense(chance)
            client = await served.client()
            await client.send_raw(struct.pack(">i", len(body)) + body)
            with suppress(TimeoutError, ConnectionResetError):  # a long poll, or a produce request without acks
                async with asyncio.timeout(0.05):
                    await client.reader.read(1)
            await client.close()
    witness = await served.client()
    assert (await witness.call(MetadataRequest(topics=[]), MetadataResponse, 9)).brokers
    assert [record.getMessage() for record in caplog.records if record.levelno >= logging.ERROR] == []
    await until(lambda: "used=0KiB" in repr(served.server))
