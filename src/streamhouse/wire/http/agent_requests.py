"""AgentRequests: requests to the HTTP ports of other agents.

Data path   agent_client -> **agent_requests** -> /v1/holds, /v1/topics/{topic}/flush, /v1/metrics, …
Owns        connections to other agents' HTTP ports, deadlines, decoding responses
Leaves      freezing to the other agent's `external_commits.partition_freezes`, retries to its callers
"""

import asyncio
import uuid
from collections.abc import Sequence
from typing import Final

import httpx
import msgspec

from streamhouse.config import AgentClientSettings
from streamhouse.config.fields import Address
from streamhouse.errors import Unavailable
from streamhouse.model.external_commit import FreezeRequest, FrozenPartition, Outcome
from streamhouse.model.names import Epoch, PartitionId, SessionId, TopicId
from streamhouse.wire.agent_login import AgentLogin
from streamhouse.wire.http.errors import Problem
from streamhouse.wire.http.routes.partition_freezes import HeldView, HoldAnswer, HoldEnd, HoldRequest, PartitionToHold

GRACE_S: Final = 1.0
"""Time for the response, in addition to the timeout of the freeze."""


class AgentRequests:
    def __init__(self, settings: AgentClientSettings, *, login: AgentLogin) -> None:
        self._login = login
        limits = httpx.Limits(
            max_connections=settings.max_inflight_requests, max_keepalive_connections=settings.idle_links
        )
        # Other agents are never reached through the proxies of the environment.
        self._client = httpx.AsyncClient(
            limits=limits, trust_env=False, timeout=settings.timeout_s, verify=login.http_tls or False
        )

    def __repr__(self) -> str:
        return f"<AgentRequests {'closed' if self._client.is_closed else 'open'}>"

    async def aclose(self) -> None:
        await self._client.aclose()

    async def hold(self, at: Address, request: FreezeRequest, *, timeout_s: float) -> Sequence[FrozenPartition]:
        question = HoldRequest(
            hold=request.hold_id,
            query=request.query,
            epoch=request.epoch,
            wait_ms=round(timeout_s * 1000),
            partitions=[
                PartitionToHold(
                    topic=each.name.topic,
                    topic_id=str(each.partition.topic_id),
                    partition=each.partition.partition,
                    offsets=each.offsets,
                )
                for each in request.partitions
            ],
        )
        body = await self._post(at, "/v1/holds", question, timeout_s=timeout_s + GRACE_S)
        try:
            response = msgspec.json.decode(body, type=HoldAnswer)
        except msgspec.DecodeError as error:
            raise Unavailable(f"another agent's answer can't be read; address={at} why={error}") from None
        return [_frozen_partition(each) for each in response.held]

    async def end_hold(self, at: Address, hold_id: str, outcome: Outcome, *, timeout_s: float) -> None:
        await self._post(at, f"/v1/holds/{hold_id}/end", HoldEnd(outcome=outcome), timeout_s=timeout_s)

    async def flush(self, at: Address, topic: str, *, timeout_s: float) -> None:
        await self._post(at, f"/v1/topics/{topic}/flush", None, timeout_s=timeout_s + GRACE_S, everywhere="false")

    async def metrics(self, at: Address, *, timeout_s: float) -> bytes:
        return await self._send("GET", at, "/v1/metrics", None, timeout_s=timeout_s, local="true")

    async def trace_reads(self, at: Address, body: msgspec.Struct, *, timeout_s: float) -> None:
        await self._post(at, "/v1/traces/reads", body, timeout_s=timeout_s)

    async def _post(
        self, at: Address, path: str, body: msgspec.Struct | None, *, timeout_s: float, **query: str
    ) -> bytes:
        return await self._send("POST", at, path, body, timeout_s=timeout_s, **query)

    async def _send(
        self, method: str, at: Address, path: str, body: msgspec.Struct | None, *, timeout_s: float, **query: str
    ) -> bytes:
        try:
            async with asyncio.timeout(timeout_s):  # httpx's own begins again with every byte
                response = await self._client.request(
                    method,
                    f"{self._login.http_scheme}://{at}{path}",
                    params=query,
                    content=b"" if body is None else msgspec.json.encode(body),
                    headers=self._login.http_headers() | ({} if body is None else {"content-type": "application/json"}),
                    timeout=timeout_s,
                )
        except TimeoutError:
            raise Unavailable(f"another agent didn't answer in {timeout_s:g} s; address={at}") from None
        except (httpx.HTTPError, httpx.InvalidURL) as error:
            raise Unavailable(f"another agent can't be reached; address={at} why={type(error).__name__}") from None
        if response.status_code >= 300:
            raise Unavailable(f"another agent refused; address={at} {_reason(response)}")
        return response.content


def _reason(response: httpx.Response) -> str:
    try:
        return f"why={msgspec.json.decode(response.content, type=Problem).detail}"
    except msgspec.DecodeError:
        return f"status={response.status_code}"


def _frozen_partition(view: HeldView) -> FrozenPartition:
    return FrozenPartition(
        partition=PartitionId(TopicId(uuid.UUID(view.topic_id)), view.partition),
        holder=SessionId(view.session),
        epoch=Epoch(view.epoch),
        end=view.end,
    )
