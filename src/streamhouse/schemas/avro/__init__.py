"""Avro: schemas, their compatibility, and records encoded with them.

Values are those of Avro's JSON encoding, with these differences:
- bytes and fixed are strings, one character up to U+00FF for each byte;
- dates, times and timestamps are the whole numbers that Avro stores: days, milli-, micro- or nanoseconds;
- decimals are strings such as "12.50" (numbers are accepted too); a UUID is its usual text, also where fixed stores it;
- a union's value may be tagged, {"string": "x"}, or plain, "x". A plain value takes the first branch that it fits,
  those that say most of it first (a whole number: int before double; a text: string before bytes). An object whose
  only key is the name of a branch is taken for a tagged one. Values come out plain, unless a plain one would be taken
  for another branch's: one of several records and maps, bytes beside texts;
- fields that are left out take their default; fields that the record doesn't have are rejected;
- "NaN", "Infinity" and "-Infinity" are accepted for floats; they come out as floats.
"""

from collections.abc import Callable
from functools import cached_property

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.schemas.avro import compatibility
from streamhouse.schemas.avro.canonical_form import canonical_text, normalized_text
from streamhouse.schemas.avro.decoder import reader_of
from streamhouse.schemas.avro.encoder import Budget, Writer, Writers
from streamhouse.schemas.avro.parser import read_types
from streamhouse.schemas.avro.types import AvroType
from streamhouse.schemas.base import Incompatibility, ParsedSchema, References, SchemaType, different_languages


def parse(text: str, references: References) -> "AvroSchema":
    """Understand a schema; references are known by the full names that their texts define."""
    try:
        root, external = read_types(text, references)
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None
    return AvroSchema(text, references, root, external)


class AvroSchema(ParsedSchema):
    """A schema whose names are resolved; readers and writers are made when the first record comes."""

    type: SchemaType = "AVRO"

    def __init__(self, text: str, references: References, root: AvroType, external: frozenset[str]) -> None:
        self.text = text
        self.root = root
        self._references = dict(references)
        self._external = external

    def canonical(self) -> str:
        return self._canonical

    def normalized(self) -> str:
        # Printed in full and parsed again, so that the text is in the same form as the canonical one.
        root, external = read_types(normalized_text(self.root, self._external), self._references)
        return canonical_text(root, external)

    def incompatibilities(self, older: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(older, AvroSchema):
            return different_languages(self, older)
        return compatibility.incompatibilities(self.root, older.root)

    def encode(self, value: object) -> bytes:
        out = bytearray()
        try:
            self._write(value, out, Budget())
        except RecursionError:
            raise InvalidRecordValue("the value is nested too deeply") from None
        return bytes(out)

    def decode(self, payload: bytes | memoryview) -> object:
        try:
            return self._read(bytes(payload))
        except RecursionError:
            raise InvalidRecordValue("the value is nested too deeply") from None

    @cached_property
    def _canonical(self) -> str:
        return canonical_text(self.root, self._external)

    @cached_property
    def _write(self) -> Writer:
        return Writers().of(self.root)

    @cached_property
    def _read(self) -> Callable[[bytes], object]:
        return reader_of(self.root)
