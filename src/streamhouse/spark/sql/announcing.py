"""Announcing: agents are told that this worker is there, so that their /v1/sql finds it.

Data path   worker -> **announcing** -> an agent's /v1/sql/workers
Owns        when, to whom, and for how long; that agents which are away, or too old to know of it, do no harm
Leaves      passing questions on to the agents, answering them to `serving`

Agents share what they are told through the metadata store, so one that answers is enough. A worker that listens on
loopback says so to agents on this machine only: others could not reach it.
"""

import asyncio
import logging
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from typing import Final

from streamhouse.client.http import Http
from streamhouse.clock import Clock, Ids
from streamhouse.config import is_loopback, parse_address
from streamhouse.errors import StreamhouseError

log = logging.getLogger(__name__)

BEAT_S: Final = 5.0
AWAY_S: Final = 15.0
"""Between tries where no agent answers, or none knows what a worker is."""
REQUEST_TIMEOUT_S: Final = 4.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Announcement:
    """`token` is what agents show: it makes their callers untrusted."""

    worker: str
    address: str
    token: str

    def __repr__(self) -> str:
        return f"<Announcement {self.worker} address={self.address}>"


def reachable(host: str, agents: str) -> bool:
    """Whether these agents can reach somebody who listens on `host`."""
    return not is_loopback(host) or all(is_loopback(parse_address(each).host) for each in agents.split(","))


async def announce(agents: str, announcement: Announcement, *, busy: Callable[[], int], clock: Clock, ids: Ids) -> None:
    """Tell agents until cancelled, then that it is over."""
    path = f"/v1/sql/workers/{announcement.worker}"
    async with Http(agents, timeout_s=REQUEST_TIMEOUT_S) as http:
        try:
            while True:
                body = {"address": announcement.address, "token": announcement.token, "busy": busy()}
                was_told = await _told(http, f"{path}/heartbeat", body)
                await clock.sleep(ids.jitter(BEAT_S) if was_told else AWAY_S)
        except asyncio.CancelledError:
            with suppress(StreamhouseError):
                await http.ask("DELETE", path)
            raise


async def _told(http: Http, path: str, body: dict[str, object]) -> bool:
    try:
        answer = await http.ask("POST", path, body=body)
    except StreamhouseError as error:
        log.debug("agents were not told", extra={"why": str(error)})
        return False
    return answer.status < 400
