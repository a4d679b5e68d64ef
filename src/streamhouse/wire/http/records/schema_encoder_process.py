"""Encoder process: encodes values with JSON schemas; the agent kills it when it takes too long.

Data path   schema_encoding -> stdin -> **encoder process** -> stdout -> schema_encoding
Owns        the frames between the processes, and the parsed schemas
Leaves      timeouts to `schema_encoding`

A native validator holds the GIL, so no thread of the same process could run meanwhile or stop it.
"""

import struct
import sys
from collections.abc import Sequence
from functools import lru_cache
from typing import IO, Final

import msgspec

from streamhouse.errors import InvalidRecordValue, StreamhouseError
from streamhouse.schemas import parse_schema
from streamhouse.schemas.base import ParsedSchema

SCHEMAS: Final = 64
_SIZE: Final = struct.Struct(">Q")


class Refused(msgspec.Struct, array_like=True, frozen=True):
    """Why a value can't be encoded."""

    text: str


class Job(msgspec.Struct, array_like=True, frozen=True):
    """JSON values to encode with one schema."""

    kind: str
    text: str
    references: tuple[tuple[str, str], ...]
    values: Sequence[bytes]


Results = list[bytes | Refused]


def write_frame(stream: IO[bytes], content: bytes) -> None:
    stream.write(_SIZE.pack(len(content)))
    stream.write(content)
    stream.flush()


def read_frame(stream: IO[bytes]) -> bytes | None:
    """The next frame; None at the end."""
    head = stream.read(_SIZE.size)
    if len(head) < _SIZE.size:
        return None
    (size,) = _SIZE.unpack(head)
    content = stream.read(size)
    return content if len(content) == size else None


def error_text(error: InvalidRecordValue) -> str:
    return f"{error.reason} (at {error.path})"


@lru_cache(maxsize=SCHEMAS)
def _schema(kind: str, text: str, references: tuple[tuple[str, str], ...]) -> ParsedSchema:
    return parse_schema(kind, text, dict(references))


def run_job(job: Job) -> Results:
    schema = _schema(job.kind, job.text, job.references)
    results: Results = []
    for value in job.values:
        try:
            results.append(schema.encode(msgspec.json.decode(value)))
        except InvalidRecordValue as error:
            results.append(Refused(error_text(error)))
        except (ValueError, RecursionError) as error:
            results.append(Refused(str(error)))
    return results


def main() -> None:
    decoder, encoder = msgspec.msgpack.Decoder(Job), msgspec.msgpack.Encoder()
    while (frame := read_frame(sys.stdin.buffer)) is not None:
        try:
            results = run_job(decoder.decode(frame))
        except StreamhouseError as error:  # the agent parsed the schema before, so this is a defect
            sys.exit(f"a schema can't be parsed; why={error}")
        write_frame(sys.stdout.buffer, encoder.encode(results))


if __name__ == "__main__":
    main()
