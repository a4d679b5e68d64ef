"""Signed reads: a URL gives one range of one object for a short time, and nothing else."""

from collections.abc import Mapping
from urllib.parse import parse_qs, urlsplit

import httpx
import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Clock, Ids, SystemClock
from streamhouse.stores.aws import Scope, signature
from streamhouse.stores.objects.open import open_object_store
from streamhouse.stores.objects.signed_reads import SignedRead, open_signer
from tests.contracts.clocks import ManualClock
from tests.stores.conftest import BUCKET
from tests.support.s3 import RealS3

KEY = "segments/session/00000000000000000001"
BODY = bytes(range(200))
KEYS = {"AWS_ACCESS_KEY_ID": "AKIA1", "AWS_SECRET_ACCESS_KEY": "top-secret-key"}


async def signed(url: str, environ: Mapping[str, str], clock: Clock, *, key: str = KEY) -> SignedRead:
    signer = open_signer(url, environ, clock, valid_s=60)
    assert signer is not None
    return await signer.sign(key, 10, 20)


def test_a_signature_is_that_of_amazons_example() -> None:
    """https://docs.aws.amazon.com/AmazonS3/latest/API/sigv4-query-string-auth.html"""
    query = (
        "X-Amz-Algorithm=AWS4-HMAC-SHA256"
        "&X-Amz-Credential=AKIAIOSFODNN7EXAMPLE%2F20130524%2Fus-east-1%2Fs3%2Faws4_request"
        "&X-Amz-Date=20130524T000000Z&X-Amz-Expires=86400&X-Amz-SignedHeaders=host"
    )
    found = signature(
        "wJalrXUtnFEMI/K7MDENG/bPxRfiCYEXAMPLEKEY",
        Scope.at(1369353600000, "us-east-1", "s3"),
        method="GET",
        path="/test.txt",
        query=query,
        headers={"host": "examplebucket.s3.amazonaws.com"},
        payload_hash="UNSIGNED-PAYLOAD",
    )
    assert found == "aeeed9bbccd4d02ee5c0109b86d86835f995330da4c265957d157751f604d404"


@pytest.mark.parametrize(
    ("environ", "address"),
    [
        ({}, f"https://s3.us-east-1.amazonaws.com/records/prod/{KEY}"),
        ({"AWS_REGION": "eu-west-1"}, f"https://s3.eu-west-1.amazonaws.com/records/prod/{KEY}"),
        ({"AWS_ENDPOINT_URL": "http://minio:9000/"}, f"http://minio:9000/records/prod/{KEY}"),
        (
            {"AWS_REGION": "eu-west-1", "AWS_VIRTUAL_HOSTED_STYLE_REQUEST": "true"},
            f"https://records.s3.eu-west-1.amazonaws.com/prod/{KEY}",
        ),
    ],
)
async def test_the_address_is_the_one_that_the_agent_uses(environ: Mapping[str, str], address: str) -> None:
    read = await signed("s3a://records/prod", {**KEYS, **environ}, ManualClock())
    assert read.url.partition("?")[0] == address
    assert read.headers == {"range": "bytes=10-19"}
    assert parse_qs(urlsplit(read.url).query)["X-Amz-SignedHeaders"] == ["host;range"]
    assert "top-secret-key" not in read.url
    assert "Signature" not in repr(read)


async def test_a_session_token_is_part_of_it() -> None:
    read = await signed("s3://records", {**KEYS, "AWS_SESSION_TOKEN": "a+b/c="}, ManualClock())
    assert parse_qs(urlsplit(read.url).query)["X-Amz-Security-Token"] == ["a+b/c="]


def test_other_stores_sign_nothing() -> None:
    for url, environ in (("file:///data", KEYS), ("memory:", KEYS), ("gs://records", KEYS), ("s3://records", {})):
        assert open_signer(url, environ, SystemClock(), valid_s=60) is None


@pytest.mark.s3
async def test_a_real_server_gives_what_was_signed_and_nothing_else(real_s3: RealS3) -> None:
    for key in (KEY, f"{KEY}-2"):
        await put(real_s3, key)
    url = f"s3://{BUCKET}/signed"
    read = await signed(url, real_s3.environment, SystemClock())
    async with httpx.AsyncClient(trust_env=False) as http:
        response = await http.get(read.url, headers=dict(read.headers))
        assert (response.status_code, response.content) == (206, BODY[10:20])
        past = ManualClock(now_ms=SystemClock().now_ms() - 120_000)
        expired = await signed(url, real_s3.environment, past)
        refused = {
            "another range": (read.url, {"range": "bytes=10-20"}),
            "all of it": (read.url, {}),
            "another object": (read.url.replace(KEY, f"{KEY}-2"), read.headers),
            "longer": (read.url.replace("X-Amz-Expires=60", "X-Amz-Expires=600"), read.headers),
            "without the range in it": (read.url.replace("host%3Brange", "host"), {}),
            "too late": (expired.url, expired.headers),
        }
        for what, (address, headers) in refused.items():
            assert (await http.get(address, headers=dict(headers))).status_code == 403, what
        assert (await http.put(read.url, headers=dict(read.headers), content=b"x")).status_code == 403


async def put(server: RealS3, key: str) -> None:
    store = open_object_store(
        f"s3://{BUCKET}/signed",
        clock=SystemClock(),
        ids=Ids(),
        registry=CollectorRegistry(),
        environ=dict(server.environment),
    )
    await store.put_new(key, [BODY])
    await store.aclose()
