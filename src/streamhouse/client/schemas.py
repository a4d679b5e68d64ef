"""Schema registry client: subjects, versions, ids and compatibility, over the agent's HTTP listener."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from streamhouse.client.http import REFUSED, RETRIABLE, Http, HttpResponse
from streamhouse.client.types import NewSchema, Schema, SchemaReference, Verdict
from streamhouse.errors import (
    IncompatibleSchema,
    InvalidSchema,
    NotConfigured,
    ReferenceExists,
    Rejected,
    StreamhouseError,
    SubjectNotSoftDeleted,
    SubjectSoftDeleted,
    Unavailable,
    UnknownSchema,
    UnknownSubject,
    UnknownVersion,
    VersionNotSoftDeleted,
    VersionSoftDeleted,
)
from streamhouse.errors.base import from_text
from streamhouse.model.schema import Level
from streamhouse.schemas.base import SchemaType

MAX_REFERENCES: Final = 1_000

_REASON: Final = re.compile(r"errorType:\s*'(?P<kind>[^']*)', description:\s*'(?P<why>.*?)', path:\s*'(?P<path>[^']*)'")
_INVALID: Final = re.compile(r"invalid schema at (?P<path>\S+): (?P<why>.*)", re.IGNORECASE | re.DOTALL)


class VersionQuery(NamedTuple):
    """The purpose of a request, for error texts."""

    subject: str = ""
    version: int | None = None
    schema_id: int | None = None


class Schemas:
    """The schema registry. Use it as `client.schemas`."""

    def __init__(self, http: Http) -> None:
        self._http = http

    def __repr__(self) -> str:
        return f"<Schemas {self._http!r}>"

    async def subjects(self, prefix: str = "", *, deleted: bool = False) -> list[str]:
        """All subjects, or those whose name begins with `prefix`; `deleted`: those deleted softly as well."""
        params = {"subjectPrefix": prefix} if prefix else {}
        subjects = await self._send("GET", "/subjects", params={**params, "deleted": _flag(deleted)})
        return sorted(str(subject) for subject in subjects)

    async def all(self, prefix: str = "", *, latest: bool = False, deleted: bool = False) -> list[Schema]:
        """Every version of every subject, or only the latest ones, by subject."""
        params = {"subjectPrefix": prefix} if prefix else {}
        params |= {"latestOnly": _flag(latest), "deleted": _flag(deleted)}
        schemas = [_schema(entry) for entry in await self._send("GET", "/schemas", params=params)]
        return sorted(schemas, key=lambda schema: (schema.subject, schema.version))

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        versions = await self._send(
            "GET", f"/subjects/{_q(subject)}/versions", VersionQuery(subject), params={"deleted": _flag(deleted)}
        )
        return [int(version) for version in versions]

    async def get(self, subject: str, version: int | None = None, *, deleted: bool = False) -> Schema:
        """A version of a subject, by default the latest; raises `UnknownSchema`."""
        path = f"/subjects/{_q(subject)}/versions/{'latest' if version is None else version}"
        return _schema(
            await self._send("GET", path, VersionQuery(subject, version), params={"deleted": _flag(deleted)})
        )

    async def latest(self, subject: str) -> Schema:
        return await self.get(subject)

    async def by_id(self, schema_id: int) -> NewSchema:
        """The schema behind an id; raises `UnknownSchema`."""
        return _text(await self._send("GET", f"/schemas/ids/{schema_id}", VersionQuery(schema_id=schema_id)))

    async def register(self, subject: str, schema: NewSchema, *, normalize: bool = False) -> Schema:
        """Register a schema, or find it where it is registered; raises `IncompatibleSchema` or `InvalidSchema`."""
        path, params = f"/subjects/{_q(subject)}", {"normalize": _flag(normalize)}
        await self._send("POST", f"{path}/versions", VersionQuery(subject), params=params, body=_body(schema))
        # Registries return the id alone; the version is looked up by the text.
        return _schema(await self._send("POST", path, VersionQuery(subject), params=params, body=_body(schema)))

    async def check(self, subject: str, schema: NewSchema, *, version: int | None = None) -> Verdict:
        """Whether a schema may be registered, with the reasons if not. Checks one version, or those that the
        compatibility level requires."""
        path = f"/compatibility/subjects/{_q(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        result = await self._send(
            "POST", path, VersionQuery(subject, version), params={"verbose": "true"}, body=_body(schema)
        )
        return Verdict(compatible=bool(result["is_compatible"]), messages=tuple(map(str, result.get("messages") or ())))

    async def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> list[int]:
        """Delete a version, or a whole subject; returns what was deleted. `permanent` only after a soft delete."""
        path, params = f"/subjects/{_q(subject)}", {"permanent": _flag(permanent)}
        if version is None:
            return [int(deleted) for deleted in await self._send("DELETE", path, VersionQuery(subject), params=params)]
        query = VersionQuery(subject, version)
        return [int(await self._send("DELETE", f"{path}/versions/{version}", query, params=params))]

    async def compatibility(self, subject: str | None = None) -> str:
        """The effective level: the subject's own, or the global one."""
        config = await self._send(
            "GET", _config(subject), VersionQuery(subject or ""), params={"defaultToGlobal": "true"}
        )
        return str(config["compatibilityLevel"])

    async def set_compatibility(self, level: str, subject: str | None = None) -> str:
        """Set the level of a subject, or the global one."""
        if level.upper() not in list(Level):
            raise Rejected(f"unknown compatibility level; level={level!r} known={','.join(Level)}")
        config = await self._send(
            "PUT", _config(subject), VersionQuery(subject or ""), body={"compatibility": level.upper()}
        )
        return str(config["compatibility"])

    async def reset_compatibility(self, subject: str) -> None:
        """Remove a subject's own level: the global one applies."""
        await self._send("DELETE", _config(subject), VersionQuery(subject))

    async def resolved(self, schema: NewSchema) -> dict[str, str]:
        """The texts of all schemas that a schema refers to, directly or indirectly, by name."""
        texts: dict[str, str] = {}
        pending = list(schema.references)
        while pending:
            reference = pending.pop()
            if reference.name in texts:
                continue
            if len(texts) >= MAX_REFERENCES:
                raise InvalidSchema(f"too many references; limit={MAX_REFERENCES}")
            referenced = await self.get(reference.subject, reference.version, deleted=True)
            texts[reference.name] = referenced.text
            pending += referenced.references
        return texts

    async def _send(
        self,
        method: str,
        path: str,
        query: VersionQuery = VersionQuery(),  # noqa: B008 (a tuple)
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Any:
        response = await self._http.send(method, path, params=params, body=body)
        if response.status >= 400:
            raise error_from_response(response, query)
        try:
            return msgspec.json.decode(response.content)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected response; path={path} why={error}") from None


_ErrorFactory: TypeAlias = "Callable[[VersionQuery, str], StreamhouseError]"

_ERRORS_BY_CODE: Final[Mapping[int, _ErrorFactory]] = {
    40401: lambda query, text: UnknownSubject(query.subject),
    40402: lambda query, text: UnknownVersion(query.subject, query.version),
    40403: lambda query, text: UnknownSchema(query.subject, schema_id=query.schema_id),
    40404: lambda query, text: SubjectSoftDeleted(query.subject),
    40405: lambda query, text: SubjectNotSoftDeleted(query.subject),
    40406: lambda query, text: VersionSoftDeleted(query.subject, query.version),
    40407: lambda query, text: VersionNotSoftDeleted(query.subject, query.version),
    40408: lambda query, text: NotConfigured(query.subject),
    409: lambda query, text: IncompatibleSchema(query.subject, [explain_error(text)]),
    42201: lambda query, text: _invalid(text),
    42206: lambda query, text: ReferenceExists(query.subject, query.version, why=text),
}


def error_from_response(response: HttpResponse, query: VersionQuery) -> StreamhouseError:
    """The error of a response, in Confluent's format or as a problem."""
    try:
        body = msgspec.json.decode(response.content)
    except msgspec.DecodeError:
        body = None
    body = body if isinstance(body, dict) else {}
    text = str(body.get("message") or body.get("detail") or f"refused; status={response.status}")
    known = _ERRORS_BY_CODE.get(body.get("error_code", 0)) or _ERRORS_BY_CODE.get(response.status)
    if known is not None:
        return known(query, text)
    if (refused := REFUSED.get(response.status)) is not None:
        return from_text(refused, text)
    return Unavailable(text) if response.status >= 500 or response.status in RETRIABLE else Rejected(text)


def explain_error(message: str) -> str:
    """A registry's reason as one line: `/fields/0/type: reader type ... (TYPE_MISMATCH)`; others unchanged."""
    reasons = [
        f"{reason['path']}: {reason['why']} ({reason['kind']})"
        for reason in (match.groupdict() for match in _REASON.finditer(message))
    ]
    return "; ".join(reasons) or message


def _invalid(text: str) -> InvalidSchema:
    match = _INVALID.match(text)
    return InvalidSchema(match["why"], path=match["path"]) if match else InvalidSchema(text)


def _body(schema: NewSchema) -> dict[str, object]:
    references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
    body: dict[str, object] = {"schema": schema.text, "schemaType": schema.type}
    return {**body, "references": references} if references else body


def _text(entry: Mapping[str, Any]) -> NewSchema:
    kind: SchemaType = entry.get("schemaType") or "AVRO"
    return NewSchema(text=entry["schema"], type=kind, references=_references(entry.get("references") or ()))


def _schema(entry: Mapping[str, Any]) -> Schema:
    text = _text(entry)
    return Schema(
        subject=entry["subject"],
        version=entry["version"],
        id=entry["id"],
        type=text.type,
        text=text.text,
        references=text.references,
    )


def _references(entries: Sequence[Mapping[str, Any]]) -> tuple[SchemaReference, ...]:
    return tuple(
        SchemaReference(name=entry["name"], subject=entry["subject"], version=entry["version"]) for entry in entries
    )


def _config(subject: str | None) -> str:
    return "/config" if subject is None else f"/config/{_q(subject)}"


def _q(subject: str) -> str:
    return quote(subject, safe="")


def _flag(value: bool) -> str:
    return "true" if value else "false"
