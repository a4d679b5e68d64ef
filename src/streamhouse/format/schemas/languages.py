"""Languages: which module understands which kind of schema.

Data path   registry and client -> **parse_schema** -> `avro`, `json_schema` or `protobuf`
Owns        the table of languages; that a library is loaded when the first schema of its language comes
Leaves      everything else to the languages

A language is a module (or package) of this room with `parse(text, references) -> ParsedSchema`. Modules are loaded
by name: a command that never sees a schema should not wait for three parsers.
"""

from importlib import import_module
from typing import Final, Protocol, cast, get_args

from streamhouse.errors import InvalidSchema
from streamhouse.format.schemas.base import ParsedSchema, References, SchemaType, check_size

LANGUAGES: Final[dict[SchemaType, str]] = {"AVRO": "avro", "JSON": "json_schema", "PROTOBUF": "protobuf"}
DEFAULT_LANGUAGE: Final[SchemaType] = "AVRO"


class Language(Protocol):
    """What a module of this room must have to be a language."""

    def parse(self, text: str, references: References) -> ParsedSchema: ...


def parse_schema(kind: str, text: str, references: References) -> ParsedSchema:
    """Understand a schema; `references` hold every text it needs, by name. Raises `InvalidSchema`: where, and why."""
    if kind not in LANGUAGES:
        raise InvalidSchema(f"unknown schema type; type={kind!r} known={','.join(get_args(SchemaType))}")
    check_size(text, references)
    module = import_module(f"{__package__}.{LANGUAGES[kind]}")
    return cast(Language, module).parse(text, references)
