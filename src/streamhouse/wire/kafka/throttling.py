"""Throttling: clients above their quotas get a throttle time, and their connections are not read meanwhile.

As in Kafka (KIP-219), the response is sent at once, with the time in it; well-behaved clients wait by themselves, and
the others are made to.
"""

import math
import struct
from typing import Final

from streamhouse.broker.security.quotas import Quotas
from streamhouse.model.access import Caller
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from streamhouse.wire.kafka.framing import DecodedRequest
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.produce import ProduceRequest
from streamhouse.wire.kafka.schema import Response

PERCENT: Final = 100.0
_HEADER: Final = struct.Struct(">h6xh")
"""API key and length of the client id; between them version and correlation id."""


def client_of_produce(frame: bytearray) -> str | None:
    """The client id in the header of a Produce request; None for other requests. Every version of the header has it at
    the same place."""
    if len(frame) < _HEADER.size:
        return None
    key, length = _HEADER.unpack_from(frame)
    if key != ProduceRequest.api_key:
        return None
    return frame[_HEADER.size : _HEADER.size + max(length, 0)].decode(errors="replace")


def charge_produced(quotas: Quotas, caller: Caller, client_id: str, *, size_bytes: int) -> float:
    """Count a Produce request that has arrived; returns how long the client has to wait before its next request."""
    return quotas.charge(PRODUCER_BYTE_RATE, size_bytes, user=caller.principal.name, client_id=client_id)


def charge_request(quotas: Quotas, caller: Caller, decoded: DecodedRequest, *, busy_s: float) -> float:
    """Count the time of a request that was handled; returns how long the client has to wait before its next one."""
    return quotas.charge(REQUEST_PERCENTAGE, busy_s * PERCENT, user=caller.principal.name, client_id=decoded.client_id)


def charge_response(quotas: Quotas, caller: Caller, decoded: DecodedRequest, response: Response) -> float:
    """Count the records of a response; returns how long the client has to wait before its next request."""
    if not isinstance(response, FetchResponse):
        return 0.0
    size = sum(_size(part.records) for topic in response.responses for part in topic.partitions)
    return quotas.charge(CONSUMER_BYTE_RATE, size, user=caller.principal.name, client_id=decoded.client_id)


def state_throttle(response: Response, wait_s: float) -> None:
    """Write the time into a response that has a field for it."""
    if wait_s > 0 and hasattr(response, "throttle_time_ms"):
        response.throttle_time_ms = math.ceil(wait_s * 1000)


def _size(records: object) -> int:
    if records is None:
        return 0
    if isinstance(records, list | tuple):
        return sum(map(len, records))
    return len(records)  # type: ignore[arg-type]
