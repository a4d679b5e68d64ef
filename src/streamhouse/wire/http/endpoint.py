"""Endpoint: the operations of one path. Requests are checked against their declaration before a handler runs.

Data path   router -> **endpoint** -> handler
Owns        the rights that an operation needs; methods, parameters, headers and JSON bodies against their types; errors
            that name the field; which bodies are decoded in a thread
Leaves      the declarations to `operations`, the handlers to `routes`, the number of elements of a body to `elements`

JSON Schema calls 3.0 an integer, and some languages write all numbers like this; msgspec does not accept it.
`whole_numbers` converts such numbers where a type has an integer, and nowhere else: values of records stay as they are.
"""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, Final, TypeVar

import msgspec
from msgspec import Raw, inspect
from starlette.requests import Request
from starlette.routing import Route
from starlette.types import Receive, Scope, Send

from streamhouse.limits import LargeWork
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http import tenants
from streamhouse.wire.http.elements import counted
from streamhouse.wire.http.errors import FieldError, Malformed, MethodNotAllowed
from streamhouse.wire.http.operations import JSON, PATH_PARAMETERS, Call, Header, Operation
from streamhouse.wire.http.request_body import RequestBodies, content_type, negotiate_type
from streamhouse.wire.http.scope import access_of

_WHOLE: Final = re.compile(rb"(-?[0-9]{1,19})\.0{1,20}")

MAX_REWRITTEN: Final = 500_000
"""Commas of a list whose numbers are rewritten, in which there are fewer than elements of the largest body."""

Rewrite = Callable[[Raw], Raw]


def whole_numbers(data: bytes, kind: Any) -> bytes:
    """The same JSON with integers such as 3.0 written as 3; raises msgspec's errors if it isn't JSON."""
    return bytes(_rewriter(inspect.type_info(kind))(Raw(data)))


def _rewriter(kind: inspect.Type) -> Rewrite:
    if isinstance(kind, inspect.Metadata):
        return _rewriter(kind.type)
    if isinstance(kind, inspect.UnionType):
        # At most one type of a union is an object, a list or a number; only these are rewritten.
        others = [_rewriter(each) for each in kind.types if _may_contain(each)]
        return others[0] if others else _as_it_is
    if isinstance(kind, inspect.IntType):
        return _whole
    if isinstance(kind, inspect.ListType):
        return _of_list(_rewriter(kind.item_type)) if _may_contain(kind.item_type) else _as_it_is
    if isinstance(kind, inspect.StructType):
        return _of_struct({each.encode_name: _rewriter(each.type) for each in kind.fields if _may_contain(each.type)})
    return _as_it_is


def _may_contain(kind: inspect.Type) -> bool:
    if isinstance(kind, inspect.Metadata):
        return _may_contain(kind.type)
    return isinstance(kind, inspect.UnionType | inspect.IntType | inspect.ListType | inspect.StructType)


def _as_it_is(raw: Raw) -> Raw:
    return raw


def _whole(raw: Raw) -> Raw:
    match = _WHOLE.fullmatch(bytes(raw))
    return raw if match is None else Raw(match[1])


def _of_list(rewrite: Rewrite) -> Rewrite:
    def of_list(raw: Raw) -> Raw:
        text = bytes(raw)
        if text[:1] != b"[" or text.count(b",") > MAX_REWRITTEN:
            return raw
        return Raw(msgspec.json.encode([rewrite(each) for each in msgspec.json.decode(raw, type=list[Raw])]))

    return of_list


def _of_struct(fields: dict[str, Rewrite]) -> Rewrite:
    def of_struct(raw: Raw) -> Raw:
        if bytes(raw).lstrip()[:1] != b"{":
            return raw
        values = msgspec.json.decode(raw, type=dict[str, Raw])
        return Raw(msgspec.json.encode({name: fields.get(name, _as_it_is)(each) for name, each in values.items()}))

    return of_struct


T = TypeVar("T")

_JSON_ERROR: Final = re.compile(r"^(?P<reason>.*?)(?: - at `(?P<key>key in )?(?P<path>.*)`)?$", re.DOTALL)
_FIELD: Final = re.compile(r"^Object (?:contains unknown|missing required) field `(.*)`$")
MAX_REASON: Final = 300
COMPACT: Final = -1
INLINE_BYTES: Final = 16 * 1024
"""Size of a JSON body up to which it is decoded on the event loop."""


class Endpoint:
    """An ASGI application for one path."""

    def __init__(
        self, path: str, operations: Sequence[Operation[Any, Any]], bodies: RequestBodies, large_bodies: LargeWork
    ) -> None:
        self.path = path
        self._bodies = bodies
        self._large_bodies = large_bodies
        self.operations = tuple(operations)
        self._by_method = {each.method: each for each in operations}
        if "GET" in self._by_method:
            self._by_method["HEAD"] = self._by_method["GET"]
        self._allow = ", ".join(self._by_method)

    def __repr__(self) -> str:
        return f"<Endpoint {self.path} {self._allow}>"

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive, send)
        operation = self._by_method.get(request.method)
        if operation is None:
            raise MethodNotAllowed(
                f"method not allowed; method={request.method[:20]} allowed={self._allow}",
                headers={"allow": self._allow},
            )
        access = access_of(scope)
        async with access.watched():
            with access.acts(f"{request.method} {request.url.path}") as acts:
                response = await operation.handler(await self._check(request, operation, access))
                acts.end()
            if tenant := access.caller.tenant:
                response = tenants.leave(tenant, operation, response)
            if operation.method == "GET":
                access.recheck()  # it may have waited for records
            await response(scope, receive, send)

    async def _check(self, request: Request, operation: Operation[Any, Any], access: RequestAccess) -> Call[Any, Any]:
        """Check a request and return it as a call: rights before anything that the caller could learn from."""
        path = read_path(request.path_params)
        if tenant := access.caller.tenant:
            tenants.require_served(access.caller, operation)
            path = tenants.enter_path(tenant, path)
        access.require_early(operation.needs, path.__getitem__)
        accepted = negotiate_type(request.headers.get("accept"), operation.response_types)
        query = read_query(request, operation.query)
        for header in operation.headers:
            check_header(request, header)
        media_type, body = "", None
        if operation.is_stated:
            media_type = content_type(request.headers.get("content-type"), operation.body_types)
            if media_type == JSON and operation.body is not None:
                data = await self._bodies.read(request, limit=operation.max_body_bytes)
                decode = partial(decode_json, data, operation.body)
                body = await self._large_bodies.run(decode, is_large=len(data) > INLINE_BYTES)
        if tenant and operation.name in tenants.SERVED:
            tenants.enter(tenant, query)
            tenants.enter(tenant, body)
        return Call(
            request=request,
            query=query,
            body=body,
            path=path,
            media_type=media_type,
            accepted=accepted,
            access=access,
        )


def make_routes(
    operations: Iterable[Operation[Any, Any]], bodies: RequestBodies, large_bodies: LargeWork
) -> list[Route]:
    """One route for each path, in the order in which paths were first declared."""
    by_path: dict[str, list[Operation[Any, Any]]] = {}
    for each in operations:
        by_path.setdefault(each.path, []).append(each)
    return [Route(path, Endpoint(path, declared, bodies, large_bodies)) for path, declared in by_path.items()]


def read_path(raw: Mapping[str, Any]) -> Mapping[str, Any]:
    values: dict[str, Any] = {}
    for name, value in raw.items():
        try:
            values[name] = msgspec.convert(value, type=PATH_PARAMETERS[name], strict=False)
        except msgspec.ValidationError as error:
            raise malformed("invalid path", error, at=f"$.{name}") from None
    return values


def read_query(request: Request, kind: type[T]) -> T:
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values:
            raise Malformed(
                f"duplicate parameter; name={name[:100]!r}",
                field_errors=[FieldError(path=f"$.{name[:100]}", reason="duplicate")],
            )
        values[name] = value
    try:
        return msgspec.convert(values, type=kind, strict=False)
    except msgspec.ValidationError as error:
        raise malformed("invalid query", error) from None


def check_header(request: Request, header: Header) -> None:
    values = request.headers.getlist(header.name)
    for value in values:
        if len(values) > 1 or len(value) > header.max_chars or not re.fullmatch(header.pattern, value):
            reason = f"must be one value of 1 to {header.max_chars} characters matching {header.pattern}"
            raise Malformed(
                f"invalid header; name={header.name} why={reason}",
                field_errors=[FieldError(path=f"$.{header.name}", reason=reason)],
            )


def decode_json(data: bytes, kind: type[T], *, at: str = "$") -> T:
    """Decode JSON to a value of this type; raises `Malformed` with the path of the error below `at`.

    `Raw` parts are compacted, and checked to be UTF-8.
    """
    try:
        if not data.isascii():
            data.decode()  # msgspec doesn't check `Raw` parts
        data = msgspec.json.format(data, indent=COMPACT)  # once for all `Raw` parts
        try:
            with counted():
                return msgspec.json.decode(data, type=kind)
        except msgspec.ValidationError as error:
            if "got `float`" not in str(error):
                raise
            data = whole_numbers(data, kind)
            with counted():
                return msgspec.json.decode(data, type=kind)
    except msgspec.DecodeError as error:
        raise malformed("invalid body", error, at=at) from None
    except UnicodeDecodeError as error:
        raise malformed("the body is not UTF-8", error, at=at) from None
    except RecursionError:
        raise malformed("invalid body", ValueError("nested too deeply"), at=at) from None


def malformed(text: str, error: Exception, *, at: str = "$") -> Malformed:
    """Split msgspec's message into reason and path."""
    match = _JSON_ERROR.match(str(error))
    assert match is not None  # it matches everything
    reason, path = match["reason"][:MAX_REASON], at + (match["path"] or "$")[1:MAX_REASON]
    reason = f"a key: {reason}" if match["key"] else reason
    if (field := _FIELD.search(reason)) is not None:
        path += f".{field[1]}"
    return Malformed(f"{text}; path={path} why={reason}", field_errors=[FieldError(path=path, reason=reason)])
