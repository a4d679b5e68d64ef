"""How requests are made for media types that schemathesis doesn't know."""

from typing import Any

import schemathesis

from tests.broker.support import batch


@schemathesis.serializer("application/vnd.streamhouse.batches")
def batches(_: Any, value: Any) -> bytes:
    """Batches where the value has an even length, bytes that are none where it hasn't."""
    data = value if isinstance(value, bytes) else str(value).encode()
    return bytes(batch(data)) if len(data) % 2 == 0 else data
