"""Frames for a hostile client: requests of every API and version, and what chance makes of them."""

import random
import struct
from collections.abc import Sequence
from typing import Any

from hypothesis import HealthCheck, Phase, given, settings

from streamhouse.wire.kafka import handlers
from streamhouse.wire.kafka.api_registry import APIS
from streamhouse.wire.kafka.codec import encode_bytes
from streamhouse.wire.kafka.messages.header import RequestHeader
from tests.wire.kafka.message_values import messages

SAMPLES = 4
MAX_FRAME_BYTES = 20_000
NUMBERS = (0, 1, -1, 2, 127, 128, 255, 2**15 - 1, -(2**15), 2**31 - 1, -(2**31), 2**63 - 1, -(2**63))


def corpus() -> list[bytes]:
    """Well-formed request bodies with their headers, a few for each API and version that is served."""
    assert handlers.__name__, "handlers register themselves when they are imported"
    results: list[bytes] = []
    for key, api in sorted(APIS.items()):
        for version in range(api.first, api.last + 1):
            header = RequestHeader(request_api_key=key, request_api_version=version, correlation_id=7, client_id="fuzz")
            head = encode_bytes(header, api.request.header_version(version))
            results += [head + encode_bytes(each, version) for each in _samples(api.request, version)]
    return [body for body in results if len(body) <= MAX_FRAME_BYTES]


def _samples(request: type[Any], version: int) -> list[Any]:
    results: list[Any] = []

    @settings(
        max_examples=SAMPLES,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
        deadline=None,
    )
    @given(messages(request, version))
    def collect(message: Any) -> None:
        results.append(message)

    collect()
    return results


def mutated(bodies: Sequence[bytes], chance: random.Random) -> bytes:
    """A frame: one of the bodies, changed in a few places, with a size in front that is mostly right."""
    body = bytearray(chance.choice(bodies))
    for _ in range(chance.choice((0, 1, 1, 2, 5, 20))):
        _mutate(body, bodies, chance)
    del body[MAX_FRAME_BYTES:]
    size = len(body) if chance.random() < 0.98 else chance.choice(NUMBERS[:-2])
    return struct.pack(">i", size) + body


def _mutate(body: bytearray, bodies: Sequence[bytes], chance: random.Random) -> None:
    at = chance.randrange(len(body)) if body else 0
    match chance.randrange(7):
        case 0:
            body[at : at + 1] = bytes([chance.randrange(256)])
        case 1:
            body[at : at + 1] = bytes([(body[at] if body else 0) ^ (1 << chance.randrange(8))])
        case 2:
            del body[at : at + chance.choice((1, 2, 4, 100))]
        case 3:
            body[at:at] = bytes(chance.randrange(256) for _ in range(chance.choice((1, 2, 4, 30))))
        case 4:
            body[at : at + 8] = struct.pack(">q", chance.choice(NUMBERS))[-chance.choice((2, 4, 8)) :]
        case 5:
            other = chance.choice(bodies)
            body[at:] = other[chance.randrange(len(other)) :]
        case _:
            body[at:at] = body[at : at + chance.choice((1, 8, 64))]
