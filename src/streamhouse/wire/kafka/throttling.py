"""Throttling: clients above their quotas get a throttle time, and their connections are not read meanwhile.

As in Kafka (KIP-219), the response is sent at once, with the time in it; well-behaved clients wait by themselves, and
the others are made to.
"""

import math
from typing import Final

from streamhouse.broker.security.quotas import Quotas
from streamhouse.model.access import Caller
from streamhouse.model.quota import CONSUMER_BYTE_RATE, PRODUCER_BYTE_RATE, REQUEST_PERCENTAGE
from streamhouse.wire.kafka.framing import DecodedRequest
from streamhouse.wire.kafka.messages.fetch import FetchResponse
from streamhouse.wire.kafka.messages.produce import ProduceRequest
from streamhouse.wire.kafka.schema import Response

PERCENT: Final = 100.0


def charge_request(quotas: Quotas, caller: Caller, decoded: DecodedRequest, *, size_bytes: int, busy_s: float) -> float:
    """Count a request that was handled; returns how long the client has to wait before its next one."""
    user, client_id = caller.principal.name, decoded.client_id
    wait_s = quotas.charge(REQUEST_PERCENTAGE, busy_s * PERCENT, user=user, client_id=client_id)
    if isinstance(decoded.request, ProduceRequest):
        wait_s = max(wait_s, quotas.charge(PRODUCER_BYTE_RATE, size_bytes, user=user, client_id=client_id))
    return wait_s


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
