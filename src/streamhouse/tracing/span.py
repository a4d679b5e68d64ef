"""Spans, and the `traceparent` by which they are passed on (W3C Trace Context)."""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import IntEnum
from typing import Final, NamedTuple, TypeAlias

HEADER: Final = "traceparent"
"""The name of the header: of HTTP requests, of gRPC metadata and of records."""

SAMPLED: Final = 0x01

_FORMAT: Final = re.compile(r"(?!ff)([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_NO_TRACE: Final = "0" * 32
_NO_SPAN: Final = "0" * 16

Attribute: TypeAlias = str | int | float | bool


class SpanContext(NamedTuple):
    """The part of a span that other processes know: the ids in hexadecimal digits, and whether its trace is
    recorded."""

    trace_id: str
    span_id: str
    is_sampled: bool = True

    @property
    def traceparent(self) -> str:
        return f"00-{self.trace_id}-{self.span_id}-{SAMPLED if self.is_sampled else 0:02x}"


def parse_traceparent(text: str) -> SpanContext | None:
    """The context of a header; None for one that the specification says to ignore."""
    match = _FORMAT.fullmatch(text)
    if match is None or (match[1] == "00" and match[5]):
        return None
    if match[2] == _NO_TRACE or match[3] == _NO_SPAN:
        return None
    return SpanContext(match[2], match[3], bool(int(match[4], 16) & SAMPLED))


class SpanKind(IntEnum):
    """The kinds of OTLP."""

    INTERNAL = 1
    SERVER = 2
    CLIENT = 3
    PRODUCER = 4
    CONSUMER = 5


@dataclass(slots=True, kw_only=True)
class Span:
    """Something that was done, from its start on; times are nanoseconds since 1970."""

    name: str
    context: SpanContext
    parent_id: str
    kind: SpanKind
    start_ns: int
    end_ns: int = 0
    attributes: dict[str, Attribute] = field(default_factory=dict)
    error: str = ""
    links: tuple[SpanContext, ...] = ()


def attributes_of(span: Span) -> Mapping[str, Attribute]:
    return {name: value for name, value in span.attributes.items() if value != ""}
