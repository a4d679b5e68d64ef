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
    """`name` never comes back: another life of a supervisor is another supervisor."""

    def __init__(self, http: Http, *, name: str, host: str, slots: int) -> None:
        self._http = http
        self._host, self._slots = host, slots
        self._path = f"/v1/supervisors/{quote(name, safe='')}"

    def __repr__(self) -> str:
        return f"<SupervisorAgents {self._path} {self._http!r}>"

    async def heartbeat(self, running: list[dict[str, Any]], *, is_leaving: bool = False) -> dict[str, Any]:
        """Who is leaving keeps what it still runs, and takes nothing more."""
        body = {"host": self._host, "slots": 0 if is_leaving else self._slots, "running": running}
        return decode_response(await self._http.ask("POST", f"{self._path}/heartbeat", body=body))

    async def leave(self) -> None:
        decode_response(await self._http.ask("DELETE", self._path))


def decode_response(answer: HttpResponse) -> dict[str, Any]:
    """What an agent tells; raises `Unavailable` or `Rejected` with its words where it refuses."""
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(error_detail(answer))
    if answer.status >= 400:
        raise Rejected(error_detail(answer))
    told: dict[str, Any] = msgspec.json.decode(answer.content) if answer.content else {}
    return told


VALIDATION_SETTINGS: Final = ("message.timestamp.", "streamhouse.schema.")
"""Settings that judge or change records when they come: what was taken once is not judged again."""


class TopicInfo(msgspec.Struct, frozen=True):
    name: str
    partitions: int
    settings: dict[str, str]


async def find_topic(agents: AgentClient, name: str) -> TopicInfo | None:
    answer = await agents.answer("GET", f"/v1/topics/{quote(name, safe='')}")
    if answer.status == 404:
        return None
    if answer.status >= 400:
        raise Rejected(error_detail(answer))
    return msgspec.json.decode(answer.content, type=TopicInfo)


async def get_topic(agents: AgentClient, name: str) -> TopicInfo:
    found = await find_topic(agents, name)
    if found is None:
        raise UnknownTopic(name)
    return found


async def create_topic(
    agents: AgentClient, name: str, *, partitions: int | None, settings: Mapping[str, str]
) -> TopicInfo:
    """The topic, made with these where it isn't there; raises `Rejected` where it has other partitions than asked."""
    found = await find_topic(agents, name)
    if found is None:
        kept = {key: value for key, value in settings.items() if not key.startswith(VALIDATION_SETTINGS)}
        body = {"name": name, "settings": kept} | ({} if partitions is None else {"partitions": partitions})
        answer = await agents.answer("POST", "/v1/topics", body=body)
        if answer.status >= 400 and answer.status != 409:  # somebody, or an earlier try, was quicker
            raise Rejected(error_detail(answer))
        return await get_topic(agents, name)
    return found


def check_partitions(found: TopicInfo, asked: int | None) -> None:
    if asked is not None and found.partitions != asked:
        raise Rejected(
            f"the topic is there with another number of partitions; topic={found.name} partitions={found.partitions}"
            f" asked={asked} do=leave it out, or name another topic"
        )
