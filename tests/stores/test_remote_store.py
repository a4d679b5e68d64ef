"""The bucket's client against a scripted server: what each answer, and each missing answer, becomes."""

import asyncio
import os
import re
import sys
from asyncio.subprocess import DEVNULL
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from obstore.store import S3Store
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Misconfigured, StreamhouseError, Unavailable
from streamhouse.stores.objects.base import ObjectExists, ObjectMissing, ObjectStore, Refused
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.remote import RemoteObjectStore
from streamhouse.stores.objects.remote_open import open_remote
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.object_store import ObjectStoreContract, keys_below
from tests.support.fake_s3 import FakeS3

QUICK = StoreSettings(request_timeout_s=10, retry_wait_s=0.01, retry_wait_max_s=0.02, pause_s=0.01, pause_max_s=0.02)
IMPATIENT = StoreSettings(request_timeout_s=0.3, max_retries=1, retry_wait_s=0.01)


@pytest.fixture
async def server() -> AsyncIterator[FakeS3]:
    async with FakeS3() as server:
        yield server


def bare(server: FakeS3, settings: StoreSettings = QUICK) -> RemoteObjectStore:
    """The client alone: one request per call."""
    return open_remote("s3://bucket/below/it", settings, SystemClock(), server.environment)


def opened(server: FakeS3, settings: StoreSettings = QUICK, registry: CollectorRegistry | None = None) -> ObjectStore:
    """As the agent opens it."""
    return open_object_store(
        "s3://bucket",
        clock=SystemClock(),
        ids=Ids(),
        registry=registry or CollectorRegistry(),
        settings=settings,
        environ=server.environment,
    )


class TestScriptedServer(ObjectStoreContract):
    """The fake passes the contract, so what it does when scripted is done to a bucket that works."""

    @pytest.fixture
    async def store(self, server: FakeS3) -> ObjectStore:
        return bare(server)

    async def test_head_shows_size_and_time(self, store: ObjectStore, clock: object) -> None:
        await store.put_new("a/1", [b"12345"])
        meta = await store.head("a/1")
        assert (meta.key, meta.size_bytes, meta.modified_at_ms) == ("a/1", 5, 1_700_000_000_000)


class TestWithoutSuffixRanges(ObjectStoreContract):
    """As on Azure: the size is asked for first."""

    @pytest.fixture
    async def store(self, server: FakeS3) -> ObjectStore:
        client = S3Store(
            "bucket",
            config={
                "access_key_id": "x",
                "secret_access_key": "x",
                "endpoint": server.endpoint,
                "region": "us-east-1",
                "disable_bulk_delete": True,
            },
            client_options={"allow_http": True},
        )
        return RemoteObjectStore(client, QUICK, SystemClock(), location="az://bucket", has_suffixes=False)

    async def test_head_shows_size_and_time(self, store: ObjectStore, clock: object) -> None:
        await store.put_new("a/1", [b"12345"])
        assert (await store.head("a/1")).size_bytes == 5


# --- one request, and how it is made


async def test_an_object_is_one_create_only_put_below_the_prefix(server: FakeS3) -> None:
    body = [bytes(70_000_000)]
    await bare(server).put_new("a/1", body)
    assert [(request.method, request.key) for request in server.requests] == [("PUT", "below/it/a/1")]
    assert server.requests[0].headers["if-none-match"] == "*"
    assert server.objects == {"below/it/a/1": body[0]}


async def test_the_environment_can_not_turn_create_only_off(server: FakeS3, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_CONDITIONAL_PUT", "disabled")
    await bare(server).put_new("a/1", [b"first"])
    with pytest.raises(ObjectExists):
        await bare(server).put_new("a/1", [b"second"])


@pytest.mark.parametrize("step", ["500", "503", "lose", "drop"])
async def test_the_client_itself_never_asks_twice(server: FakeS3, step: str) -> None:
    server.script("PUT", step)
    with pytest.raises(Unavailable):
        await bare(server).put_new("a/1", [b"x"])
    assert server.count("PUT") == 1


async def test_a_closed_store_is_unavailable(server: FakeS3) -> None:
    store = bare(server)
    await store.aclose()
    with pytest.raises(Unavailable, match="closed"):
        await store.head("a/1")


# --- creates whose outcome is unclear


async def test_a_create_whose_reply_was_lost_is_recognised_as_our_own(server: FakeS3) -> None:
    server.script("PUT", "lose")
    await opened(server).put_new("a/1", [b"half ", b"and half"])
    assert server.objects == {"a/1": b"half and half"}
    assert server.count("PUT") == 2


async def test_a_create_that_was_not_taken_is_tried_again(server: FakeS3) -> None:
    server.script("PUT", "drop", "503", "500", "409")
    await opened(server).put_new("a/1", [b"x"])
    assert server.objects == {"a/1": b"x"}


async def test_after_a_conflict_another_writers_object_is_not_taken_for_ours(server: FakeS3) -> None:
    server.script("PUT", "409-stored")
    with pytest.raises(ObjectExists):
        await opened(server).put_new("a/1", [b"ours"])
    assert server.count("PUT") == 1


async def test_a_conflict_that_left_nothing_is_trouble_that_passes(server: FakeS3) -> None:
    server.script("PUT", "409")
    with pytest.raises(Unavailable, match="another write"):
        await bare(server).put_new("a/1", [b"x"])
    await bare(server).put_new("a/1", [b"x"])


async def test_a_create_that_lands_after_its_deadline_is_still_our_own(server: FakeS3) -> None:
    server.script("PUT", "late", "503")
    store = opened(server, StoreSettings(request_timeout_s=0.3, retry_wait_s=0.01, pause_s=0.3))
    putting = asyncio.create_task(store.put_new("a/1", [b"x"]))
    await server.received(2)
    server.land()
    await putting
    assert server.objects == {"a/1": b"x"}
    assert server.count("PUT") == 3


async def test_another_writers_object_is_found_out_after_a_lost_connection(server: FakeS3) -> None:
    server.objects["a/1"] = b"theirs"
    server.script("PUT", "drop")
    with pytest.raises(ObjectExists):
        await opened(server).put_new("a/1", [b"ours!!"])
    assert server.objects == {"a/1": b"theirs"}


# --- buffers


async def test_a_cancelled_put_gives_its_buffers_back_before_it_ends(server: FakeS3) -> None:
    server.script("PUT", "hang")
    buffer = bytearray(8 << 20)
    putting = asyncio.create_task(bare(server).put_new("a/1", [buffer]))
    await server.received(1)
    with pytest.raises(BufferError):
        buffer.append(0)  # lent: its size can't change, and its bytes must not
    putting.cancel()
    with pytest.raises(asyncio.CancelledError):
        await putting
    buffer.append(0)


async def test_a_put_that_times_out_gives_its_buffers_back(server: FakeS3) -> None:
    server.script("PUT", "hang")
    buffer = bytearray(1 << 20)
    with pytest.raises(Unavailable, match="timed out"):
        await bare(server, StoreSettings(request_timeout_s=0.2, min_bytes_per_s=1 << 30)).put_new("a/1", [buffer])
    buffer.append(0)


# --- reads that are not whole


@pytest.mark.parametrize("step", ["truncate", "short", "drop"])
async def test_a_body_that_is_not_whole_is_never_returned(server: FakeS3, step: str) -> None:
    server.objects["below/it/a/1"] = b"0123456789"
    server.script("GET", step, step)
    with pytest.raises(Unavailable):
        await bare(server).get_range("a/1", 2, 8)
    with pytest.raises(Unavailable):
        await bare(server).get_suffix("a/1", 4)


async def test_a_server_that_knows_no_ranges_is_refused_but_may_send_all_of_nothing(server: FakeS3) -> None:
    server.objects = {"below/it/a/1": b"0123456789", "below/it/a/2": b""}
    server.script("GET", "whole", "whole")
    with pytest.raises(Refused, match=r"other bytes do=use a store that supports ranges"):
        await bare(server).get_range("a/1", 2, 8)
    assert await bare(server).get_suffix("a/2", 4) == b""


async def test_the_end_of_nothing_may_come_as_a_range_that_no_one_can_read(server: FakeS3) -> None:
    """MinIO: `bytes 0--1/0`. Of an object that has bytes it would be a fault, and is told at once."""
    server.objects = {"below/it/a/1": b"0123456789", "below/it/a/2": b""}
    server.script("GET", "minus-one", "minus-one")
    assert await bare(server).get_suffix("a/2", 4) == b""
    with pytest.raises(Refused, match="other bytes"):
        await bare(server).get_suffix("a/1", 4)


async def test_a_truncated_body_is_read_again(server: FakeS3) -> None:
    server.objects["a/1"] = b"0123456789"
    server.script("GET", "truncate", "short", "503")
    assert await opened(server).get_range("a/1", 2, 8) == b"234567"
    assert server.count("GET") == 4


async def test_a_listing_that_breaks_between_pages_goes_on(server: FakeS3) -> None:
    server.objects = {f"a/{n:05d}": b"" for n in range(2500)}
    server.script("GET", "ok", "drop", "ok", "ok", "503")
    assert await keys_below(opened(server), "a/") == sorted(server.objects)


async def test_markers_of_folders_and_neighbours_of_the_prefix_are_not_listed_below_it(server: FakeS3) -> None:
    server.objects = {"a/": b"", "a/1": b"", "a-b": b"", "ab/1": b"", "a": b""}
    assert await keys_below(opened(server), "a/") == ["a/1"]


# --- black holes


async def test_a_server_that_never_answers_holds_nobody_beyond_the_deadlines(server: FakeS3) -> None:
    server.always = "hang"
    store = opened(server, IMPATIENT)
    async with asyncio.timeout(20):
        for call in (
            store.put_new("a/1", [b"x"]),
            store.get_range("a/1", 0, 1),
            store.head("a/1"),
            store.delete("a/1"),
        ):
            with pytest.raises(Unavailable, match="timed out"):
                await call
        with pytest.raises(Unavailable, match="timed out"):
            await keys_below(store, "a/")
    assert len(server.requests) == 10


# --- what answers mean


@pytest.mark.parametrize(
    ("status", "code", "extra", "said"),
    [
        (404, "NoSuchBucket", "", r"the bucket does not exist .* do=create it"),
        (403, "AccessDenied", "", r"may not do this .* do=grant s3:PutObject"),
        (403, "InvalidAccessKeyId", "", r"credentials are not valid .* do=check the access key"),
        (403, "SignatureDoesNotMatch", "", r"secret key is wrong .* do=check AWS_SECRET_ACCESS_KEY"),
        (403, "RequestTimeTooSkewed", "", r"clock .* do=synchronise"),
        (400, "ExpiredToken", "", r"credentials are not valid"),
        (
            400,
            "AuthorizationHeaderMalformed",
            "<Region>eu-west-1</Region>",
            r"another region .* do=set AWS_REGION=eu-west-1",
        ),
        (301, "PermanentRedirect", "", r"another region.* do=set AWS_REGION to"),
        (501, "NotImplemented", "", r"does not offer .* do=use a store with conditional writes"),
    ],
)
async def test_a_wrong_setting_is_one_clear_line_at_the_start_and_asked_once(
    status: int, code: str, extra: str, said: str
) -> None:
    async with FakeS3(code=code, extra=extra) as server:
        server.always = str(status)
        with pytest.raises(Misconfigured) as refused:
            await check_store(opened(server), Ids())
        assert re.search(said, str(refused.value)), str(refused.value)
        assert f"store=s3://bucket at {server.endpoint}" in str(refused.value)
        assert len(server.requests) == 1
        with pytest.raises(Unavailable):
            await opened(server).put_new("a/1", [b"x"])


async def test_an_address_where_nobody_listens_is_one_clear_line_at_the_start() -> None:
    async with FakeS3() as gone:
        environ = gone.environment
    store = open_object_store(
        "s3://bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=QUICK, environ=environ
    )
    with pytest.raises(
        Misconfigured, match=r"store=s3://bucket at http://127.0.0.1:\d+ why=connection refused do=start"
    ):
        await check_store(store, Ids())


async def test_no_credentials_are_one_clear_line_at_the_start(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    async with FakeS3() as server:
        monkeypatch.setenv(
            "AWS_METADATA_ENDPOINT", "http://127.0.0.1:9"
        )  # where a machine's own role would be asked for
        environ = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1"}
        store = open_object_store(
            "s3://bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=QUICK, environ=environ
        )
        with pytest.raises(Misconfigured, match=r"no credentials were found do=set AWS_ACCESS_KEY_ID"):
            await check_store(store, Ids())
        assert server.requests == []


async def test_a_machine_that_gives_no_credentials_is_not_taken_for_a_bucket_that_gives_no_rights(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_WEB_IDENTITY_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    async with FakeS3() as server, refusing() as machine:
        monkeypatch.setenv("AWS_METADATA_ENDPOINT", machine)
        environ = {"AWS_ENDPOINT_URL": server.endpoint, "AWS_REGION": "us-east-1"}
        store = open_object_store(
            "s3://bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=QUICK, environ=environ
        )
        with pytest.raises(Refused, match=r"no credentials were found \(status=403\) do=set AWS_ACCESS_KEY_ID"):
            await store.get_range("a", 0, 1)


@asynccontextmanager
async def refusing() -> AsyncIterator[str]:
    """A server that answers everything with 403, as a machine's own service does where it is switched off."""

    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 403 Forbidden\r\ncontent-length: 0\r\nconnection: close\r\n\r\n")
        await writer.drain()
        writer.close()

    server = await asyncio.start_server(respond, "127.0.0.1", 0)
    async with server:
        yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


async def test_a_store_that_ignores_create_only_is_refused() -> None:
    async with FakeS3(honours_create_only=False) as server:
        with pytest.raises(Misconfigured, match=r"second create was accepted.*If-None-Match"):
            await check_store(opened(server), Ids())
        assert server.objects == {}


async def test_a_store_that_takes_nothing_for_the_moment_is_refused_with_what_to_do(server: FakeS3) -> None:
    server.always = "503"
    with pytest.raises(
        Misconfigured, match=r"asks for fewer requests.* do=raise its limit of requests, or start again"
    ):
        await check_store(opened(server), Ids())


async def test_a_store_that_works_is_proven_and_left_clean(server: FakeS3) -> None:
    await check_store(opened(server), Ids())
    assert server.objects == {}


async def test_a_key_is_missing_but_a_missing_bucket_is_not_taken_for_it(server: FakeS3) -> None:
    with pytest.raises(ObjectMissing):
        await bare(server).get_range("a/1", 0, 1)
    server.code = "NoSuchBucket"
    server.script("GET", "404")
    with pytest.raises(Refused):
        await bare(server).get_range("a/1", 0, 1)


# --- secrets and lengths of texts


@pytest.mark.parametrize("step", ["403", "500", "503", "301", "drop", "truncate"])
async def test_no_text_holds_credentials_or_is_long(step: str) -> None:
    async with FakeS3(extra="<Long>" + "top-secret-token " * 1000 + "</Long>") as server:
        server.objects["below/it/a/1"] = b"0123456789"
        server.always = step
        store = bare(server)
        with pytest.raises(StreamhouseError) as failed:
            await store.get_range("a/1", 0, 10)
        texts = [str(failed.value), repr(failed.value), repr(store), repr(opened(server))]
        assert failed.value.__cause__ is None
        assert not any("top-secret" in text or "AKIA" in text for text in texts)
        assert len(texts[0]) <= 500


@pytest.mark.parametrize(
    "url",
    [
        "s3://AKIA:top-secret@bucket/x",
        "s3://top-secret@bucket",
        "s3://bucket?secret=top-secret",
        "az://c?sig=top-secret",
    ],
)
def test_credentials_in_the_address_are_refused_and_not_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="environment") as refused:
        open_remote(url, QUICK, SystemClock(), {})
    assert "top-secret" not in str(refused.value)


@pytest.mark.parametrize(
    "url", ["s3://", "s3:///x", "s3://bucket/a b", "s3://bucket/../x", "s3://bu cket", "gs://b/x#y"]
)
def test_addresses_that_name_no_bucket_are_refused_with_an_example(url: str) -> None:
    with pytest.raises(Misconfigured, match="do=write it like"):
        open_remote(url, QUICK, SystemClock(), {})


def test_azure_without_an_account_is_refused_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("AZURE_STORAGE_ACCOUNT_NAME", raising=False)
    with pytest.raises(Misconfigured, match=r"(?i)account"):
        open_remote("az://container/prefix", QUICK, SystemClock(), {})


async def test_google_and_azure_addresses_open(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "dG9wLXNlY3JldA==")
    monkeypatch.setenv("GOOGLE_SKIP_SIGNATURE", "true")
    for url in ("gs://bucket/prefix", "az://container/prefix"):
        assert repr(open_remote(url, QUICK, SystemClock(), {})) == f"<RemoteObjectStore {url}>"


# --- the end of a process

LAST_WORDS = """
import asyncio, os
from streamhouse.clock import SystemClock
from streamhouse.config import StoreSettings
from streamhouse.stores.objects.remote_open import open_remote

async def main() -> None:
    store = open_remote("s3://bucket", StoreSettings(), SystemClock(), os.environ)
    await asyncio.gather(*(store.delete(f"a/{n}") for n in range(64)))

asyncio.run(main())
"""


async def test_a_process_that_ends_upon_its_last_response_is_not_aborted(server: FakeS3) -> None:
    """Several: only now and then a thread of the client is at the one place where Python's end would abort it."""
    environ = {**os.environ, **server.environment}
    ending = [
        await asyncio.create_subprocess_exec(sys.executable, "-c", LAST_WORDS, env=environ, stderr=DEVNULL)
        for _ in range(6)
    ]
    assert [await process.wait() for process in ending] == [0] * 6
    assert server.count("DELETE") == 6 * 64


# --- an emulator of Google's


class TestGoogleEmulator(ObjectStoreContract):
    @pytest.fixture
    async def store(self, server: FakeS3) -> ObjectStore:
        return open_remote("gs://bucket/x", QUICK, SystemClock(), {"STORAGE_EMULATOR_HOST": server.endpoint})

    async def test_head_shows_size_and_time(self, store: ObjectStore, clock: object) -> None:
        await store.put_new("a/1", [b"12345"])
        meta = await store.head("a/1")
        assert (meta.key, meta.size_bytes, meta.modified_at_ms) == ("a/1", 5, 1_700_000_000_000)


@pytest.mark.parametrize("written", ["http://{}", "{}", "http://{}/"])
async def test_googles_emulator_is_found_however_it_is_written_and_sees_no_credentials(
    server: FakeS3, monkeypatch: pytest.MonkeyPatch, written: str
) -> None:
    """A token of the machine's own would be asked for at these addresses, where nobody is."""
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, "127.0.0.1:9")
    host = server.endpoint.removeprefix("http://")
    store = open_remote("gs://bucket", QUICK, SystemClock(), {"STORAGE_EMULATOR_HOST": written.format(host)})
    assert repr(store) == f"<RemoteObjectStore gs://bucket at http://{host}>"
    await check_store(store, Ids())
    assert {request.headers["authorization"] for request in server.requests} == {"Bearer emulator"}


# --- what is counted


async def test_every_request_is_counted_with_what_came_of_it(server: FakeS3) -> None:
    registry = CollectorRegistry()
    store = opened(server, registry=registry)
    server.script("PUT", "503", "lose")
    await store.put_new("a/1", [b"12345"])
    await store.get_range("a/1", 0, 4)

    def requests(operation: str, outcome: str) -> float | None:
        labels = {"operation": operation, "outcome": outcome}
        return registry.get_sample_value("streamhouse_object_store_requests_total", labels)

    assert (requests("put_new", "throttled"), requests("put_new", "unavailable")) == (1, 1)
    assert (requests("put_new", "exists"), requests("head", "ok"), requests("get_range", "ok")) == (1, 1, 2)
    assert sum(server.count(method) for method in ("PUT", "GET", "HEAD")) == 3 + 2 + 1
    limit = registry.get_sample_value("streamhouse_object_store_concurrency_limit", {"lane": "write"})
    assert limit == QUICK.max_concurrent // 4  # halved by the complaint and by the lost reply


async def test_every_page_of_a_listing_is_counted(server: FakeS3) -> None:
    server.objects = {f"a/{n:05d}": b"" for n in range(2500)}
    registry = CollectorRegistry()
    await keys_below(opened(server, registry=registry), "a/")
    labels = {"operation": "list", "outcome": "ok"}
    assert registry.get_sample_value("streamhouse_object_store_requests_total", labels) == server.count("GET") == 3
