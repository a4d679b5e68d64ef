"""Schema registry client: subjects, versions, ids and compatibility, over the agent's HTTP listener."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Final, NamedTuple, TypeAlias
from urllib.parse import quote

import msgspec

from streamhouse.client.http import RETRIABLE, Http, HttpResponse
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
from streamhouse.model.schema import Level
from streamhouse.schemas.base import SchemaType

MAX_REFERENCES: Final = 1_000

_REASON: Final = re.compile(r"errorType:\s*'(?P<kind>[^']*)', description:\s*'(?P<why>.*?)', path:\s*'(?P<path>[^']*)'")
_INVALID: Final = re.compile(r"invalid schema at (?P<path>\S+): (?P<why>.*)", re.IGNORECASE | re.DOTALL)


class VersionQuery(NamedTuple):
    """What a question was about, for its refusal."""

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
        found = await self._ask("GET", "/subjects", params={**params, "deleted": _flag(deleted)})
        return sorted(str(each) for each in found)

    async def all(self, prefix: str = "", *, latest: bool = False, deleted: bool = False) -> list[Schema]:
        """Every version of every subject, or only the latest ones, by subject."""
        params = {"subjectPrefix": prefix} if prefix else {}
        params |= {"latestOnly": _flag(latest), "deleted": _flag(deleted)}
        found = [_schema(each) for each in await self._ask("GET", "/schemas", params=params)]
        return sorted(found, key=lambda schema: (schema.subject, schema.version))

    async def versions(self, subject: str, *, deleted: bool = False) -> list[int]:
        found = await self._ask(
            "GET", f"/subjects/{_q(subject)}/versions", VersionQuery(subject), params={"deleted": _flag(deleted)}
        )
        return [int(each) for each in found]

    async def get(self, subject: str, version: int | None = None, *, deleted: bool = False) -> Schema:
        """A version of a subject, the latest unless told; raises `UnknownSchema`."""
        path = f"/subjects/{_q(subject)}/versions/{'latest' if version is None else version}"
        return _schema(await self._ask("GET", path, VersionQuery(subject, version), params={"deleted": _flag(deleted)}))

    async def latest(self, subject: str) -> Schema:
        return await self.get(subject)

    async def by_id(self, schema_id: int) -> NewSchema:
        """The schema behind an id; raises `UnknownSchema`."""
        return _text(await self._ask("GET", f"/schemas/ids/{schema_id}", VersionQuery(schema_id=schema_id)))

    async def register(self, subject: str, schema: NewSchema, *, normalize: bool = False) -> Schema:
        """Register a schema, or find it where it is registered; raises `IncompatibleSchema` or `InvalidSchema`."""
        path, params = f"/subjects/{_q(subject)}", {"normalize": _flag(normalize)}
        await self._ask("POST", f"{path}/versions", VersionQuery(subject), params=params, body=_body(schema))
        # Registries answer with the id alone; the version is found by the text.
        return _schema(await self._ask("POST", path, VersionQuery(subject), params=params, body=_body(schema)))

    async def check(self, subject: str, schema: NewSchema, *, version: int | None = None) -> Verdict:
        """Whether a schema may be registered, with the reasons; against all that its level asks for, or one version."""
        path = f"/compatibility/subjects/{_q(subject)}/versions"
        if version is not None:
            path += f"/{version}"
        told = await self._ask(
            "POST", path, VersionQuery(subject, version), params={"verbose": "true"}, body=_body(schema)
        )
        return Verdict(compatible=bool(told["is_compatible"]), messages=tuple(map(str, told.get("messages") or ())))

    async def delete(self, subject: str, version: int | None = None, *, permanent: bool = False) -> list[int]:
        """Delete a version, or a whole subject; returns what was deleted. `permanent` only after a soft delete."""
        path, params = f"/subjects/{_q(subject)}", {"permanent": _flag(permanent)}
        if version is None:
            return [int(each) for each in await self._ask("DELETE", path, VersionQuery(subject), params=params)]
        asked = VersionQuery(subject, version)
        return [int(await self._ask("DELETE", f"{path}/versions/{version}", asked, params=params))]

    async def compatibility(self, subject: str | None = None) -> str:
        """The level that holds: the subject's own, or else everybody's."""
        told = await self._ask("GET", _config(subject), VersionQuery(subject or ""), params={"defaultToGlobal": "true"})
        return str(told["compatibilityLevel"])

    async def set_compatibility(self, level: str, subject: str | None = None) -> str:
        """Set the level of a subject, or of all that have none."""
        if level.upper() not in list(Level):
            raise Rejected(f"unknown compatibility level; level={level!r} known={','.join(Level)}")
        told = await self._ask(
            "PUT", _config(subject), VersionQuery(subject or ""), body={"compatibility": level.upper()}
        )
        return str(told["compatibility"])

    async def reset_compatibility(self, subject: str) -> None:
        """Let everybody's level hold for a subject again."""
        await self._ask("DELETE", _config(subject), VersionQuery(subject))

    async def resolved(self, schema: NewSchema) -> dict[str, str]:
        """The text of everything that a schema refers to, by name, references of references included."""
        texts: dict[str, str] = {}
        wanted = list(schema.references)
        while wanted:
            reference = wanted.pop()
            if reference.name in texts:
                continue
            if len(texts) >= MAX_REFERENCES:
                raise InvalidSchema(f"too many references; limit={MAX_REFERENCES}")
            found = await self.get(reference.subject, reference.version, deleted=True)
            texts[reference.name] = found.text
            wanted += found.references
        return texts

    async def _ask(
        self,
        method: str,
        path: str,
        asked: VersionQuery = VersionQuery(),  # noqa: B008 (a tuple)
        *,
        params: Mapping[str, str] | None = None,
        body: object = None,
    ) -> Any:
        answer = await self._http.ask(method, path, params=params, body=body)
        if answer.status >= 400:
            raise error_from_response(answer, asked)
        try:
            return msgspec.json.decode(answer.content)
        except msgspec.DecodeError as error:
            raise Rejected(f"unexpected answer; path={path} why={error}") from None


_Refusal: TypeAlias = "Callable[[VersionQuery, str], StreamhouseError]"

_REFUSALS: Final[Mapping[int, _Refusal]] = {
    40401: lambda asked, text: UnknownSubject(asked.subject),
    40402: lambda asked, text: UnknownVersion(asked.subject, asked.version),
    40403: lambda asked, text: UnknownSchema(asked.subject, schema_id=asked.schema_id),
    40404: lambda asked, text: SubjectSoftDeleted(asked.subject),
    40405: lambda asked, text: SubjectNotSoftDeleted(asked.subject),
    40406: lambda asked, text: VersionSoftDeleted(asked.subject, asked.version),
    40407: lambda asked, text: VersionNotSoftDeleted(asked.subject, asked.version),
    40408: lambda asked, text: NotConfigured(asked.subject),
    409: lambda asked, text: IncompatibleSchema(asked.subject, [explain_error(text)]),
    42201: lambda asked, text: _invalid(text),
    42206: lambda asked, text: ReferenceExists(asked.subject, asked.version, why=text),
}


def error_from_response(answer: HttpResponse, asked: VersionQuery) -> StreamhouseError:
    """The error that an answer tells of, in Confluent's shape or as a problem."""
    try:
        told = msgspec.json.decode(answer.content)
    except msgspec.DecodeError:
        told = None
    told = told if isinstance(told, dict) else {}
    text = str(told.get("message") or told.get("detail") or f"refused; status={answer.status}")
    known = _REFUSALS.get(told.get("error_code", 0)) or _REFUSALS.get(answer.status)
    if known is not None:
        return known(asked, text)
    return Unavailable(text) if answer.status >= 500 or answer.status in RETRIABLE else Rejected(text)


def explain_error(message: str) -> str:
    """A registry's reason in a line: `/fields/0/type: reader type ... (TYPE_MISMATCH)`; what is none stays as it is."""
    found = [
        f"{told['path']}: {told['why']} ({told['kind']})"
        for told in (match.groupdict() for match in _REASON.finditer(message))
    ]
    return "; ".join(found) or message


def _invalid(text: str) -> InvalidSchema:
    found = _INVALID.match(text)
    return InvalidSchema(found["why"], path=found["path"]) if found else InvalidSchema(text)


def _body(schema: NewSchema) -> dict[str, object]:
    references = [{"name": r.name, "subject": r.subject, "version": r.version} for r in schema.references]
    body: dict[str, object] = {"schema": schema.text, "schemaType": schema.type}
    return {**body, "references": references} if references else body


def _text(told: Mapping[str, Any]) -> NewSchema:
    kind: SchemaType = told.get("schemaType") or "AVRO"
    return NewSchema(text=told["schema"], type=kind, references=_references(told.get("references") or ()))


def _schema(told: Mapping[str, Any]) -> Schema:
    text = _text(told)
    return Schema(
        subject=told["subject"],
        version=told["version"],
        id=told["id"],
        type=text.type,
        text=text.text,
        references=text.references,
    )


def _references(told: Sequence[Mapping[str, Any]]) -> tuple[SchemaReference, ...]:
    return tuple(SchemaReference(name=r["name"], subject=r["subject"], version=r["version"]) for r in told)


def _config(subject: str | None) -> str:
    return "/config" if subject is None else f"/config/{_q(subject)}"


def _q(subject: str) -> str:
    return quote(subject, safe="")


def _flag(value: bool) -> str:
    return "true" if value else "false"
