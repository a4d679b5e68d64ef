"""API registry: the Kafka APIs that are served, with versions and handlers, and those that are not, with the reason.

Owns        the table of APIs, and the text of docs/protocol-support.md, which is generated from it
Leaves      the meaning of an API to its handler

A test fails if an API of Kafka is neither served nor listed as unsupported, or both.
"""

import inspect
import sys
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Final, TypeVar

from streamhouse.model.needs import Needs
from streamhouse.wire.kafka.administrative_acts import audited, is_administrative
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.messages import REQUESTS, UNSERVED
from streamhouse.wire.kafka.schema import NEVER, Request

UNSUPPORTED: Final[Mapping[str, str]] = {
    name: reason
    for reason, names in {
        "there is no quorum of controllers: facts are in the metadata store": (
            "DescribeQuorum",
            "AddRaftVoter",
            "RemoveRaftVoter",
            "UnregisterController",
        ),
        "agents come and go by their sessions, which end by themselves": ("UnregisterBroker",),
        "the features that are offered can't be turned on or off": ("UpdateFeatures",),
        "groups are of the classic kind: with `group.protocol=consumer` Java fails and librdkafka reads nothing": (
            "ConsumerGroupHeartbeat",
        ),
        "no share groups": (
            "ShareGroupHeartbeat",
            "ShareGroupDescribe",
            "ShareFetch",
            "ShareAcknowledge",
            "DescribeShareGroupOffsets",
            "AlterShareGroupOffsets",
            "DeleteShareGroupOffsets",
        ),
        "groups are of the classic kind: Kafka Streams with `group.protocol=streams` fails, `classic` works": (
            "StreamsGroupHeartbeat",
            "StreamsGroupDescribe",
            "StreamsGroupTopologyDescriptionUpdate",
        ),
    }.items()
    for name in names
}

R = TypeVar("R", bound=Request)

OUTLIVING: Final = frozenset({0, 8, 13})
"""Produce, OffsetCommit and LeaveGroup: clients that are closing don't always wait for the response."""

TO_EVERY_AGENT: Final = frozenset({16})
"""ListGroups, the only call that librdkafka sends to every agent."""

Handler = Callable[[Context, R], Awaitable[HandlerResult]]


@dataclass(frozen=True, slots=True, kw_only=True)
class Api:
    """One API: versions `first` to `last` are served; `advertised` is the first version in ApiVersions."""

    key: int
    name: str
    first: int
    last: int
    advertised: int
    request: type[Request]
    needs: Needs
    handle: Handler[Request]
    about: str

    @property
    def outlives_client(self) -> bool:
        """Whether a request is handled although its client has disconnected."""
        return self.key in OUTLIVING

    @property
    def goes_to_every_agent(self) -> bool:
        return self.key in TO_EVERY_AGENT

    def handles(self, version: int) -> bool:
        return self.first <= version <= self.last


_apis: Final[dict[int, Api]] = {}
APIS: Final[Mapping[int, Api]] = MappingProxyType(_apis)


def handles(
    request: type[R], versions: tuple[int, int], *, needs: Needs, advertised: int | None = None
) -> Callable[[Handler[R]], Handler[R]]:
    """Register the decorated function for an API's versions, first and last included, with the rights it asks for."""
    first, last = versions
    assert REQUESTS[request.api_key] is request
    assert request.min_version <= first <= last <= request.max_version, f"{request.name} has no such versions"

    def register(handle: Handler[R]) -> Handler[R]:
        assert request.api_key not in _apis, f"{request.name} is served twice"
        _apis[request.api_key] = Api(
            key=request.api_key,
            name=request.name,
            first=first,
            last=last,
            advertised=first if advertised is None else advertised,
            request=request,
            needs=needs,
            handle=audited(handle) if is_administrative(needs) else handle,  # type: ignore[arg-type]
            about=inspect.cleandoc(sys.modules[handle.__module__].__doc__ or ""),
        )
        return handle

    return register


def describe() -> str:
    """docs/protocol-support.md."""
    rows = "".join(_row(api) for _, api in sorted(APIS.items()))
    absent = "".join(f"| {key} | {name} | {UNSUPPORTED[name]} |\n" for key, name in sorted(UNSERVED.items()))
    details = "\n".join(f"## {api.name}\n\n```text\n{api.about}\n```\n" for _, api in sorted(APIS.items()))
    return (
        "# Kafka protocol support\n\n"
        "Generated from the handlers by `make docs`; a test fails when it is stale.\n\n"
        "| key | API | versions | flexible from |\n|---:|---|---|---:|\n"
        f"{rows}\n"
        "Not served and not in ApiVersions; a connection that uses one of them is closed:\n\n"
        "| key | API | why |\n|---:|---|---|\n"
        f"{absent}\n"
        f"{details}"
    )


def _row(api: Api) -> str:
    versions = f"{api.first}-{api.last}"
    if api.advertised != api.first:
        versions += f" (advertised from {api.advertised})"
    flexible_since = "never" if api.request.flexible_since == NEVER else api.request.flexible_since
    return f"| {api.key} | [{api.name}](#{api.name.lower()}) | {versions} | {flexible_since} |\n"
