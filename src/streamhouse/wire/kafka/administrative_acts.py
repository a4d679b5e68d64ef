"""Administrative acts: writes the outcome of each requested change to the audit log, resource by resource.

Only handlers of APIs that need a right to administer something are wrapped; records are produced and fetched without.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import cache, wraps
from typing import Any, Final, NamedTuple, TypeVar

from streamhouse.broker.security.access_control import ADMINISTRATIVE
from streamhouse.broker.security.audit import Acts
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import CLUSTER_NAME
from streamhouse.model.needs import Needs
from streamhouse.wire.kafka.context import Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.schema import Response, fields_of

R = TypeVar("R")

CODE: Final = "error_code"
MESSAGE: Final = "error_message"


def is_administrative(needs: Needs) -> bool:
    return any(right.operation in ADMINISTRATIVE for need in needs.all_of for right in need.rights)


def audited(
    handle: Callable[[Context, R], Awaitable[HandlerResult]],
) -> Callable[[Context, R], Awaitable[HandlerResult]]:
    """The handler, whose acts are recorded with their outcomes."""

    @wraps(handle)
    async def handle_and_record(context: Context, request: R) -> HandlerResult:
        with context.broker.security.audit.acts(context.api) as acts:
            result = await handle(context, request)
        if isinstance(result, PendingResponse):
            return AuditedResponse(result, acts)
        await end_acts(acts, result)
        return result

    return handle_and_record


class AuditedResponse(PendingResponse):
    __slots__ = ("_acts", "_pending")

    def __init__(self, pending: PendingResponse, acts: Acts) -> None:
        self._pending = pending
        self._acts = acts

    def is_ready(self) -> bool:
        return self._pending.is_ready()

    async def respond(self) -> Response:
        try:
            response = await self._pending.respond()
        except BaseException:
            self._acts.end(lambda _: True)
            raise
        await end_acts(self._acts, response)
        return response


async def end_acts(acts: Acts, response: Response | None) -> None:
    """Record what became of the acts. An act has failed if an error is beside its name, or one that names nothing.
    Other clients have their turn while a long response is read."""
    names: set[str] = set()
    has_failed = concerns_all = False
    if acts.events and response is not None:
        async for struct in iterate_fairly(_structs(response)):
            if getattr(struct, CODE, 0):
                texts = {text for text in _texts(struct) if isinstance(text, str)}
                names |= texts
                has_failed, concerns_all = True, concerns_all or not texts
    acts.end(lambda name: name in names or concerns_all or (name == CLUSTER_NAME and has_failed))


class _Fields(NamedTuple):
    """Which fields of a struct are texts, and which are lists of structs."""

    texts: tuple[str, ...]
    structs: tuple[str, ...]


@cache
def _fields(kind: type) -> _Fields:
    fields = fields_of(kind)
    return _Fields(
        texts=tuple(each.name for each in fields if each.type == "string" and each.name != MESSAGE),
        structs=tuple(each.name for each in fields if isinstance(each.type, list) and isinstance(each.type[0], type)),
    )


def _texts(struct: Any) -> Iterator[str | None]:
    kind: type = type(struct)
    return (getattr(struct, name) for name in _fields(kind).texts)


def _structs(struct: Any) -> Iterator[Any]:
    """A struct, and all that are in its lists."""
    yield struct
    kind: type = type(struct)
    for name in _fields(kind).structs:
        for part in getattr(struct, name) or ():
            yield from _structs(part)
