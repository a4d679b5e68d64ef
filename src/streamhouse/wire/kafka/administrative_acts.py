"""Administrative acts: the audit log is told what became of those that a request asked for, resource by resource.

Only handlers of APIs that need a right to administer something are wrapped; records are produced and fetched without.
"""

from collections.abc import Awaitable, Callable, Iterator
from functools import wraps
from typing import Any, TypeVar

from streamhouse.broker.security.access_control import ADMINISTRATIVE
from streamhouse.broker.security.audit import Acts
from streamhouse.model.access import CLUSTER_NAME
from streamhouse.model.needs import Needs
from streamhouse.wire.kafka.context import Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.schema import Response, fields_of

R = TypeVar("R")


def is_administrative(needs: Needs) -> bool:
    return any(right.operation in ADMINISTRATIVE for need in needs.all_of for right in need.rights)


def audited(
    handle: Callable[[Context, R], Awaitable[HandlerResult]],
) -> Callable[[Context, R], Awaitable[HandlerResult]]:
    """The handler, whose acts are recorded with their outcomes."""

    @wraps(handle)
    async def handle_and_record(context: Context, request: R) -> HandlerResult:
        with context.broker.security.audit.acts() as acts:
            result = await handle(context, request)
        if isinstance(result, PendingResponse):
            return AuditedResponse(result, acts)
        acts.end(_failures(result))
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
        self._acts.end(_failures(response))
        return response


def _failures(response: Response | None) -> Callable[[str], bool]:
    """Whether the act on a resource failed: an error beside its name, or one that names nothing."""
    failed = [frozenset(texts) for texts in _errors(response)] if response is not None else []
    names = frozenset().union(*failed)
    concerns_all = frozenset() in failed
    return lambda name: name in names or concerns_all or (name == CLUSTER_NAME and bool(failed))


def _errors(struct: Any) -> Iterator[list[str]]:
    """The texts beside each error code."""
    fields = fields_of(type(struct))
    values = [(each.name, getattr(struct, each.name)) for each in fields]
    if getattr(struct, "error_code", 0):
        yield [value for name, value in values if isinstance(value, str) and name != "error_message"]
    for each, (_, value) in zip(fields, values, strict=True):
        if isinstance(each.type, list) and isinstance(each.type[0], type):
            for part in value or ():
                yield from _errors(part)
