"""Heartbeats of supervisors, and topics that replay jobs write to.

Data path   pipelines.supervisor, replay -> **resources** -> /v1/supervisors, /v1/topics
Owns        routes and bodies; rejections as errors; partitions and settings of a new topic
Leaves      retries at another agent to `client.http`
"""

from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import quote

import msgspec

from streamhouse.client.http import Http, HttpResponse
from streamhouse.errors import Rejected, Unavailable, UnknownTopic
from streamhouse.spark.agents.client import AgentClient, error_detail


class SupervisorClient:
    """`name` is unique: a restarted supervisor has another one."""

    def __init__(self, http: Http, *, name: str, host: str, slots: int) -> None:
        self._http = http
        self._host, self._slots = host, slots
        self._path = f"/v1/supervisors/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"<SupervisorClient {self._path} {self._http!r}>"

    async def heartbeat(self, running: list[dict[str, Any]], *, is_leaving: bool = False) -> dict[str, Any]:
        """A leaving supervisor keeps the pipelines that still run, and is assigned no others."""
        body = {"host": self._host, "slots": 0 if is_leaving else self._slots, "running": running}
        return decode_response(await self._http.send("POST", f"{self._path}/heartbeat", body=body))

    async def leave(self) -> None:
        decode_response(await self._http.send("DELETE", self._path))


def decode_response(response: HttpResponse) -> dict[str, Any]:
    """Decode a JSON response; raise `Unavailable` or `Rejected` with the agent's message for an error response."""
    if response.status >= 500 or response.status == 429:
        raise Unavailable(error_detail(response))
    if response.status >= 400:
        raise Rejected(error_detail(response))
    decoded: dict[str, Any] = msgspec.json.decode(response.content) if response.content else {}
    return decoded


VALIDATION_SETTINGS: Final = ("message.timestamp.", "streamhouse.schema.")
"""Settings that validate or change records when they are produced: replayed records are not validated again."""


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    settings: dict[str, str]


async def find_topic(agents: AgentClient, name: str) -> TopicInfo | None:
    response = await agents.send("GET", f"/v1/topics/{quote(name, safe='')}")
    if response.status == 404:
        return None
    if response.status >= 400:
        raise Rejected(error_detail(response))
    return msgspec.json.decode(response.content, type=TopicInfo)


async def get_topic(agents: AgentClient, name: str) -> TopicInfo:
    topic = await find_topic(agents, name)
    if topic is None:
        raise UnknownTopic(name)
    return topic


async def create_topic(
    agents: AgentClient, name: str, *, partitions: int | None, settings: Mapping[str, str]
) -> TopicInfo:
    """The topic, created with these settings if it does not exist. Raises `Rejected` if it can't be created."""
    topic = await find_topic(agents, name)
    if topic is None:
        kept = {key: value for key, value in settings.items() if not key.startswith(VALIDATION_SETTINGS)}
        body = {"name": name, "settings": kept} | ({} if partitions is None else {"partitions": partitions})
        response = await agents.send("POST", "/v1/topics", body=body)
        if response.status >= 400 and response.status != 409:  # another process, or an earlier attempt, created it
            raise Rejected(error_detail(response))
        return await get_topic(agents, name)
    return topic


def check_partitions(topic: TopicInfo, partitions: int | None) -> None:
    if partitions is not None and topic.partitions != partitions:
        raise Rejected(
            f"the topic exists with another number of partitions; topic={topic.name} partitions={topic.partitions}"
            f" requested={partitions} do=leave it out, or name another topic"
        )
