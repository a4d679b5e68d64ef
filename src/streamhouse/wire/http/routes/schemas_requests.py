"""Requests and responses of the schema registry by Confluent's names, and its table of paths.

Owns        paths, queries and bodies; the JSON of a schema; matching a path part by part
Leaves      the operations to `schemas_subjects`, `schemas_ids` and `schemas_config`, errors to `schemas_errors`

Subjects are often paths themselves (those of Protobuf imports), so a path is split before its parts are decoded: a part
may contain a slash (`%2F`).
"""

import json
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, Final, NamedTuple, TypeVar
from urllib.parse import unquote

import msgspec
from starlette.requests import Request

from streamhouse.broker.schemas import Proposal
from streamhouse.model.schema import (
    DEFAULT_CONTEXT,
    EVERY_CONTEXT,
    Deleted,
    Reference,
    RegisteredSchema,
    StoredSchema,
    Subject,
    context_name,
)
from streamhouse.wire.http.request_body import RequestBodies
from streamhouse.wire.http.routes.schemas_errors import RegistryFault, invalid_body, invalid_version

ENVELOPE_BYTES: Final = 64 * 1024
"""What a request may have besides the text of a schema."""

MAX_INT: Final = 2**31 - 1
STYLES: Final = frozenset({"", "default", "resolved", "serialized", "ignore_extensions"})
_ON: Final = ("true", "1")
_OFF: Final = ("false", "0", "")

T = TypeVar("T")


class ReferenceBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    subject: str
    version: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)]


class SchemaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A schema that is registered, looked up or compared. What the registry itself tells of one may stand here too, so
    that an export can be sent back; it is not believed."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: dict[str, Any] | None = None
    rule_set: dict[str, Any] | None = None
    id: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None
    version: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None
    subject: str | None = None
    guid: str | None = None
    ts: int | None = None
    deleted: bool | None = None
    propagate_schema_tags: bool | None = None

    def proposal(self) -> Proposal:
        return Proposal(
            type=self.schema_type or "AVRO",
            text=self.schema or "",
            references=tuple(Reference(each.name, each.subject, each.version) for each in self.references or ()),
            metadata=_json_text(self.metadata),
            rule_set=_json_text(self.rule_set),
            schema_id=None if self.id is None or self.id < 0 else self.id,
            version=None if self.version is None or self.version <= 0 else self.version,
        )


def _json_text(value: Mapping[str, Any] | None) -> str | None:
    if value is None:
        return None
    try:
        return json.dumps({name: each for name, each in value.items() if each is not None}, sort_keys=True)
    except RecursionError:
        raise invalid_body("nested too deeply") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCall:
    """A request to the registry; `context` comes from the path's beginning, None: there was none."""

    request: Request
    bodies: RequestBodies
    path: Mapping[str, str]
    context: str | None
    max_body_bytes: int

    # --- what it is about

    @property
    def context_or_default(self) -> str:
        return self.context or DEFAULT_CONTEXT

    def subject(self) -> Subject:
        """The subject in the path; without one, the context."""
        return Subject(self.context_or_default, "").beside(self.path.get("subject", ""))

    def version(self) -> int | None:
        """The version in the path; None: the latest."""
        text = self.path["version"]
        if text in ("latest", "-1"):
            return None
        if not (text.isascii() and text.isdecimal() and len(text) < 11 and 1 <= int(text) <= MAX_INT):
            raise invalid_version(text)
        return int(text)

    def schema_id(self) -> int:
        text = self.path["id"]
        if not (text.isascii() and text.isdecimal() and len(text) < 11 and int(text) <= MAX_INT):
            raise RegistryFault(404, f"HTTP 404 Not Found: '{text[:100]}' is no schema id")
        return int(text)

    def id_context(self) -> str:
        """The context in which an id is meant: that of the subject in the query, else of the path."""
        return Subject(self.context_or_default, "").beside(self.text("subject")).context

    # --- the query

    def text(self, *names: str) -> str:
        return next((value for name in names if (value := self.request.query_params.get(name)) is not None), "")

    def flag(self, *names: str) -> bool:
        text = self.text(*names).lower()
        if text not in (*_ON, *_OFF):
            raise RegistryFault(400, f"'{names[0]}' must be true or false, not '{text[:100]}'")
        return text in _ON

    def number(self, name: str, default: int) -> int:
        text = self.text(name)
        digits = text.removeprefix("-")
        if not text:
            return default
        if not (digits.isascii() and digits.isdecimal() and len(digits) < 11) or abs(int(text)) > MAX_INT:
            raise RegistryFault(400, f"'{name}' must be a whole number, not '{text[:100]}'")
        return int(text)

    def page(self) -> tuple[int, int | None]:
        """How many to skip, and how many at most to tell; None: as many as there are."""
        limit = self.number("limit", -1)
        return max(self.number("offset", 0), 0), None if limit < 0 else limit

    def deleted(self) -> Deleted:
        if self.flag("deletedOnly", "deleted_only"):
            return Deleted.ONLY
        return Deleted.WITH if self.flag("deleted") else Deleted.WITHOUT

    def prefix(self, default: str) -> tuple[str | None, str]:
        """Whose subjects are listed, and what their names begin with. Context None: everybody's."""
        text = self.request.query_params.get("subjectPrefix", default if self.context is None else "")
        if text.startswith(EVERY_CONTEXT):
            return None, text.removeprefix(EVERY_CONTEXT)
        return Subject(self.context_or_default, "").beside(text)

    def style(self) -> str:
        style = self.text("format")
        if style not in STYLES:
            raise invalid_body(f"format '{style[:100]}' is not known; known={','.join(sorted(STYLES - {''}))}")
        return style

    # --- the body

    async def body(self, kind: type[T], *, limit: int = ENVELOPE_BYTES) -> T:
        data = await self.bodies.read(self.request, limit=limit)
        try:
            data.decode()
            return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError as error:
            raise invalid_body(str(error)[:300]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryFault(400, f"The body is not JSON: {str(error)[:300] or 'nested too deeply'}") from None

    async def proposal(self) -> Proposal:
        return (await self.body(SchemaBody, limit=self.max_body_bytes)).proposal()


# --- answers


def schema_json(schema: StoredSchema, text: str | None = None) -> dict[str, Any]:
    """A schema without its numbers; what it doesn't have is left out."""
    told: dict[str, Any] = {"schema": schema.text if text is None else text, "schemaType": schema.type}
    told["guid"] = schema.guid
    if schema.references:
        told["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        told["metadata"] = msgspec.Raw(schema.metadata.encode())
    if schema.rule_set is not None:
        told["ruleSet"] = msgspec.Raw(schema.rule_set.encode())
    return told


def version_json(found: RegisteredSchema, text: str | None = None) -> dict[str, Any]:
    told = {"subject": str(found.subject), "version": found.version, "id": found.schema_id}
    return {**told, **schema_json(found.schema, text), "ts": found.created_at_ms, "deleted": found.deleted}


Handler = Callable[[RegistryCall], Awaitable[Any]]


class Entry(NamedTuple):
    method: str
    path: str
    handler: Handler


class Match(NamedTuple):
    handler: Handler
    path: Mapping[str, str]
    context: str | None


class Table:
    def __init__(self, entries: Iterable[Entry]) -> None:
        self._by_length: dict[int, list[tuple[Sequence[str], Entry]]] = {}
        for entry in entries:
            pattern = tuple(filter(None, entry.path.split("/")))
            self._by_length.setdefault(len(pattern), []).append((pattern, entry))

    def __repr__(self) -> str:
        return f"<Table entries={sum(map(len, self._by_length.values()))}>"

    def find(self, method: str, raw_path: bytes) -> Match:
        """What answers a request; raises `RegistryFault` with 404 or 405, or 400 for a path that is no text."""
        pieces = split_path(raw_path)
        context = None
        if pieces[:1] == ["contexts"] and len(pieces) > 2:
            context, pieces = context_name(pieces[1]), pieces[2:]
        matches = {
            entry.method: Match(entry.handler, found, context)
            for pattern, entry in self._by_length.get(len(pieces), ())
            if (found := match(pattern, pieces)) is not None
        }
        if not matches:
            raise RegistryFault(404, "HTTP 404 Not Found")
        wanted = "GET" if method == "HEAD" else method
        if wanted not in matches:
            raise RegistryFault(405, f"HTTP 405 Method Not Allowed: allowed={','.join(sorted(matches))}")
        return matches[wanted]


def split_path(raw_path: bytes) -> list[str]:
    try:
        pieces = [unquote(piece, errors="strict") for piece in raw_path.decode("ascii").split("/")]
    except UnicodeDecodeError:
        raise RegistryFault(400, "HTTP 400 Bad Request: the path is not UTF-8") from None
    return pieces[1:-1] if pieces[-1] == "" else pieces[1:]


def match(pattern: Sequence[str], pieces: Sequence[str]) -> Mapping[str, str] | None:
    """The named pieces of a path that fits."""
    found: dict[str, str] = {}
    for wanted, piece in zip(pattern, pieces, strict=True):
        if wanted.startswith("{"):
            found[wanted[1:-1]] = piece
        elif wanted != piece:
            return None
    return found
