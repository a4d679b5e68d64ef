"""Validator: values checked against a JSON schema, and schemas against their meta-schema, in native code.

It never fetches anything. Patterns run on an engine of linear time; those with look-around or back-references, which it
doesn't support, on a backtracking engine with a limit of steps: a pattern that needs more doesn't match. One step may
scan all of a string, so such a pattern can take minutes on a large one (`is_linear`).
"""

import re
from collections.abc import Callable
from functools import cache
from typing import Any, Final, cast

import jsonschema_rs

from streamhouse.errors import InvalidRecordValue, InvalidSchema
from streamhouse.schemas.comparison import TooComplex
from streamhouse.schemas.json_schema.references import DRAFTS, Documents, Draft, draft_of

MAX_BACKTRACKS: Final = 100_000
MAX_PATTERN_BYTES: Final = 1 << 20
"""Maximum memory of one compiled pattern."""
MAX_LINEAR_BYTES: Final = 16 * 1024
"""The same for a pattern of the linear engine: it takes a few microseconds per character at most."""
MAX_MATCHES: Final = 100_000
"""Maximum names that are matched with patterns in one comparison."""
MAX_NAME: Final = 1000
"""Maximum characters of a name that is matched with a pattern with look-around or back-references."""
MAX_REASON: Final = 300
MAX_VALUE_DEPTH: Final = 100
"""Nesting of a value: times the schemas that each part goes through, it must fit the native stack."""

_STRINGS_AND_BRACKETS: Final = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)
_STEP: Final = {b"[": 1, b"{": 1, b"]": -1, b"}": -1}
_OPTIONS: Final = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=MAX_BACKTRACKS, size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES
)
_BRIEF: Final = jsonschema_rs.FancyRegexOptions(
    backtrack_limit=MAX_BACKTRACKS // 100, size_limit=MAX_PATTERN_BYTES, dfa_size_limit=MAX_PATTERN_BYTES
)
_LINEAR: Final = jsonschema_rs.RegexOptions(size_limit=MAX_LINEAR_BYTES, dfa_size_limit=MAX_PATTERN_BYTES)
_VALIDATORS: Final[dict[int, Callable[..., Any]]] = {
    4: jsonschema_rs.Draft4Validator,
    6: jsonschema_rs.Draft6Validator,
    7: jsonschema_rs.Draft7Validator,
    2019: jsonschema_rs.Draft201909Validator,
    2020: jsonschema_rs.Draft202012Validator,
}
_DRAFTS: Final = {
    4: jsonschema_rs.Draft4,
    6: jsonschema_rs.Draft6,
    7: jsonschema_rs.Draft7,
    2019: jsonschema_rs.Draft201909,
    2020: jsonschema_rs.Draft202012,
}


def check_documents(documents: Documents) -> None:
    """Raise `InvalidSchema` for a schema that its meta-schema rejects."""
    _check_document(documents.root, documents.draft, "")
    for name, document in documents.references.items():
        _check_document(document, draft_of(document), f"reference {name!r} ")


class Validator:
    """Validates values. Built when a schema is parsed, so that a schema that can't be used is rejected at once."""

    def __init__(self, documents: Documents) -> None:
        self.is_linear = True
        """Whether the time of every pattern is proportional to the length of the text."""
        try:
            self._native = _native(documents, _LINEAR)
            return
        except (ValueError, jsonschema_rs.ReferencingError):
            self.is_linear = False
        try:
            self._native = _native(documents, _OPTIONS)
        except jsonschema_rs.ValidationError as error:
            raise InvalidSchema(error.message[:MAX_REASON], path=pointer(error.instance_path)) from None
        except (ValueError, jsonschema_rs.ReferencingError) as error:
            raise InvalidSchema(str(error)[:MAX_REASON]) from None

    def validate(self, value: object) -> None:
        try:
            self._native.validate(value)
        except jsonschema_rs.ValidationError as error:
            raise InvalidRecordValue(error.message[:MAX_REASON], path=pointer(error.instance_path)) from None
        except ValueError as error:
            raise InvalidRecordValue(str(error)[:MAX_REASON]) from None


def _native(documents: Documents, options: jsonschema_rs.RegexOptions | jsonschema_rs.FancyRegexOptions) -> Any:
    return _VALIDATORS[documents.draft](
        _with_bridge(documents.root),
        registry=_registry(documents),
        base_uri=documents.base_uri,
        pattern_options=options,
        offline=True,
    )


def check_nesting(raw: bytes) -> None:
    """Raise for JSON that is nested so deeply that validating it could overflow the stack."""
    if raw.count(b"[") + raw.count(b"{") <= MAX_VALUE_DEPTH:
        return
    depth = 0
    for token in _STRINGS_AND_BRACKETS.finditer(raw):
        depth += _STEP.get(token[0], 0)
        if depth > MAX_VALUE_DEPTH:
            raise InvalidRecordValue(f"the value is nested too deeply; limit={MAX_VALUE_DEPTH}")


class Patterns:
    """Regular expressions on the limited engine, each compiled once, for the names of one comparison."""

    def __init__(self) -> None:
        self._compiled: dict[str, tuple[Any, bool]] = {}
        self._matches_left = MAX_MATCHES

    def matches(self, pattern: str, name: str) -> bool:
        """Raises `TooComplex` when there are too many matches, or one might take too long."""
        self._matches_left -= 1
        if self._matches_left < 0:
            raise TooComplex
        if pattern not in self._compiled:
            self._compiled[pattern] = _compiled(pattern)
        compiled, is_linear = self._compiled[pattern]
        if not is_linear:
            self._matches_left -= len(name)
            if len(name) > MAX_NAME:
                raise TooComplex
        return cast(bool, compiled.is_valid(name))


def _compiled(pattern: str) -> tuple[Any, bool]:
    """A pattern, and whether it takes linear time."""
    try:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=_LINEAR, offline=True), True
    except ValueError:
        return jsonschema_rs.Draft7Validator({"pattern": pattern}, pattern_options=_BRIEF, offline=True), False


def pointer(path: list[str | int]) -> str:
    return "".join(f"/{step}" for step in path)


def _check_document(document: object, draft: Draft, where: str) -> None:
    try:
        _meta_schema(draft).validate(document)
    except jsonschema_rs.ValidationError as error:
        raise InvalidSchema(error.message[:MAX_REASON], path=where + pointer(error.instance_path)) from None


@cache
def _meta_schema(draft: Draft) -> Any:
    uri = next(uri for uri, known in DRAFTS.items() if known == draft)
    scheme = "http" if draft <= 7 else "https"
    return _VALIDATORS[draft]({"$ref": f"{scheme}://{uri}"}, offline=True)


def _registry(documents: Documents) -> jsonschema_rs.Registry | None:
    resources = [(uri, _with_bridge(document)) for uri, document in documents.named.items()]
    draft = _DRAFTS[documents.draft]
    return jsonschema_rs.Registry(resources, draft=draft, retriever=_never_fetch) if resources else None


def _never_fetch(uri: str, /) -> Any:
    raise ValueError(f"not among the schema's references: {uri[:200]}")


def _with_bridge(document: object) -> Any:
    """Copy `definitions` into `$defs`: `#/$defs/a` finds both, as in Confluent's registry."""
    if not isinstance(document, dict) or not isinstance(document.get("definitions"), dict):
        return document
    defs = document.get("$defs", {})
    return document | {"$defs": document["definitions"] | defs} if isinstance(defs, dict) else document
