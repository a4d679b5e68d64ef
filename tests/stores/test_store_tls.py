"""Buckets behind https with an authority of one's own, for each cloud, and what is said of certificates that fail."""

import asyncio
import os
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.startup_check import check_store
from tests.stores.conftest import BUCKET
from tests.support.agent import LiveAgent
from tests.support.proxies.google_storage import TOKEN, GoogleFront
from tests.support.proxies.http import HttpFront, Recorder, Reply, Request
from tests.support.s3 import RealS3
from tests.support.tls import Authority

pytestmark = pytest.mark.s3

NOT_TRUSTED = r"why=its certificate is not trusted do=name its authority's certificate in SSL_CERT_FILE"


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    return Authority(tmp_path)


@pytest.fixture
def another(tmp_path: Path) -> Authority:
    return Authority(tmp_path, "another")


@pytest.fixture(autouse=True)
def clouds(monkeypatch: pytest.MonkeyPatch) -> None:
    """Credentials for each of them, and nobody's authorities."""
    for name in ("AWS_CA_BUNDLE", "SSL_CERT_FILE", "SSL_CERT_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("GOOGLE_BEARER_TOKEN", TOKEN)
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_NAME", "account")
    monkeypatch.setenv("AZURE_STORAGE_ACCOUNT_KEY", "dG9wLXNlY3JldA==")


def opened(url: str, **environ: str) -> ObjectStore:
    return open_object_store(
        url,
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        settings=StoreSettings(max_retries=1, retry_wait_s=0.01),
        environ=os.environ | environ,
    )


async def test_an_authority_in_aws_ca_bundle_is_trusted_for_s3(
    real_s3: RealS3, authority: Authority, another: Authority
) -> None:
    async with Recorder(real_s3.port, tls=authority.server()) as front:
        environ = real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}
        await check_store(opened(f"s3://{BUCKET}/tls", **environ, AWS_CA_BUNDLE=str(authority.path)), Ids())
        proven = len(front.requests)
        for trusted in ({}, {"AWS_CA_BUNDLE": str(another.path)}):
            with pytest.raises(Misconfigured, match=f"store=s3://{BUCKET}/tls at {front.endpoint} {NOT_TRUSTED}"):
                await check_store(opened(f"s3://{BUCKET}/tls", **environ, **trusted), Ids())
        assert len(front.requests) == proven > 0


async def test_an_authority_in_ssl_cert_file_is_trusted_for_google(
    real_s3: RealS3, authority: Authority, another: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with GoogleFront(real_s3, tls=authority.server()) as front:
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        await check_store(opened(f"gs://{BUCKET}/tls", GOOGLE_BASE_URL=front.endpoint), Ids())
        monkeypatch.setenv("SSL_CERT_FILE", str(another.path))
        with pytest.raises(Misconfigured, match=f"store=gs://{BUCKET}/tls at {front.endpoint} {NOT_TRUSTED}"):
            await check_store(opened(f"gs://{BUCKET}/tls", GOOGLE_BASE_URL=front.endpoint), Ids())


class NoAccount(HttpFront):
    """Azure's word for a key that is wrong: who hears it has trusted the certificate."""

    async def answer(self, request: Request) -> Reply:
        return Reply(status=403, body=b"<Error><Code>AuthenticationFailed</Code></Error>")


async def test_an_authority_in_ssl_cert_file_is_trusted_for_azure(
    authority: Authority, another: Authority, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with NoAccount(0, tls=authority.server()) as front:
        monkeypatch.setenv("AZURE_STORAGE_ENDPOINT", front.endpoint)
        monkeypatch.setenv("SSL_CERT_FILE", str(authority.path))
        with pytest.raises(Misconfigured, match="the credentials are not valid"):
            await check_store(opened("az://container/tls"), Ids())
        monkeypatch.setenv("SSL_CERT_FILE", str(another.path))
        with pytest.raises(Misconfigured, match=NOT_TRUSTED):
            await check_store(opened("az://container/tls"), Ids())


async def test_a_certificate_for_another_name_or_of_another_time_is_distinguished(
    real_s3: RealS3, authority: Authority
) -> None:
    for server, said in (
        (authority.server("127.0.0.2"), r"why=its certificate is for another name do=use a name"),
        (authority.server(age_days=9), r"why=its certificate has expired do=renew it"),
    ):
        async with Recorder(real_s3.port, tls=server) as front:
            environ = real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}
            with pytest.raises(Misconfigured, match=said):
                await check_store(opened(f"s3://{BUCKET}/tls", **environ, AWS_CA_BUNDLE=str(authority.path)), Ids())


async def test_https_where_there_is_none_is_one_clear_line(real_s3: RealS3) -> None:
    environ = real_s3.environment | {"AWS_ENDPOINT_URL": f"https://127.0.0.1:{real_s3.port}"}
    with pytest.raises(Misconfigured, match=r"why=it does not speak TLS do=use http://"):
        await check_store(opened(f"s3://{BUCKET}/tls", **environ), Ids())


@pytest.mark.parametrize("text", [None, "no certificate"])
def test_a_bundle_without_certificates_is_named_also_for_amazon_itself(tmp_path: Path, text: str | None) -> None:
    bundle = tmp_path / "bundle.pem"
    if text is not None:
        bundle.write_text(text)
    with pytest.raises(Misconfigured, match=rf"path={bundle} why=.* do=correct AWS_CA_BUNDLE"):
        opened("s3://bucket", AWS_CA_BUNDLE=str(bundle), AWS_ENDPOINT_URL="", AWS_ENDPOINT_URL_S3="")


async def test_an_agent_says_in_one_line_that_it_does_not_trust_its_store(
    real_s3: RealS3, authority: Authority, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with Recorder(real_s3.port, tls=authority.server()) as front:
        for name, value in (real_s3.environment | {"AWS_ENDPOINT_URL": front.endpoint}).items():
            monkeypatch.setenv(name, value)
        agent = LiveAgent(tmp_path / "data", "--store", f"s3://{BUCKET}/tls-{tmp_path.name}")
        with pytest.raises(AssertionError, match=NOT_TRUSTED):
            await asyncio.to_thread(agent.start)
        assert "Traceback" not in agent.output
        monkeypatch.setenv("AWS_CA_BUNDLE", str(authority.path))
        await asyncio.to_thread(agent.start)
        assert await asyncio.to_thread(agent.stop) == 0
