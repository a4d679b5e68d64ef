"""JSON Schema: schemas of drafts 4, 6, 7, 2019-09 and 2020-12, their compatibility, and records validated by them.

A payload is the record's JSON, compact. Values are validated when they are encoded, not when they are
decoded: they were validated then, or another serializer wrote them.
"""

import math
from functools import cached_property
from typing import Final

import msgspec

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.schemas.base import (
    Incompatibility,
    ParsedSchema,
    References,
    SchemaType,
    different_languages,
    write_json,
)
from streamhouse.schemas.json_schema import compatibility
from streamhouse.schemas.json_schema.loader import load_node
from streamhouse.schemas.json_schema.references import Documents
from streamhouse.schemas.json_schema.schema_nodes import SchemaNode
from streamhouse.schemas.json_schema.validator import Validator, check_documents, check_nesting

_PATTERN_STEPS: Final = 30
"""The cost of a character that is matched with a pattern of `validator.MAX_LINEAR_BYTES`, relative to other parts."""
_REFERRING: Final = ("$ref", "$dynamicRef", "$recursiveRef")


def parse(text: str, references: References) -> "JsonSchema":
    """Understand a schema; references are known by their names, relative to the schema's `$id`."""
    try:
        documents = Documents(text, references)
        check_documents(documents)
        node = load_node(documents)
        return JsonSchema(text, references, documents.root, Validator(documents), node)
    except RecursionError:
        raise InvalidSchema("nested too deeply") from None


class JsonSchema(ParsedSchema):
    """A schema that is well formed and whose references are all there."""

    type: SchemaType = "JSON"

    def __init__(self, text: str, references: References, root: object, validator: Validator, node: SchemaNode) -> None:
        self.text = text
        self.references = dict(references)
        self.node = node
        self._root = root
        self._validator = validator

    def canonical(self) -> str:
        return self._canonical

    def normalized(self) -> str:
        return write_json(self._root, sort_keys=True)

    def incompatibilities(self, older: ParsedSchema) -> list[Incompatibility]:
        if not isinstance(older, JsonSchema):
            return different_languages(self, older)
        if self.canonical() == older.canonical() and self.references == older.references:
            return []
        return compatibility.incompatibilities(self.node, older.node)

    def encoding_cost(self, size_bytes: int) -> float:
        """Without references, and with patterns that need no backtracking, every part of a value meets every part of
        the schema once. References can multiply that without end."""
        return size_bytes * self._parts if self._validator.is_linear else math.inf

    def encode(self, value: object) -> bytes:
        try:
            raw = msgspec.json.encode(value)
        except (TypeError, ValueError, RecursionError) as error:
            raise InvalidRecordValue(f"not to be written as JSON: {error}") from None
        check_nesting(raw)
        self._validator.validate(value)
        return raw

    def decode(self, payload: bytes | memoryview) -> object:
        try:
            return msgspec.json.decode(payload)
        except (msgspec.DecodeError, ValueError, RecursionError) as error:
            raise InvalidRecordValue(f"not JSON: {error}") from None

    @cached_property
    def _parts(self) -> float:
        """About how many schemas there are in this one; infinite where some refer to others."""
        text = self._canonical
        if self.references or any(f'"{name}":' in text for name in _REFERRING):
            return math.inf
        patterns = text.count('"pattern":') + (text.count('":') if '"patternProperties":' in text else 0)
        return 1 + text.count("{") + text.count("[") + _PATTERN_STEPS * patterns

    @cached_property
    def _canonical(self) -> str:
        return write_json(self._root)
