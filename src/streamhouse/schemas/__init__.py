"""Schema languages: Avro, JSON Schema and Protobuf, each behind the interface of `base`.

A language is a subpackage with `parse(text, references) -> ParsedSchema`. It is imported when the first schema of its
type is parsed, so that commands without schemas start quickly.
"""

from importlib import import_module
from typing import Final, Protocol, cast, get_args

from streamhouse.errors import InvalidSchema
from streamhouse.schemas.base import ParsedSchema, References, SchemaType, check_size

LANGUAGES: Final[dict[SchemaType, str]] = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}


class Language(Protocol):
    """The interface of a schema language's subpackage."""

    def parse(self, text: str, references: References) -> ParsedSchema: ...


def parse_schema(kind: str, text: str, references: References) -> ParsedSchema:
    """Parse a schema; `references` has every text that it refers to, by name. Raises `InvalidSchema`."""
    if kind not in LANGUAGES:
        raise InvalidSchema(f"unknown schema type; type={kind!r} known={','.join(get_args(SchemaType))}")
    check_size(text, references)
    module = import_module(f"{__name__}.{LANGUAGES[kind]}")
    return cast(Language, module).parse(text, references)
