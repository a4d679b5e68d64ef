"""HttpFreezeClient: requests to other agents to freeze partitions for a commit, to flush a topic, for metrics.

Data path   broker.external_commits, broker.maintenance -> **agent_client** -> agent_requests
Owns        when the HTTP library is imported: in a thread, for the first request. It takes 7 MB and 50 ms, which an
            single agent, or one without such requests, does without
Leaves      the requests to `agent_requests`
"""

import asyncio
from collections.abc import Sequence
from typing import TYPE_CHECKING

import msgspec

from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome
from streamhouse.wire.agent_login import NO_LOGIN, AgentLogin

if TYPE_CHECKING:
    from streamhouse.wire.http.agent_requests import AgentRequests


class HttpFreezeClient:
    """Implements `broker.dependencies.FreezeClient`."""

    def __init__(self, settings: AgentClientSettings, *, login: AgentLogin = NO_LOGIN) -> None:
        self._settings = settings
        self._login = login
        self._made: AgentRequests | None = None

    def __repr__(self) -> str:
        return f"<HttpFreezeClient {self._made or 'unused'}>"

    async def aclose(self) -> None:
        if self._made is not None:
            await self._made.aclose()

    async def hold(self, at: Address, request: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        return await (await self._requests()).hold(at, request, timeout_s=timeout_s)

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None:
        await (await self._requests()).end_hold(at, hold_id, outcome, timeout_s=timeout_s)

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        await (await self._requests()).flush(at, topic, timeout_s=timeout_s)

    async def metrics(self, at: Address, *, timeout_s: float) -> bytes:
        return await (await self._requests()).metrics(at, timeout_s=timeout_s)

    async def trace_reads(self, at: Address, body: msgspec.Struct, *, timeout_s: float) -> None:
        await (await self._requests()).trace_reads(at, body, timeout_s=timeout_s)

    async def _requests(self) -> "AgentRequests":
        if self._made is None:
            made = await asyncio.to_thread(_load)
            self._made = self._made or made(self._settings, login=self._login)
        return self._made


def _load() -> "type[AgentRequests]":
    from streamhouse.wire.http.agent_requests import AgentRequests

    return AgentRequests
