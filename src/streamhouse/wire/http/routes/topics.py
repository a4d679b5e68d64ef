"""Topics: create, describe, change and delete them.

GET    /v1/topics                         all topics; with `sizes=1` and their sizes
GET    /v1/topic-settings                 the settings that topics may have, with what each one means
POST   /v1/topics                         {"name": "orders", "partitions": 12, "settings": {"retention.ms": 3600000}}
GET    /v1/topics/{topic}                 one topic, with all effective settings
PATCH  /v1/topics/{topic}                 {"partitions": 24, "settings": {"retention.ms": null}}; null: the default
DELETE /v1/topics/{topic}                 with all its records
POST   /v1/topics/{topic}/flush           flush all acknowledged records into segments now
GET    /v1/topics/{topic}/partitions      offsets and leader of each partition
"""

from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Final

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.group import OFFSETS_TOPIC
from streamhouse.model.needs import LOGGED_IN, all_of, lists, need, needs
from streamhouse.model.topic import Topic, topic_values
from streamhouse.model.topic_settings import TOPIC_SETTINGS
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.operations import MAX_BODY_BYTES, MAX_INT, Call, NoQuery, Operation, json_response
from streamhouse.wire.http.records.pages import ends_of
from streamhouse.wire.http.routes.partitions import Partitions, view

TAG: Final = "topics"
ENDS_TIMEOUT_S: Final = 2.0
"""A page that shows partitions doesn't wait longer for the leader of one."""
SETTINGS_ABOUT: Final = "settings are shown with describe-configs"
Setting = str | int | float | bool
Count = Annotated[int, Meta(ge=1, le=MAX_INT, description="number of partitions; it can only grow")]


class TopicView(msgspec.Struct, frozen=True, kw_only=True):
    """A topic; `settings` are its own settings. `bytes` is null where sizes were not requested."""

    name: str
    id: str
    partitions: int
    created_at_ms: int
    internal: bool
    settings: dict[str, str]
    bytes: int | None = None


class TopicDetails(TopicView, frozen=True, kw_only=True):
    """A topic with all effective settings: its own, and the current defaults."""

    effective_settings: dict[str, str]


class SettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting that topics may have. `default` is that of the cluster now; `broker_setting` is Kafka's name for it."""

    name: str
    type: str
    default: str
    about: str
    broker_setting: str


class Settings(msgspec.Struct, frozen=True, kw_only=True):
    settings: list[SettingView]


class Topics(msgspec.Struct, frozen=True, kw_only=True):
    topics: list[TopicView]


class NewTopic(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """A topic to create; without `partitions` it gets the agent's default number."""

    name: Annotated[str, Meta(pattern=r"^[A-Za-z0-9._-]{1,249}\Z", description="letters, digits and . _ -")]
    partitions: Count | None = None
    settings: dict[str, Setting] = {}


class TopicChange(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """Changes; a setting that is null is reset to its default."""

    partitions: Count | None = None
    settings: dict[str, Setting | None] = {}


class ListQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    internal: Annotated[bool, Meta(description="include internal topics")] = False
    sizes: Annotated[bool, Meta(description="with the size of each topic")] = False


class ChangeQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    dry_run: Annotated[bool, Meta(description="check only; change nothing")] = False


class FlushQuery(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    everywhere: Annotated[bool, Meta(description="include partitions led by other agents")] = True


class TopicCalls:
    """Operations on topics."""

    def __init__(self, broker: Broker) -> None:
        self._broker = broker

    async def _details(self, topic: Topic, access: RequestAccess) -> TopicDetails:
        sizes = await self._sizes([topic])
        values = topic_values(topic.overrides, self._broker.catalog.dynamic.topic_defaults)
        return TopicDetails(
            **msgspec.structs.asdict(_view(topic, access, size=sizes[topic.name])),
            effective_settings=dict(values) if _shows_settings(topic, access) else {},
        )

    async def list_topics(self, call: Call[ListQuery, None]) -> Response:
        access, query = call.access, call.query
        topics = [
            topic
            for topic in await self._broker.topics()
            if (query.internal or not _is_internal(topic)) and access.allows_topic(AclOperation.DESCRIBE, topic.name)
        ]
        sizes = await self._sizes(topics) if query.sizes else {}
        return json_response(Topics(topics=[_view(topic, access, size=sizes.get(topic.name)) for topic in topics]))

    async def list_topic_settings(self, _: Call[NoQuery, None]) -> Response:
        defaults = topic_values({}, self._broker.catalog.dynamic.topic_defaults)
        views = [
            SettingView(
                name=name,
                type=setting.type.value,
                default=defaults.get(name, setting.default),
                about=setting.about,
                broker_setting=setting.synonym,
            )
            for name, setting in sorted(TOPIC_SETTINGS.items())
        ]
        return json_response(Settings(settings=views))

    async def _sizes(self, topics: Sequence[Topic]) -> Mapping[str, int]:
        sizes = dict.fromkeys((topic.name for topic in topics), 0)
        for partition, size in (await self._broker.topic_admin.sizes(topics)).items():
            sizes[partition.topic] += size
        return sizes

    async def create_topic(self, call: Call[ChangeQuery, NewTopic]) -> Response:
        body = call.body
        require_creation(call.access, body.name)
        if not call.query.dry_run:
            call.access.charge_mutations(body.partitions or self._broker.settings.topics.default_partitions)
        made = await self._broker.create_topic(
            body.name,
            partitions=body.partitions,
            overrides={name: setting_text(value) for name, value in body.settings.items()},
            dry_run=call.query.dry_run,
        )
        if call.query.dry_run:
            return json_response(_view(made, call.access))
        return json_response(_view(made, call.access), status=201, headers={"location": f"/v1/topics/{made.name}"})

    async def get_topic(self, call: Call[NoQuery, None]) -> Response:
        await self._broker.catalog.renew()
        return json_response(await self._details(await self._broker.topic(call.topic), call.access))

    async def change_topic(self, call: Call[ChangeQuery, TopicChange]) -> Response:
        body, dry_run = call.body, call.query.dry_run
        if body.settings:
            call.access.require_topic(AclOperation.ALTER_CONFIGS, call.topic)
        if body.partitions is not None:
            call.access.require_topic(AclOperation.ALTER, call.topic)
        topic = await self._broker.topic(call.topic)
        if body.settings:
            topic = await self._broker.topic_admin.alter_topic(
                call.topic, lambda before: changed_settings(before, body.settings), dry_run=dry_run
            )
        if body.partitions is not None and body.partitions != topic.partitions:
            if not dry_run:
                call.access.charge_mutations(max(0, body.partitions - topic.partitions))
            topic = await self._broker.topic_admin.grow_topic(call.topic, body.partitions, dry_run=dry_run)
        return json_response(await self._details(topic, call.access))

    async def delete_topic(self, call: Call[NoQuery, None]) -> Response:
        topic = await self._broker.topic(call.topic)
        call.access.charge_mutations(topic.partitions)
        await self._broker.delete_topic(topic)
        return Response(status_code=204)

    async def flush_topic(self, call: Call[FlushQuery, None]) -> Response:
        await self._broker.maintenance.flushing.flush(call.topic, everywhere=call.query.everywhere)
        return Response(status_code=204)

    async def topic_partitions(self, call: Call[NoQuery, None]) -> Response:
        partitions = await self._broker.cluster_admin.partitions([await self._broker.topic(call.topic)], local=False)
        unknown = [each.name for each in partitions if each.high_watermark is None]
        ends = await ends_of(self._broker, unknown, timeout_s=ENDS_TIMEOUT_S)
        views = [
            msgspec.structs.replace(view(each), high_watermark=ends.get(each.name, each.high_watermark))
            for each in partitions
        ]
        return json_response(Partitions(partitions=views))


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    calls = TopicCalls(broker)
    return [
        Operation(
            method="GET",
            path="/v1/topics",
            handler=calls.list_topics,
            needs=lists(AclOperation.DESCRIBE, ResourceType.TOPIC, about=SETTINGS_ABOUT),
            summary="List topics",
            tag=TAG,
            query=ListQuery,
            response=Topics,
        ),
        Operation(
            method="GET",
            path="/v1/topic-settings",
            handler=calls.list_topic_settings,
            needs=LOGGED_IN,
            summary="List topic settings with defaults and meaning",
            tag=TAG,
            query=NoQuery,
            response=Settings,
        ),
        Operation(
            method="POST",
            path="/v1/topics",
            handler=calls.create_topic,
            needs=all_of(need((AclOperation.CREATE, ResourceType.TOPIC), (AclOperation.CREATE, ResourceType.CLUSTER))),
            summary="Create a topic",
            about="A dry run returns 200.",
            tag=TAG,
            query=ChangeQuery,
            body=NewTopic,
            max_body_bytes=MAX_BODY_BYTES,
            status=201,
            response=TopicView,
            other_statuses={200: TopicView},
            response_headers={"Location": "URL of the topic"},
            problems=(409,),
        ),
        *_of_one(calls),
    ]


def _of_one(calls: TopicCalls) -> list[Operation[Any, Any]]:
    one = "/v1/topics/{topic}"
    return [
        Operation(
            method="GET",
            path=one,
            handler=calls.get_topic,
            needs=needs(AclOperation.DESCRIBE, ResourceType.TOPIC, "topic", about=SETTINGS_ABOUT),
            summary="A topic with all effective settings",
            tag=TAG,
            query=NoQuery,
            response=TopicDetails,
            problems=(404,),
        ),
        Operation(
            method="PATCH",
            path=one,
            handler=calls.change_topic,
            needs=all_of(
                need((AclOperation.DESCRIBE, ResourceType.TOPIC, "topic")),
                need((AclOperation.ALTER, ResourceType.TOPIC), when="for more partitions"),
                need((AclOperation.ALTER_CONFIGS, ResourceType.TOPIC), when="for settings"),
            ),
            summary="Change a topic's settings, or add partitions",
            about="Settings change first. Unnamed ones are unchanged; null resets a setting to its default.",
            tag=TAG,
            query=ChangeQuery,
            body=TopicChange,
            max_body_bytes=MAX_BODY_BYTES,
            response=TopicDetails,
            problems=(404,),
        ),
        Operation(
            method="DELETE",
            path=one,
            handler=calls.delete_topic,
            needs=needs(AclOperation.DELETE, ResourceType.TOPIC, "topic"),
            summary="Delete a topic with all its records",
            tag=TAG,
            query=NoQuery,
            status=204,
            problems=(404,),
        ),
        Operation(
            method="POST",
            path=one + "/flush",
            handler=calls.flush_topic,
            needs=needs(AclOperation.ALTER, ResourceType.TOPIC, "topic"),
            summary="Flush all acknowledged records of a topic into segments",
            about="Agents also flush by size and age. Returns when done; records published meanwhile may or may not be"
            " included.",
            tag=TAG,
            query=FlushQuery,
            status=204,
            problems=(404,),
        ),
        Operation(
            method="GET",
            path=one + "/partitions",
            handler=calls.topic_partitions,
            needs=needs(AclOperation.DESCRIBE, ResourceType.TOPIC, "topic"),
            summary="Offsets and leaders of a topic's partitions",
            about="The high watermark is null if the leader is unavailable.",
            tag=TAG,
            query=NoQuery,
            response=Partitions,
            problems=(404,),
        ),
    ]


def setting_text(value: Setting) -> str:
    """A setting's value as Kafka writes it."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def changed_settings(before: Mapping[str, str], changes: Mapping[str, Setting | None]) -> Mapping[str, str]:
    unchanged = {name: value for name, value in before.items() if name not in changes}
    return {**unchanged, **{name: setting_text(value) for name, value in changes.items() if value is not None}}


def require_creation(access: RequestAccess, topic: str) -> None:
    """Raise `TopicAccessDenied` unless the caller may create this topic, by a right on it or on the cluster."""
    if access.allows_cluster(AclOperation.CREATE):
        access.require_cluster(AclOperation.CREATE)
    else:
        access.require_topic(AclOperation.CREATE, topic)


def _shows_settings(topic: Topic, access: RequestAccess) -> bool:
    return access.allows_topic(AclOperation.DESCRIBE_CONFIGS, topic.name)


def _is_internal(topic: Topic) -> bool:
    return topic.name == OFFSETS_TOPIC


def _view(topic: Topic, access: RequestAccess, *, size: int | None = None) -> TopicView:
    return TopicView(
        name=topic.name,
        id=str(topic.topic_id),
        partitions=topic.partitions,
        created_at_ms=topic.created_at_ms,
        internal=_is_internal(topic),
        settings=dict(topic.overrides) if _shows_settings(topic, access) else {},
        bytes=size,
    )
