"""Protobuf as a schema language: .proto texts and serialised descriptors, compared and used for records.

The way of a schema: `tokens`, `options`, `definitions`, `statements` read a text; `symbols`, `linking`, `checking` and
`interpreting` give it meaning; `files` does so for all imports and makes the pool; `schema` is what others see.
"""

from streamhouse.format.schemas.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
