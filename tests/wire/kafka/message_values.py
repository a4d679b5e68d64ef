"""Values for every message: hypothesis strategies drawn from the messages' own description."""

from typing import Any, Final
from uuid import UUID

from hypothesis import strategies as st

from streamhouse.wire.kafka.messages import REQUESTS
from streamhouse.wire.kafka.messages.consumer_protocol import (
    ConsumerProtocolAssignment,
    ConsumerProtocolSubscription,
)
from streamhouse.wire.kafka.messages.header import RequestHeader, ResponseHeader
from streamhouse.wire.kafka.schema import Field, Message, WireType, fields_of

MESSAGES: Final[list[type[Message]]] = [
    RequestHeader,
    ResponseHeader,
    ConsumerProtocolSubscription,
    ConsumerProtocolAssignment,
    *REQUESTS.values(),
    *(request.response_class for request in REQUESTS.values()),
]

_LONG: Final = "ż" * 150  # 300 bytes: a compact length of two
_PRIMITIVES: Final[dict[str, st.SearchStrategy[Any]]] = {
    "bool": st.booleans(),
    "int8": st.integers(-(2**7), 2**7 - 1),
    "int16": st.integers(-(2**15), 2**15 - 1),
    "uint16": st.integers(0, 2**16 - 1),
    "int32": st.integers(-(2**31), 2**31 - 1),
    "int64": st.integers(-(2**63), 2**63 - 1),
    "float64": st.floats(allow_nan=False),
    "string": st.sampled_from(["", "orders", "größe", _LONG])
    | st.text(st.characters(exclude_categories=["Cs"]), max_size=5),
    "bytes": st.sampled_from([b"", b"\x00\xff", bytes(300)]) | st.binary(max_size=5),
    "records": st.sampled_from([b"", b"\x00\xff", bytes(300)]) | st.binary(max_size=5),
    "uuid": st.sampled_from([UUID(int=0), UUID(int=2**128 - 1)]) | st.uuids(),
}


def versions_of(cls: type[Message]) -> range:
    return range(cls.min_version, cls.max_version + 1)


def messages(cls: type[Any], version: int) -> st.SearchStrategy[Any]:
    """Messages (or structs) that set only what this version has."""
    present = {field.name: _values(field, version) for field in fields_of(cls) if field.exists_in(version)}
    return st.builds(cls, **present)


def _values(field: Field, version: int) -> st.SearchStrategy[Any]:
    values = _of_type(field.type, version)
    absent = field.may_be_null_in(version) or (field.is_struct and field.tag is not None)
    return st.none() | values if absent else values


def _of_type(of: WireType, version: int) -> st.SearchStrategy[Any]:
    if isinstance(of, list):
        return st.lists(_of_type(of[0], version), max_size=2)
    return messages(of, version) if isinstance(of, type) else _PRIMITIVES[of]
