"""A real S3 server: the contract, races, kills, black holes, and an agent whose records live there."""

import asyncio
import os
from collections.abc import AsyncIterator, Iterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Misconfigured, Unavailable
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.bucket import BucketContract
from tests.contracts.object_store import keys_below
from tests.stores.conftest import BUCKET
from tests.support.s3 import RealS3

pytestmark = pytest.mark.s3

PATIENT = StoreSettings(
    request_timeout_s=30,
    max_retries=50,
    retry_total_s=60,
    retry_wait_s=0.05,
    retry_wait_max_s=0.2,
    max_concurrent=400,
)
PREFIXES = count()


def opened(server: RealS3, prefix: str, settings: StoreSettings = PATIENT, **environ: str) -> ObjectStore:
    return open_object_store(
        f"s3://{BUCKET}/{prefix}" if "://" not in prefix else prefix,
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        settings=settings,
        environ=server.environment | environ,
    )


@pytest.fixture
def location() -> str:
    return f"test-{os.getpid()}-{next(PREFIXES)}"


@pytest.fixture
async def store(real_s3: RealS3, location: str) -> AsyncIterator[ObjectStore]:
    store = opened(real_s3, location)
    yield store
    await store.aclose()


class TestS3Store(BucketContract):
    @pytest.fixture
    async def store(self, real_s3: RealS3, location: str) -> AsyncIterator[ObjectStore]:
        store = opened(real_s3, location)
        yield store
        await store.aclose()


@pytest.mark.parametrize(
    ("url", "environ", "said"),
    [
        ("s3://no-such-bucket/x", {}, "the bucket does not exist"),
        ("s3://records/x", {"AWS_ACCESS_KEY_ID": "nobody"}, "the credentials are not valid"),
        ("s3://records/x", {"AWS_SECRET_ACCESS_KEY": "wrong"}, "the secret key is wrong"),
        ("s3://records/x", {"AWS_ENDPOINT_URL": "http://127.0.0.1:9"}, "connection refused"),
    ],
)
async def test_a_wrong_setting_is_named_at_the_start(
    real_s3: RealS3, url: str, environ: dict[str, str], said: str
) -> None:
    settings = StoreSettings(max_retries=1, retry_wait_s=0.01)
    with pytest.raises(Misconfigured, match=rf"{said}.* do="):
        await check_store(opened(real_s3, url, settings, **environ), Ids())


# --- a server of its own, which is hurt


@pytest.fixture
def own_s3(tmp_path: Path) -> Iterator[RealS3]:
    with RealS3(tmp_path) as server:
        server.create_bucket(BUCKET)
        yield server


async def test_what_was_acknowledged_survives_kills_under_load(own_s3: RealS3) -> None:
    """The writers see nothing but waiting; every create that returned is there afterwards, with its own bytes."""
    store = opened(own_s3, "kill", PATIENT)
    acknowledged: dict[str, bytes] = {}
    progress = asyncio.Semaphore(0)
    stop = asyncio.Event()

    async def write(writer: int) -> None:
        for n in count():
            if stop.is_set():
                return
            key, body = f"w{writer}/{n:06d}", f"{writer}-{n}-".encode() * 200
            await store.put_new(key, [body])
            acknowledged[key] = body
            progress.release()

    async with asyncio.TaskGroup() as tasks:
        for writer in range(8):
            tasks.create_task(write(writer))
        for _ in range(3):
            for _ in range(150):
                await progress.acquire()
            await asyncio.to_thread(own_s3.restart)
        stop.set()
    listed = await keys_below(store, "")
    assert set(acknowledged) <= set(listed)
    for key, body in acknowledged.items():
        assert await store.get_range(key, 0, 10_000) == body


async def test_a_server_that_stops_answering_holds_nobody_beyond_the_deadline_and_is_used_again(own_s3: RealS3) -> None:
    store = opened(own_s3, "hole", StoreSettings(request_timeout_s=0.5, max_retries=1, retry_wait_s=0.01))
    await store.put_new("a/1", [b"x"])
    own_s3.pause()
    try:
        async with asyncio.timeout(30):
            with pytest.raises(Unavailable):
                await store.put_new("a/2", [bytearray(1 << 20)])
            with pytest.raises(Unavailable):
                await store.get_range("a/1", 0, 1)
    finally:
        own_s3.resume()
    assert await opened(own_s3, "hole").get_range("a/1", 0, 1) == b"x"


# --- a network that loses replies, in front of the real server


class LossyProxy:
    """A TCP proxy on loopback that cuts a connection at every `every`-th answer, before the client has it."""

    def __init__(self, port: int, *, every: int) -> None:
        self._target = port
        self._every = every
        self._answers = 0
        self.cuts = 0
        self._server: asyncio.Server | None = None

    async def __aenter__(self) -> "LossyProxy":
        self._server = await asyncio.start_server(self._serve, "127.0.0.1", 0)
        return self

    async def __aexit__(self, *_: object) -> None:
        assert self._server is not None
        self._server.close()

    @property
    def endpoint(self) -> str:
        assert self._server is not None
        return f"http://127.0.0.1:{self._server.sockets[0].getsockname()[1]}"

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        up_reader, up_writer = await asyncio.open_connection("127.0.0.1", self._target)
        try:
            async with asyncio.TaskGroup() as tasks:
                tasks.create_task(_pump(reader, up_writer))
                tasks.create_task(self._answer(up_reader, writer))
        except* (ConnectionError, _Cut):
            pass
        finally:
            up_writer.close()
            writer.close()

    async def _answer(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(1 << 16):
            self._answers += 1
            if self._answers % self._every == 0:
                self.cuts += 1
                raise _Cut
            writer.write(data)
            await writer.drain()
        raise _Cut


class _Cut(Exception):
    pass


async def _pump(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    while data := await reader.read(1 << 16):
        writer.write(data)
        await writer.drain()
    raise _Cut


async def test_creates_whose_replies_are_lost_are_neither_lost_nor_taken_for_another_users(
    real_s3: RealS3, location: str
) -> None:
    async with LossyProxy(real_s3.port, every=5) as proxy:
        store = opened(real_s3, location, AWS_ENDPOINT_URL=proxy.endpoint)
        for at in range(0, 100, 10):
            await asyncio.gather(*(store.put_new(f"a/{n:03d}", [f"body {n}".encode()]) for n in range(at, at + 10)))
        assert proxy.cuts > 10
    direct = opened(real_s3, location)
    assert await keys_below(direct, "a/") == [f"a/{n:03d}" for n in range(100)]
    for n in range(100):
        assert await direct.get_range(f"a/{n:03d}", 0, 99) == f"body {n}".encode()
