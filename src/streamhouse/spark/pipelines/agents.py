"""Agents: what a supervisor says to them, and what they answer.

Data path   supervisor -> **agents** -> /v1/supervisors
Owns        the routes and bodies of heartbeats and of leaving; answers that are refusals, as errors
Leaves      going on when an agent is gone to `client.http`
"""

from typing import Any
from urllib.parse import quote

import msgspec

from streamhouse.client.http import Answer, Http
from streamhouse.errors import Rejected, Unavailable
from streamhouse.spark.agents import told_why


class SupervisorAgents:
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
        return decoded(await self._http.ask("POST", f"{self._path}/heartbeat", body=body))

    async def leave(self) -> None:
        decoded(await self._http.ask("DELETE", self._path))


def decoded(answer: Answer) -> dict[str, Any]:
    """What an agent tells; raises `Unavailable` or `Rejected` with its words where it refuses."""
    if answer.status >= 500 or answer.status == 429:
        raise Unavailable(told_why(answer))
    if answer.status >= 400:
        raise Rejected(told_why(answer))
    told: dict[str, Any] = msgspec.json.decode(answer.content) if answer.content else {}
    return told
