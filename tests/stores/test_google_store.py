"""`gs://` on Google's language before a real S3 server: the contract, credentials, and an agent that is killed."""

import asyncio
import os
import re
from collections.abc import AsyncIterator
from itertools import count
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.startup_check import check_store
from tests.contracts.bucket import BucketContract
from tests.contracts.object_store import keys_below
from tests.stores.conftest import BUCKET
from tests.stores.records import RECORDS, consume, produce, values
from tests.support.agent import LiveAgent
from tests.support.proxies.google_storage import TOKEN, GoogleFront
from tests.support.s3 import RealS3
from tests.support.tls import ServiceAccount

pytestmark = pytest.mark.s3

SETTINGS = StoreSettings(request_timeout_s=30, max_retries=1, retry_wait_s=0.01, max_concurrent=400)
PREFIXES = count()


@pytest.fixture
async def google(real_s3: RealS3) -> AsyncIterator[GoogleFront]:
    async with GoogleFront(real_s3) as front:
        yield front


@pytest.fixture(autouse=True)
def nobodys_account(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """What a developer's machine knows of Google stays out; the machine's own token is asked for where nobody is."""
    for name in [name for name in os.environ if name.startswith(("GOOGLE_", "AWS_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    for name in ("GCE_METADATA_HOST", "GCE_METADATA_IP", "GCE_METADATA_ROOT"):
        monkeypatch.setenv(name, "127.0.0.1:9")


@pytest.fixture
def location() -> str:
    return f"google-{os.getpid()}-{next(PREFIXES)}"


def opened(front: GoogleFront, location: str, *, bucket: str = BUCKET, url: str = "gs") -> ObjectStore:
    return open_object_store(
        f"{url}://{bucket}/{location}",
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        settings=SETTINGS,
        environ=os.environ | {"GOOGLE_BASE_URL": front.endpoint},
    )


class TestGoogleStore(BucketContract):
    @pytest.fixture
    async def store(
        self, google: GoogleFront, location: str, monkeypatch: pytest.MonkeyPatch
    ) -> AsyncIterator[ObjectStore]:
        monkeypatch.setenv("GOOGLE_BEARER_TOKEN", TOKEN)
        store = opened(google, location)
        yield store
        await store.aclose()


async def test_an_agent_that_was_killed_finds_its_records_in_googles_bucket(
    google: GoogleFront, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With the machine's own token, as in Google's cloud; its log is in the bucket, too."""
    monkeypatch.setenv("GCE_METADATA_HOST", google.host)
    monkeypatch.setenv("GOOGLE_BASE_URL", google.endpoint)
    agent = LiveAgent(tmp_path / "data", "--store", f"gs://{BUCKET}/{location}", "--set", "wal.kind=object")
    try:
        await asyncio.to_thread(agent.start)
        await asyncio.to_thread(produce, agent.bootstrap, 0)
        agent.kill()
        await asyncio.to_thread(agent.start)
        assert await asyncio.to_thread(consume, agent.bootstrap, RECORDS) == values(1)
    finally:
        if agent.is_running:
            agent.kill()
    assert google.tokens_given == 2
    assert await keys_below(opened(google, location), "wal/") != []
    assert TOKEN not in agent.output


# --- credentials


@pytest.mark.parametrize("given", ["GOOGLE_APPLICATION_CREDENTIALS", "GOOGLE_SERVICE_ACCOUNT_KEY"])
async def test_a_service_accounts_key_signs_the_token_itself_and_sends_no_request_for_one(
    real_s3: RealS3, location: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, given: str
) -> None:
    """The client leaves `token_uri` alone, where nobody is: Google takes what the account signed."""
    account = ServiceAccount()
    file = tmp_path / "key.json"
    file.write_text(account.as_json())
    monkeypatch.setenv(given, str(file) if given == "GOOGLE_APPLICATION_CREDENTIALS" else account.as_json())
    async with GoogleFront(real_s3, knows=account.knows) as google:
        await check_store(opened(google, location), Ids())
    claims = account.seen[0]
    assert (claims["alg"], claims["kid"], claims["iss"]) == ("RS256", account.KEY_ID, account.EMAIL)
    assert claims["sub"] == claims["iss"]
    assert claims["scope"] == "https://www.googleapis.com/auth/cloud-platform"
    assert 0 < claims["exp"] - claims["iat"] <= 3600


async def test_a_token_of_the_machine_is_used_while_it_lives_and_then_requested_anew(
    google: GoogleFront, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GCE_METADATA_HOST", google.host)
    await check_store(opened(google, location), Ids())
    assert google.tokens_given == 1
    google.token_life_s = 0
    store = opened(google, location)
    for _ in range(3):
        assert await keys_below(store, "") == []
    assert google.tokens_given == 4


async def test_what_google_refuses_is_one_clear_line_at_the_start(
    google: GoogleFront, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", "somebody's")
    with pytest.raises(Misconfigured, match=r"credentials are not valid \(status=401 code=Auth.*\) do=check") as said:
        await check_store(opened(google, location), Ids())
    assert "somebody's" not in str(said.value)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", TOKEN)
    with pytest.raises(
        Misconfigured, match=rf"store=gs://nobodys/{location} at {google.endpoint} why=the bucket does not"
    ):
        await check_store(opened(google, location, bucket="nobodys"), Ids())


async def test_no_credentials_of_google_are_one_clear_line_at_the_start(google: GoogleFront, location: str) -> None:
    with pytest.raises(Misconfigured, match=r"no credentials were found do=set .*GOOGLE_APPLICATION_CREDENTIALS"):
        await check_store(opened(google, location), Ids())
    assert google.requests == []


@pytest.mark.parametrize("text", [None, "not json", '{"type": "external_account"}', '{"type": "service_account"}'])
def test_a_file_of_credentials_that_is_of_no_use_is_named(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str | None
) -> None:
    file = tmp_path / "key.json"
    if text is not None:
        file.write_text(text)
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(file))
    with pytest.raises(Misconfigured, match=r"service account.* do=correct GOOGLE_APPLICATION_CREDENTIALS"):
        open_object_store("gs://bucket", clock=SystemClock(), ids=Ids(), registry=CollectorRegistry())


# --- the other door of the same bucket


async def test_googles_door_for_s3_has_no_create_only_writes_and_is_refused_with_the_right_address(
    google: GoogleFront, location: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    environ = {"AWS_ENDPOINT_URL": google.endpoint, "AWS_ACCESS_KEY_ID": "GOOG1E", "AWS_SECRET_ACCESS_KEY": "x"}
    for name, value in environ.items():
        monkeypatch.setenv(name, value)
    with pytest.raises(Misconfigured, match=r"second create was accepted .*gs://bucket") as said:
        await check_store(opened(google, location, url="s3"), Ids())
    assert re.search(r"do=use a store that honours create-only writes", str(said.value))
