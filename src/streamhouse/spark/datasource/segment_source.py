"""Where an executor gets bytes of segments: from the object store, or by URLs that agents sign.

Data path   split_reader -> **segment_source** -> bucket or folder
Owns        having an agent sign a read, and sending it; retries of both
Leaves      requests with credentials to `stores.objects`, what is read to `split_reader`

A signed URL holds for a short time and for one range of bytes, so each read has one of its own.
"""

import asyncio
import os
import ssl
from collections.abc import Mapping
from functools import lru_cache
from typing import Final, NamedTuple, Protocol

import httpx
import msgspec

from streamhouse.client.loop_thread import LoopThread
from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Rejected, Unavailable
from streamhouse.retry import Backoff, Deadline
from streamhouse.spark.agents.address import AgentAddress
from streamhouse.spark.agents.client import AgentClient, error_detail, error_type
from streamhouse.spark.datasource.split_planner import SegmentRange
from streamhouse.spark.runtime.object_store import open_store
from streamhouse.stores.objects.base import ObjectMissing, ObjectStore, Refused

RETRY_TIMEOUT_S: Final = 20.0
FIRST_WAIT_S: Final = 0.1
MAX_WAIT_S: Final = 3.0
REQUEST_TIMEOUT_S: Final = 30.0
MIN_BYTES_PER_S: Final = 256 * 1024
"""Slower responses are given up."""
MAX_CONNECTED: Final = 8
AWAY: Final = (408, 429, 500, 502, 503, 504)


class SegmentSource(Protocol):
    async def get_range(self, piece: SegmentRange, start: int, end: int) -> bytes:
        """Bytes [start, end) of the object of the piece's run; raises `ObjectMissing`."""
        ...


class SourceHandle(NamedTuple):
    loop: LoopThread
    source: SegmentSource


class StoreSource:
    """Reads with the credentials of this process."""

    def __init__(self, store: ObjectStore) -> None:
        self._store = store

    async def get_range(self, piece: SegmentRange, start: int, end: int) -> bytes:
        assert piece.run is not None
        return await self._store.get_range(piece.run.key, start, end)


def open_source(store: str, agents: AgentAddress, *, signed: bool) -> SourceHandle:
    if signed:
        return _open_signed(agents)
    handle = open_store(store)
    return SourceHandle(handle.loop, StoreSource(handle.store))


@lru_cache(maxsize=MAX_CONNECTED)
def _open_signed(agents: AgentAddress) -> SourceHandle:
    """Python workers of Spark live on, so the next task finds the connections open."""
    loop = LoopThread(name="streamhouse-signed")
    return SourceHandle(loop, loop.run(_signed(agents)))


async def _signed(agents: AgentAddress) -> "SignedSource":
    return SignedSource(AgentClient(agents), _http(os.environ))


def _http(environ: Mapping[str, str]) -> httpx.AsyncClient:
    context = ssl.create_default_context()
    if bundle := environ.get("AWS_CA_BUNDLE"):
        context.load_verify_locations(bundle)
    # Nothing but the URL says who reads: neither a netrc file nor a proxy of the environment is used.
    timeout = httpx.Timeout(None, connect=REQUEST_TIMEOUT_S)
    return httpx.AsyncClient(verify=context, trust_env=False, follow_redirects=False, timeout=timeout)


class _SignedRead(msgspec.Struct, frozen=True):
    url: str
    headers: dict[str, str]


class SignedSource:
    """Reads with URLs that agents sign; `agents` decide what this process may read."""

    def __init__(self, agents: AgentClient, http: httpx.AsyncClient, *, first_wait_s: float = FIRST_WAIT_S) -> None:
        self._agents = agents
        self._http = http
        self._clock = SystemClock()
        self._first_wait_s = first_wait_s

    def __repr__(self) -> str:
        return f"<SignedSource {self._agents!r}>"

    async def get_range(self, piece: SegmentRange, start: int, end: int) -> bytes:
        deadline = Deadline(self._clock, RETRY_TIMEOUT_S)
        backoff = Backoff(self._clock, Ids(), first_s=self._first_wait_s, max_s=MAX_WAIT_S)
        while True:
            signed = await self._sign(piece, start, end)
            try:
                return await self._read(piece, signed, end - start)
            except Refused:
                raise
            except Unavailable:
                if deadline.left_s <= backoff.upcoming_s:
                    raise
            await backoff.wait()

    async def _sign(self, piece: SegmentRange, start: int, end: int) -> _SignedRead:
        assert piece.run is not None
        partition, key = piece.partition, piece.run.key
        body = {"topic": partition.topic, "partition": partition.partition, "offset": piece.start, "key": key}
        response = await self._agents.send("POST", "/v1/signed-reads", body={**body, "start": start, "end": end})
        if error_type(response) == "RunsChanged":
            raise ObjectMissing(key)
        if response.status >= 400:
            raise Rejected(error_detail(response))
        return msgspec.json.decode(response.content, type=_SignedRead)

    async def _read(self, piece: SegmentRange, signed: _SignedRead, length: int) -> bytes:
        """The bytes behind a URL, which is in no error: who has it may read."""
        assert piece.run is not None
        try:
            async with asyncio.timeout(REQUEST_TIMEOUT_S + length / MIN_BYTES_PER_S):
                response = await self._http.get(signed.url, headers={**signed.headers, "accept-encoding": "identity"})
        except (TimeoutError, httpx.HTTPError) as error:
            raise Unavailable(
                f"the object store didn't answer; key={piece.run.key} why={type(error).__name__}"
            ) from None
        status, data = response.status_code, response.content
        if status == httpx.codes.NOT_FOUND:
            raise ObjectMissing(piece.run.key)
        if status == httpx.codes.PARTIAL_CONTENT and len(data) == length:
            return data
        if status in AWAY or status == httpx.codes.PARTIAL_CONTENT:
            raise Unavailable(f"the object store didn't answer; key={piece.run.key} status={status} bytes={len(data)}")
        raise Refused(
            f"a signed read was refused; key={piece.run.key} status={status}",
            where=response.url.host,
            do="look at the agents' credentials, and at the clocks of agents and store",
        )
