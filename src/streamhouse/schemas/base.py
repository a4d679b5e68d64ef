"""Interface of a schema language: canonical texts, compatibility, records; limits on texts.

Subjects, versions, ids and modes are `broker.schemas`'; the package chooses the language.
"""

import json
import math
import re
from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final, Literal, TypeAlias

from streamhouse.errors import InvalidSchema

SchemaType: TypeAlias = Literal["AVRO", "JSON", "PROTOBUF"]
References: TypeAlias = Mapping[str, str]
"""Name -> text of every schema that a schema needs, those that its references need included."""

MAX_TEXT_BYTES: Final = 1 << 20
"""A schema's text, and that of all its references together."""
MAX_DEPTH: Final = 100
"""Nesting of a schema's text: far above what people write, far below what overflows a stack."""
MAX_INCOMPATIBILITIES: Final = 100
"""Maximum number of differences in a compatibility result."""

_HALF_LETTER: Final = "a text with half a surrogate pair"
_ESCAPED_SURROGATE: Final = re.compile(r"\\u[dD][89a-fA-F]")
_STRINGS_AND_BRACKETS: Final = re.compile(r'"(?:[^"\\]++|\\.)*+"?|[\[\]{}]', re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Incompatibility:
    """One reason why a reader can't read what was written; `kind` is what Confluent's registry calls it."""

    kind: str
    path: str
    message: str


class ParsedSchema(ABC):
    """A schema that was understood. Two of one language can be compared; records can be written and read with one."""

    type: SchemaType
    text: str
    """As it was given."""

    @abstractmethod
    def canonical(self) -> str:
        """The identity of a schema: two registrations with the same value are one schema."""

    @abstractmethod
    def normalized(self) -> str:
        """The same for all texts that mean the same: what is registered with `normalize=true`."""

    @abstractmethod
    def incompatibilities(self, older: "ParsedSchema") -> list[Incompatibility]:
        """Why a reader with this schema can't read what was written with `older`; nothing when it can."""

    def encoding_cost(self, size_bytes: int) -> float:
        """The maximum number of steps to encode a value of `size_bytes` bytes of JSON; infinite if it is
        not known before. A step takes a fraction of a microsecond."""
        return float(size_bytes)

    @abstractmethod
    def encode(self, value: object) -> bytes:
        """The payload of a JSON-like value; raises `InvalidRecordValue` with the path to what doesn't fit."""

    @abstractmethod
    def decode(self, payload: bytes | memoryview) -> object:
        """The JSON-like value of a payload; raises `InvalidRecordValue`."""

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.text[:60]!r}>"


def different_languages(newer: ParsedSchema, older: ParsedSchema) -> list[Incompatibility]:
    """The verdict on two schemas that can't be compared at all."""
    message = f"a schema of type {newer.type} can't follow one of type {older.type}"
    return [Incompatibility(kind="SCHEMA_TYPE_MISMATCH", path="/", message=message)]


def check_size(text: str, references: References) -> None:
    """Refuse texts that are too large before anything walks them."""
    try:
        size_bytes = sum(len(part.encode()) for part in (text, *references.values()))
    except UnicodeEncodeError:
        raise InvalidSchema(_HALF_LETTER) from None
    if size_bytes > MAX_TEXT_BYTES:
        raise InvalidSchema(f"the text is too large; size={size_bytes} limit={MAX_TEXT_BYTES}")


def read_json(text: str, *, where: str = "") -> object:
    """A JSON text that is no deeper than the limit; `where` names the reference it came from."""
    _check_depth(text, where)
    try:
        document = json.loads(text, parse_constant=_refuse_constant, parse_float=_finite)
        if _ESCAPED_SURROGATE.search(text):
            write_json(document).encode()
        return document
    except json.JSONDecodeError as error:
        position = f"{where}line {error.lineno} column {error.colno}"
        raise InvalidSchema(f"not JSON: {error.msg[:1].lower()}{error.msg[1:]}", path=position) from None
    except UnicodeEncodeError:
        raise InvalidSchema(_HALF_LETTER, path=where) from None
    except ValueError as error:
        raise InvalidSchema(f"not JSON: {error}", path=where) from None


def write_json(value: object, *, sort_keys: bool = False) -> str:
    """Compact JSON, as canonical texts have it."""
    return json.dumps(value, separators=(",", ":"), ensure_ascii=False, sort_keys=sort_keys)


def _refuse_constant(name: str) -> object:
    raise ValueError(f"{name} is no JSON number")


def _finite(digits: str) -> float:
    number = float(digits)
    if math.isinf(number):
        raise ValueError(f"{digits[:50]} is too large a number")
    return number


def _check_depth(text: str, where: str) -> None:
    """Count brackets outside of strings, so that no parser ever recurses deeper than the limit."""
    depth = 0
    for token in _STRINGS_AND_BRACKETS.finditer(text):
        bracket = token[0][0]
        if bracket in "{[":
            depth += 1
            if depth > MAX_DEPTH:
                line = text.count("\n", 0, token.start()) + 1
                raise InvalidSchema(f"nested too deeply; limit={MAX_DEPTH}", path=f"{where}line {line}")
        elif bracket in "}]":
            depth -= 1
