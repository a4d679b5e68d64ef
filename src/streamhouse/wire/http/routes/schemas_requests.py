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
from streamhouse.config import SchemaSettings
from streamhouse.errors import SchemaLimit
from streamhouse.limits import LargeWork
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.needs import Needs
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
from streamhouse.model.tenant import qualified
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.elements import Element, counted
from streamhouse.wire.http.endpoint import INLINE_BYTES
from streamhouse.wire.http.request_body import RequestBodies
from streamhouse.wire.http.routes.schemas_errors import RegistryFault, invalid_body, invalid_version

ENVELOPE_BYTES: Final = 64 * 1024
"""Maximum size of a request besides the text of a schema."""

MAX_INT: Final = 2**31 - 1
STYLES: Final = frozenset({"", "default", "resolved", "serialized", "ignore_extensions"})
_ON: Final = ("true", "1")
_OFF: Final = ("false", "0", "")

T = TypeVar("T")


class ReferenceBody(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    name: str
    subject: str
    version: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)]


class SchemaBody(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True, rename="camel"):
    """A schema to register, look up or compare. Fields of the registry's own responses are accepted, so that an export
    can be sent back, and ignored."""

    schema: str | None = None
    schema_type: str | None = None
    references: list[ReferenceBody] | None = None
    metadata: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    rule_set: msgspec.Raw = msgspec.field(default_factory=msgspec.Raw)
    id: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None
    version: Annotated[int, msgspec.Meta(ge=-1, le=MAX_INT)] | None = None
    subject: str | None = None
    guid: str | None = None
    ts: int | None = None
    deleted: bool | None = None
    propagate_schema_tags: bool | None = None

    def proposal(self, name_of: Callable[[str], str], settings: SchemaSettings) -> Proposal:
        """The schema; `name_of` finds the name of a subject that it refers to."""
        if len(self.references or ()) > settings.max_references:
            raise SchemaLimit("too many references", limit=settings.max_references, setting="schemas.max_references")
        return Proposal(
            type=self.schema_type or "AVRO",
            text=self.schema or "",
            references=tuple(
                Reference(each.name, name_of(each.subject), each.version) for each in self.references or ()
            ),
            metadata=_json_text("metadata", self.metadata, settings),
            rule_set=_json_text("ruleSet", self.rule_set, settings),
            schema_id=None if self.id is None or self.id < 0 else self.id,
            version=None if self.version is None or self.version <= 0 else self.version,
        )


def _json_text(name: str, raw: msgspec.Raw, settings: SchemaSettings) -> str | None:
    if bytes(raw) in (b"", b"null"):
        return None
    if len(bytes(raw)) > settings.max_schema_bytes:
        raise SchemaLimit(f"{name} is too long", limit=settings.max_schema_bytes, setting="schemas.max_schema_bytes")
    try:
        value = msgspec.json.decode(raw, type=dict[str, Any])
    except msgspec.ValidationError as error:
        raise invalid_body(f"{str(error)[:300]} - in `$.{name}`") from None
    try:
        return json.dumps({name: each for name, each in value.items() if each is not None}, sort_keys=True)
    except RecursionError:
        raise invalid_body("nested too deeply") from None


@dataclass(frozen=True, slots=True, kw_only=True)
class RegistryCall:
    """A request to the registry; `context` is the prefix of the path, or None."""

    request: Request
    bodies: RequestBodies
    path: Mapping[str, str]
    context: str | None
    large_bodies: LargeWork
    settings: SchemaSettings
    access: RequestAccess

    # --- rights

    def require_subject(self, operation: Operation, subject: Subject) -> None:
        """Raise `AccessDenied` unless the caller may do this; what has no name is the whole registry."""
        if name := str(subject):
            self.access.require(operation, ResourceType.SUBJECT, name)
        else:
            self.access.require_cluster(operation)

    def allows_subject(self, operation: Operation, subject: Subject) -> bool:
        return self.access.allows(operation, ResourceType.SUBJECT, str(subject))

    # --- tenants

    @property
    def tenant(self) -> str:
        return self.access.caller.tenant

    def name_of_subject(self, name: str) -> str:
        """The name, inside the cluster, of the subject that the caller calls so."""
        return qualified(self.tenant, name) if self.tenant and name else name

    # --- the path

    @property
    def context_or_default(self) -> str:
        return self.context or DEFAULT_CONTEXT

    def subject(self) -> Subject:
        """The subject in the path, or else the context."""
        return Subject(self.context_or_default, "").beside(self.path.get("subject", ""))

    def version(self) -> int | None:
        """The version in the path; None: latest."""
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
        """The context of an id: that of the subject in the query, or else of the path."""
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
        """Offset and limit of a listing; None: no limit."""
        limit = self.number("limit", -1)
        return max(self.number("offset", 0), 0), None if limit < 0 else limit

    def deleted(self) -> Deleted:
        if self.flag("deletedOnly", "deleted_only"):
            return Deleted.ONLY
        return Deleted.WITH if self.flag("deleted") else Deleted.WITHOUT

    def prefix(self, default: str) -> tuple[str | None, str]:
        """The context and the name prefix of the subjects to list; context None: all contexts."""
        if self.tenant:  # it has one context
            named = self.request.query_params.get("subjectPrefix", "").removeprefix(EVERY_CONTEXT)
            return DEFAULT_CONTEXT, qualified(self.tenant, named)
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

    async def body(self, kind: type[T]) -> T:
        return self._decoded(await self.bodies.read(self.request, limit=ENVELOPE_BYTES), kind)

    @staticmethod
    def _decoded(data: bytes, kind: type[T]) -> T:
        try:
            data.decode()
            with counted():
                return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError as error:
            raise invalid_body(str(error)[:300]) from None
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryFault(400, f"The body is not JSON: {str(error)[:300] or 'nested too deeply'}") from None

    async def proposal(self) -> Proposal:
        """The schema in the body; raise `AccessDenied` unless the caller may read what it refers to."""
        # In JSON a character may take six bytes.
        limit = 6 * self.settings.max_schema_bytes + ENVELOPE_BYTES
        data = await self.bodies.read(self.request, limit=limit)
        proposal = await self.large_bodies.run(
            lambda: self._decoded(data, SchemaBody).proposal(self.name_of_subject, self.settings),
            is_large=len(data) > INLINE_BYTES,
        )
        for reference in proposal.references:
            self.require_subject(Operation.READ, self.subject().beside(reference.subject))
        return proposal


# --- responses


def schema_json(schema: StoredSchema, text: str | None = None) -> dict[str, Any]:
    """A schema without id and version; empty fields are left out."""
    body: dict[str, Any] = {"schema": schema.text if text is None else text, "schemaType": schema.type}
    body["guid"] = schema.guid
    if schema.references:
        body["references"] = [each._asdict() for each in schema.references]
    if schema.metadata is not None:
        body["metadata"] = msgspec.Raw(schema.metadata.encode())
    if schema.rule_set is not None:
        body["ruleSet"] = msgspec.Raw(schema.rule_set.encode())
    return body


def version_json(registered: RegisteredSchema, text: str | None = None) -> dict[str, Any]:
    body = {"subject": str(registered.subject), "version": registered.version, "id": registered.schema_id}
    return {
        **body,
        **schema_json(registered.schema, text),
        "ts": registered.created_at_ms,
        "deleted": registered.deleted,
    }


Handler = Callable[[RegistryCall], Awaitable[Any]]


class Entry(NamedTuple):
    method: str
    path: str
    handler: Handler
    needs: Needs


class Match(NamedTuple):
    entry: Entry
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
        """The route of a request; raises `RegistryFault` with 404 or 405, or 400 for a path that isn't UTF-8."""
        pieces = split_path(raw_path)
        context = None
        if pieces[:1] == ["contexts"] and len(pieces) > 2:
            context, pieces = context_name(pieces[1]), pieces[2:]
        matches = {
            entry.method: Match(entry, parameters, context)
            for pattern, entry in self._by_length.get(len(pieces), ())
            if (parameters := match(pattern, pieces)) is not None
        }
        if not matches:
            raise RegistryFault(404, "HTTP 404 Not Found")
        method_name = "GET" if method == "HEAD" else method
        if method_name not in matches:
            raise RegistryFault(405, f"HTTP 405 Method Not Allowed: allowed={','.join(sorted(matches))}")
        return matches[method_name]


def split_path(raw_path: bytes) -> list[str]:
    try:
        pieces = [unquote(piece, errors="strict") for piece in raw_path.decode("ascii").split("/")]
    except UnicodeDecodeError:
        raise RegistryFault(400, "HTTP 400 Bad Request: the path is not UTF-8") from None
    return pieces[1:-1] if pieces[-1] == "" else pieces[1:]


def match(pattern: Sequence[str], pieces: Sequence[str]) -> Mapping[str, str] | None:
    """The parameters of a path that matches; None if it doesn't."""
    parameters: dict[str, str] = {}
    for segment, value in zip(pattern, pieces, strict=True):
        if segment.startswith("{"):
            parameters[segment[1:-1]] = value
        elif segment != value:
            return None
    return parameters
