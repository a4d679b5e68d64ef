"""Every kind of request that a bucket of S3's language gets from us, by its parts, in front of a real server.

The servers that speak this language don't speak all of it. Cloudflare R2's page on S3 compatibility has all that is
pinned here, and has not: tags, ACLs, locks, expected owners, payers, encryption by the server's own keys. Google's door
for S3 knows `If-None-Match` for reads only, and the proof refuses it. A change that fails here is
to be looked up in these pages before it is pinned.
"""

import asyncio
import os
import re
from pathlib import Path
from typing import Final

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.stores.objects.base import ObjectExists, ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.object_store import keys_below
from tests.stores.conftest import BUCKET
from tests.stores.records import RECORDS, consume, produce, values
from tests.support.agent import LiveAgent
from tests.support.fake_s3 import FakeS3
from tests.support.proxies.http import HttpFront, Recorder, Reply, Request
from tests.support.s3 import RealS3

pytestmark = pytest.mark.s3

ALWAYS: Final = frozenset({"accept", "authorization", "host", "user-agent", "x-amz-content-sha256", "x-amz-date"})
SHAPES: Final = {
    ("PUT", "object", frozenset(), frozenset({"content-length", "if-none-match"})),
    ("GET", "object", frozenset(), frozenset({"range"})),
    ("HEAD", "object", frozenset(), frozenset()),
    ("DELETE", "object", frozenset(), frozenset()),
    ("GET", "bucket", frozenset({"list-type", "prefix"}), frozenset()),
    ("GET", "bucket", frozenset({"list-type", "prefix", "continuation-token"}), frozenset()),
}
"""Method, what it is about, the query's parameters, and the headers besides `ALWAYS`."""

Shape = tuple[str, str, frozenset[str], frozenset[str]]


def shape(request: Request) -> Shape:
    about = "object" if request.path.strip("/").count("/") else "bucket"
    return request.method, about, frozenset(request.query), frozenset(request.headers) - ALWAYS


def opened(url: str, environ: dict[str, str], settings: StoreSettings | None = None) -> ObjectStore:
    return open_object_store(
        url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=settings, environ=environ
    )


async def use_all_of(store: ObjectStore) -> None:
    """Each promise of a store, with a listing of more than a page."""
    await check_store(store, Ids())
    await store.put_new("a/empty", [])
    await store.put_new("a/large", [bytes(1 << 20)] * 9)
    with pytest.raises(ObjectExists):
        await store.put_new("a/empty", [])
    assert await store.get_range("a/large", 5, 5) == b""
    assert await store.get_suffix("a/empty", 5) == b""
    await asyncio.gather(*(store.put_new(f"p/{n:05d}", [b""]) for n in range(1010)))
    assert len(await keys_below(store, "p/")) == 1010
    assert len(await keys_below(store, "")) == 1012


async def test_a_store_sends_these_requests_and_no_others(real_s3: RealS3, tmp_path: Path) -> None:
    async with Recorder(real_s3.port) as front:
        environ = real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}
        await use_all_of(opened(f"s3://{BUCKET}/{tmp_path.name}-shapes", environ))
    assert {shape(request) for request in front.requests} == SHAPES
    assert all(set(request.headers) >= ALWAYS for request in front.requests)


async def test_an_agent_sends_no_others_either(
    real_s3: RealS3, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Recorder(real_s3.port) as front:
        for name, value in (real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}).items():
            monkeypatch.setenv(name, value)
        url = f"s3a://{BUCKET}/{tmp_path.name}-agent"
        agent = LiveAgent(tmp_path / "data", "--store", url, "--set", "wal.kind=object")
        for round_ in range(2):
            await asyncio.to_thread(agent.start)
            assert await asyncio.to_thread(consume, agent.bootstrap, round_ * RECORDS) == values(round_)
            await asyncio.to_thread(produce, agent.bootstrap, round_)
            assert await asyncio.to_thread(agent.stop) == 0
    assert {shape(request) for request in front.requests} <= SHAPES


async def test_values_are_such_as_every_server_takes(real_s3: RealS3, tmp_path: Path) -> None:
    """The region may be called `auto`; bodies are signed whole; ranges are single; nothing is percent-coded twice."""
    async with Recorder(real_s3.port) as front:
        environ = real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint, "AWS_REGION": "auto"}
        store = opened(f"s3://{BUCKET}/{tmp_path.name}-values", environ)
        await check_store(store, Ids())
    call = front.requests
    assert all("/auto/s3/aws4_request" in request.headers["authorization"] for request in call)
    assert all(re.fullmatch(r"[0-9a-f]{64}", request.headers["x-amz-content-sha256"]) for request in call)
    assert {request.headers["if-none-match"] for request in call if request.method == "PUT"} == {"*"}
    ranges = [request.headers["range"] for request in call if "range" in request.headers]
    assert all(re.fullmatch(r"bytes=(\d+-\d+|-\d+)", each) for each in ranges)
    assert all(re.fullmatch(r"/[\w./-]+(\?[\w=&%.-]+)?", request.target) for request in call)


async def test_a_session_token_is_one_more_header() -> None:
    async with FakeS3() as server:
        await check_store(opened("s3://bucket", server.environment), Ids())
    names = {frozenset(request.headers) & {"x-amz-security-token"} for request in server.requests}
    assert names == {frozenset({"x-amz-security-token"})}


# --- as Cloudflare R2 and Google limit writes of one key


class OneWriteAtATime(HttpFront):
    """A key that is being written, or was a moment ago, is not to be written: 429, in R2's words."""

    def __init__(self, port: int, *, rest_s: float) -> None:
        super().__init__(port)
        self._rest_s = rest_s
        self._rested_at: dict[str, float] = {}
        self.refusals = 0

    async def answer(self, request: Request) -> Reply:
        now = asyncio.get_running_loop().time()
        if request.method in ("PUT", "DELETE"):
            if now < self._rested_at.get(request.path, 0.0):
                self.refusals += 1
                text = "<Error><Code>TooManyRequests</Code><Message>Reduce your rate for this key.</Message></Error>"
                return Reply(status=429, body=text.encode())
            self._rested_at[request.path] = now + self._rest_s
        return await self.pass_on(request)


async def test_a_store_that_limits_writes_of_one_key_is_proven_all_the_same(real_s3: RealS3, tmp_path: Path) -> None:
    async with OneWriteAtATime(real_s3.port, rest_s=0.3) as front:
        environ = real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}
        hasty = StoreSettings(max_retries=2, retry_wait_s=0.01, pause_s=0.05)
        store = opened(f"s3://{BUCKET}/{tmp_path.name}-{os.getpid()}", environ, hasty)
        await check_store(store, Ids())
        assert await keys_below(store, "") == []
    assert front.refusals > 3
