"""Protobuf as a schema language: .proto texts and serialized descriptors.

A text is parsed by `lexer`, `option_parser`, `definition_parser` and `file_parser`; names are resolved by `linker`; the
result is checked by `checker`, its options set by `option_values`; `imports` does this for all files and builds the
descriptor pool; `schema` is what the registry, HTTP and the client use.
"""

from streamhouse.schemas.protobuf.schema import ProtobufSchema, parse

__all__ = ["ProtobufSchema", "parse"]
