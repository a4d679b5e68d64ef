"""Settings of the agent that responds, as it was started and as they were changed since.

GET /v1/settings    {"node": 1, "settings": [{"name": "wal.fsync", "value": …}], "kafka": [{"name": …, "source": …}]}

Secrets are never in settings: these name files or variables, and passwords in URLs are masked.
"""

from typing import Any

import msgspec
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.broker.catalog.kafka_configs import AgentConfig
from streamhouse.config import Explained, describe_settings
from streamhouse.model.access import Operation as AclOperation
from streamhouse.model.access import ResourceType
from streamhouse.model.needs import needs
from streamhouse.wire.http.operations import Call, NoQuery, Operation, json_response


class AgentSettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting by our name. `source`: flag, environment, file, default, or agent, which decided it as it started;
    `where` names the option, the variable or the file. `is_default`: nothing was set."""

    name: str
    value: str
    default: str
    is_default: bool
    source: str
    where: str
    variable: str
    allowed: str
    about: str


class KafkaSettingView(msgspec.Struct, frozen=True, kw_only=True):
    """A setting by Kafka's name, which can be changed while agents run unless it is `read_only`. `source`: where its
    value comes from, as DescribeConfigs says it."""

    name: str
    value: str
    source: str
    read_only: bool
    about: str


class AgentSettingsView(msgspec.Struct, frozen=True, kw_only=True):
    node: int
    settings: list[AgentSettingView]
    kafka: list[KafkaSettingView]


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    async def get_settings(_: Call[NoQuery, None]) -> Response:
        session = broker.agent_session
        advertised = session.session.kafka if session is not None else broker.agents()[0].kafka
        kafka = await broker.topic_admin.configs(advertised=advertised)
        return json_response(
            AgentSettingsView(
                node=broker.node_id,
                settings=[_own(each) for each in describe_settings(broker.settings)],
                kafka=[_kafka(each) for each in kafka],
            )
        )

    return [
        Operation(
            method="GET",
            path="/v1/settings",
            handler=get_settings,
            needs=needs(AclOperation.DESCRIBE_CONFIGS, ResourceType.CLUSTER),
            summary="Settings of the agent that responds, with meaning and source",
            tag="agents",
            query=NoQuery,
            response=AgentSettingsView,
        )
    ]


def _own(setting: Explained) -> AgentSettingView:
    return AgentSettingView(
        name=setting.name,
        value=_text(setting.value),
        default=_text(setting.default),
        is_default=setting.source == "default",
        source=setting.source,
        where=setting.where,
        variable=setting.variable,
        allowed=setting.allowed,
        about=setting.about,
    )


def _text(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f"{value:g}" if isinstance(value, float) else str(value)


def _kafka(config: AgentConfig) -> KafkaSettingView:
    return KafkaSettingView(
        name=config.name,
        value=config.value,
        source=config.source.name.lower().replace("_", " "),
        read_only=config.read_only,
        about=config.about,
    )
