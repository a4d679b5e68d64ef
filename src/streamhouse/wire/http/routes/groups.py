"""Consumer groups: describe them, reset their offsets, delete them; any agent serves all groups.

GET    /v1/groups                  all groups
GET    /v1/groups/{group}          its members, and the partitions assigned to each
GET    /v1/groups/{group}/lag      committed offsets and lag of its partitions, in records and in time
GET    /v1/lag                     the lag of all groups as it was last measured; ?history=true with that of a day
POST   /v1/groups/{group}/reset    {"to": "earliest"} or {"offset": 7} or {"timestamp_ms": …} or {"shift": -10}
DELETE /v1/groups/{group}          delete it with its offsets; like a reset, only without members
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Annotated, Any, Final, Literal

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.groups.assignments import find_assigned
from streamhouse.errors import GroupNotFound, UnknownTopic
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.group import CommittedOffset, GroupState
from streamhouse.model.group_lag import (
    GroupHealth,
    GroupLag,
    LagHistory,
    LagSample,
    PartitionLag,
    records_per_s,
    thinned,
)
from streamhouse.model.group_requests import DescribedGroup, DescribedMember, ListedGroup, OffsetToCommit
from streamhouse.model.names import TopicPartition
from streamhouse.model.needs import Right, all_of, lists, need, needs
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.elements import Element
from streamhouse.wire.http.errors import FieldError, Unprocessable
from streamhouse.wire.http.operations import MAX_BODY_BYTES, MAX_INT, MAX_LONG, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.records.pages import each_of
from streamhouse.wire.http.records.topic_reader import first_offset

TAG: Final = "groups"
WAYS: Final = ("to", "offset", "timestamp_ms", "shift")

GROUPS_AT_ONCE: Final = 25
"""Groups whose histories are read together."""

MAX_SAMPLES: Final = 50_000
"""Samples in a list of all groups with their histories; one of each group, if there are more groups."""


class GroupView(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    state: str
    protocol_type: str


class Groups(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[GroupView]


class Place(msgspec.Struct, frozen=True, kw_only=True):
    topic: str
    partition: int


class MemberView(msgspec.Struct, frozen=True, kw_only=True):
    member: str
    client: str
    host: str
    instance: str | None
    assigned: list[Place]


class GroupDetails(GroupView, frozen=True, kw_only=True):
    """A group with its members; `protocol` and assignments are known while the group is stable. Partitions that don't
    exist are left out, whatever was assigned."""

    protocol: str
    members: list[MemberView]


class Standing(msgspec.Struct, frozen=True, kw_only=True):
    """The position of a group in a partition. `committed` is null without a committed offset; `lag` then counts from
    the log start. `lag_ms` is the age of the first record that is not committed. `end` and `lag` are null if the topic
    was deleted or the leader is unavailable. `stuck`: records wait, and the committed offset did not move lately."""

    topic: str
    partition: int
    committed: int | None
    committed_at_ms: int | None
    end: int | None
    lag: int | None
    lag_ms: int | None
    stuck: bool
    member: str | None
    metadata: str


class LagSampleView(msgspec.Struct, frozen=True, kw_only=True):
    at_ms: int
    lag: int
    lag_ms: int | None


class GroupLagView(msgspec.Struct, frozen=True, kw_only=True):
    """The lag of a group: `lag` is the sum of the known lags of its partitions, `lag_ms` the longest of theirs.
    `records_per_second` is how it changed in the last ten minutes, negative while the group catches up."""

    group: str
    health: GroupHealth
    at_ms: int | None
    lag: int
    lag_ms: int | None
    records_per_second: float | None
    history: list[LagSampleView]


class Lag(GroupLagView, frozen=True, kw_only=True):
    """With all partitions of topics that the group has committed offsets of, or that its members read."""

    partitions: list[Standing]


class GroupLags(msgspec.Struct, frozen=True, kw_only=True):
    groups: list[GroupLagView]


class LagQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    history: Annotated[bool, Meta(description="with samples of the last day")] = False


class ResetTopic(Element, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic whose offsets are reset; without `partitions` all partitions."""

    topic: str
    partitions: list[Annotated[int, Meta(ge=0, le=MAX_INT)]] | None = None


class Reset(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The target: one of `to`, `offset`, `timestamp_ms` and `shift`, limited to the offsets of the log. Without
    `topics` all partitions with committed offsets are reset."""

    to: Literal["earliest", "latest"] | None = None
    offset: Annotated[int, Meta(ge=0, le=MAX_LONG)] | None = None
    timestamp_ms: Annotated[int, Meta(ge=0, le=MAX_LONG)] | None = None
    shift: Annotated[int, Meta(ge=-MAX_LONG, le=MAX_LONG)] | None = None
    topics: list[ResetTopic] | None = None
    dry_run: bool = False


class Moved(msgspec.Struct, frozen=True, kw_only=True):
    """`before` is null without a committed offset."""

    topic: str
    partition: int
    before: int | None
    after: int


class ResetDone(msgspec.Struct, frozen=True, kw_only=True):
    group: str
    partitions: list[Moved]


class GroupCalls:
    """Operations on groups; the broker forwards them to the coordinator."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def list_groups(self, call: Call[NoQuery, None]) -> Response:
        groups = await self._visible_groups(call.access)
        views = [GroupView(group=each.group_id, state=each.state, protocol_type=each.protocol_type) for each in groups]
        return json_response(Groups(groups=views))

    async def _visible_groups(self, access: RequestAccess) -> Sequence[ListedGroup]:
        groups = await self._broker.records.groups()
        if access.allows_cluster(AclOperation.DESCRIBE) and not access.caller.tenant:
            return groups
        return [each for each in groups if access.allows(AclOperation.DESCRIBE, ResourceType.GROUP, each.group_id)]

    async def get_group(self, call: Call[NoQuery, None]) -> Response:
        group = await self._broker.records.describe_group(call.path["group"])
        if group.state is GroupState.DEAD:
            raise GroupNotFound(group.group_id)
        return json_response(_details(group, await find_assigned(group, await self._broker.catalog.by_name())))

    async def get_lag(self, call: Call[NoQuery, None]) -> Response:
        lag = await self._broker.records.lag(call.path["group"])
        visible = [each for each in lag.partitions if call.access.allows_topic(AclOperation.DESCRIBE, each.name.topic)]
        if len(visible) < len(lag.partitions):  # what is kept is of all of them
            lag = replace(lag, partitions=visible, samples=())
        return json_response(_lag_view(lag))

    async def list_lags(self, call: Call[LagQuery, None]) -> Response:
        groups = await self._visible_groups(call.access)
        most = max(MAX_SAMPLES // max(len(groups), 1), 1) if call.query.history else 0
        views = list[GroupLagView]()
        for start in range(0, len(groups), GROUPS_AT_ONCE):  # a day of a group is hundreds of samples
            part = groups[start : start + GROUPS_AT_ONCE]
            histories = await self._broker.records.lag_histories([each.group_id for each in part])
            by_id = {each.group_id: each for each in histories}
            views += [_history_view(by_id.get(each.group_id, LagHistory(each.group_id)), each, most) for each in part]
        return json_response(GroupLags(groups=views))

    async def reset_group(self, call: Call[NoQuery, Reset]) -> Response:
        group, reset = call.path["group"], call.body
        check_reset(reset)
        for each in reset.topics or ():
            call.access.require_topic(AclOperation.READ, each.topic)
        committed = await _committed(self._broker, group)
        names = await _named(self._broker, reset, committed)
        for name in names:
            call.access.require_topic(AclOperation.READ, name.topic)
        places = await each_of(names, lambda name: _target(self._broker, name, reset, committed.get(name)))
        moves = {name: place for name, place in places.items() if place is not None}
        if moves and not reset.dry_run:
            outcomes = await self._broker.records.commit(
                group, {name: OffsetToCommit(offset=offset) for name, offset in moves.items()}
            )
            for error in outcomes.values():
                if error is not None:
                    raise error
        changes = [_moved_view(name, committed.get(name), moves[name]) for name in sorted(moves)]
        return json_response(ResetDone(group=group, partitions=changes))

    async def delete_group(self, call: Call[NoQuery, None]) -> Response:
        await self._broker.records.delete_group(call.path["group"])
        return Response(status_code=204)


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = GroupCalls(broker)
    one = "/v1/groups/{group:path}"
    return [
        Operation(
            method="GET",
            path="/v1/groups",
            handler=calls.list_groups,
            needs=lists(AclOperation.DESCRIBE, ResourceType.GROUP, about="all of them with describe on the cluster"),
            summary="List consumer groups",
            tag=TAG,
            query=NoQuery,
            response=Groups,
        ),
        Operation(
            method="GET",
            path="/v1/lag",
            handler=calls.list_lags,
            needs=lists(AclOperation.DESCRIBE, ResourceType.GROUP, about="all of them with describe on the cluster"),
            summary="Lag of all groups",
            about="As the agents that coordinate them last measured it: `at_ms` says when. Histories of many groups "
            "have fewer samples each, the largest ones.",
            tag=TAG,
            query=LagQuery,
            response=GroupLags,
        ),
        Operation(
            method="GET",
            path=one + "/lag",
            handler=calls.get_lag,
            needs=all_of(
                need((AclOperation.DESCRIBE, ResourceType.GROUP, "group")),
                lists=(Right(AclOperation.DESCRIBE, ResourceType.TOPIC),),
            ),
            summary="Committed offsets and lag of a group",
            tag=TAG,
            query=NoQuery,
            response=Lag,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path=one + "/reset",
            handler=calls.reset_group,
            needs=all_of(
                need((AclOperation.READ, ResourceType.GROUP, "group")), need((AclOperation.READ, ResourceType.TOPIC))
            ),
            summary="Reset the offsets of a group without members",
            about="Creates an unknown group; then `topics` are required.",
            tag=TAG,
            query=NoQuery,
            body=Reset,
            max_body_bytes=MAX_BODY_BYTES,
            response=ResetDone,
            problems=(404, 409),
        ),
        Operation(
            method="GET",
            path=one,
            handler=calls.get_group,
            needs=needs(AclOperation.DESCRIBE, ResourceType.GROUP, "group"),
            summary="A group with its members and assignments",
            tag=TAG,
            query=NoQuery,
            response=GroupDetails,
            problems=(404,),
        ),
        Operation(
            method="DELETE",
            path=one,
            handler=calls.delete_group,
            needs=needs(AclOperation.DELETE, ResourceType.GROUP, "group"),
            summary="Delete a group without members, with its committed offsets",
            tag=TAG,
            query=NoQuery,
            status=204,
            problems=(404, 409),
        ),
    ]


# --- describe


def _details(group: DescribedGroup, assigned: Mapping[str, Sequence[TopicPartition]]) -> GroupDetails:
    return GroupDetails(
        group=group.group_id,
        state=group.state,
        protocol_type=group.protocol_type,
        protocol=group.protocol,
        members=[_member(each, assigned[each.member_id]) for each in group.members],
    )


def _member(member: DescribedMember, assigned: Sequence[TopicPartition]) -> MemberView:
    return MemberView(
        member=member.member_id,
        client=member.client_id,
        host=member.client_host.removeprefix("/"),
        instance=member.instance_id,
        assigned=[Place(topic=each.topic, partition=each.partition) for each in assigned],
    )


def _lag_view(lag: GroupLag) -> Lag:
    samples = (*lag.samples, lag.sample)
    return Lag(
        group=lag.group_id,
        health=lag.health,
        at_ms=lag.at_ms,
        lag=lag.sample.records,
        lag_ms=lag.sample.lag_ms,
        records_per_second=records_per_s(samples),
        history=[_sample_view(each) for each in samples],
        partitions=[_standing(each, now_ms=lag.at_ms) for each in lag.partitions],
    )


def _history_view(history: LagHistory, group: ListedGroup, most: int) -> GroupLagView:
    """With at most `most` samples."""
    last = history.samples[-1] if history.samples else None
    return GroupLagView(
        group=group.group_id,
        health=history.health(has_members=group.state is not GroupState.EMPTY),
        at_ms=last.at_ms if last else None,
        lag=last.records if last else 0,
        lag_ms=last.lag_ms if last else None,
        records_per_second=records_per_s(history.samples),
        history=[_sample_view(each) for each in thinned(history.samples, most)],
    )


def _sample_view(sample: LagSample) -> LagSampleView:
    return LagSampleView(at_ms=sample.at_ms, lag=sample.records, lag_ms=sample.lag_ms)


def _standing(lag: PartitionLag, *, now_ms: int) -> Standing:
    committed = lag.committed
    return Standing(
        topic=lag.name.topic,
        partition=lag.name.partition,
        committed=None if committed is None else committed.offset,
        committed_at_ms=None if committed is None else committed.committed_at_ms,
        end=lag.end,
        lag=lag.lag,
        lag_ms=lag.lag_ms,
        stuck=lag.is_stuck(now_ms),
        member=lag.member_id,
        metadata="" if committed is None else committed.metadata,
    )


# --- reset


def check_reset(reset: Reset) -> None:
    if sum(getattr(reset, way) is not None for way in WAYS) != 1:
        reason = f"give exactly one of {', '.join(WAYS)}"
        raise Unprocessable(reason, field_errors=[FieldError(path="$", reason=reason)])


async def _committed(broker: Broker, group: str) -> Mapping[TopicPartition, CommittedOffset]:
    try:
        return await broker.records.committed(group)
    except GroupNotFound:
        return {}


async def _named(
    broker: Broker, reset: Reset, committed: Mapping[TopicPartition, CommittedOffset]
) -> Sequence[TopicPartition]:
    """The partitions to reset."""
    if reset.topics is None:
        if not committed:
            reason = "the group has committed nothing: say which topics"
            raise Unprocessable(reason, field_errors=[FieldError(path="$.topics", reason=reason)])
        return list(committed)
    names: dict[TopicPartition, None] = {}
    for each in reset.topics:
        topic = await broker.topic(each.topic)
        for number in range(topic.partitions) if each.partitions is None else each.partitions:
            if number >= topic.partitions:
                raise UnknownTopic(TopicPartition(topic.name, number))
            names[TopicPartition(topic.name, number)] = None
    return list(names)


async def _target(broker: Broker, name: TopicPartition, reset: Reset, committed: CommittedOffset | None) -> int | None:
    """The new offset of a partition, within the log; None if there is no committed offset to shift."""
    if reset.to is not None or reset.timestamp_ms is not None:
        return await first_offset(broker, name, reset.to or str(reset.timestamp_ms))
    if reset.shift is not None and committed is None:
        return None
    offset = reset.offset if reset.offset is not None else (committed.offset if committed else 0) + (reset.shift or 0)
    start, end = (await broker.records.earliest(name)).offset, (await broker.records.latest(name)).offset
    return min(max(offset, start), end)


def _moved_view(name: TopicPartition, before: CommittedOffset | None, after: int) -> Moved:
    return Moved(
        topic=name.topic, partition=name.partition, before=None if before is None else before.offset, after=after
    )
