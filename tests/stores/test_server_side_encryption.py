"""SSE-S3 and SSE-KMS: what a bucket is asked for, and that a real server does it."""

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.config import StoreSettings
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.open import open_object_store
from tests.stores.conftest import BUCKET
from tests.support.fake_s3 import FakeS3
from tests.support.s3 import RealS3

SSE = "x-amz-server-side-encryption"


def opened(url: str, environ: dict[str, str], settings: StoreSettings) -> ObjectStore:
    return open_object_store(
        url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), settings=settings, environ=environ
    )


@pytest.mark.parametrize(
    ("settings", "environ", "sent"),
    [
        (StoreSettings(), {}, {}),
        (StoreSettings(sse="AES256"), {}, {SSE: "AES256"}),
        (
            StoreSettings(sse="aws:kms", sse_kms_key_id="alias/records", sse_bucket_key=True),
            {"AWS_SERVER_SIDE_ENCRYPTION": "AES256"},
            {SSE: "aws:kms", f"{SSE}-aws-kms-key-id": "alias/records", f"{SSE}-bucket-key-enabled": "true"},
        ),
        (
            StoreSettings(),
            {"AWS_SERVER_SIDE_ENCRYPTION": "aws:kms:dsse", "AWS_SSE_KMS_KEY_ID": "k"},
            {SSE: "aws:kms:dsse", f"{SSE}-aws-kms-key-id": "k"},
        ),
    ],
)
async def test_writes_carry_the_settings_and_reads_do_not(
    settings: StoreSettings, environ: dict[str, str], sent: dict[str, str]
) -> None:
    async with FakeS3() as server:
        store = opened("s3://bucket", {**server.environment, **environ}, settings)
        await store.put_new("a/1", [b"x"])
        assert await store.get_range("a/1", 0, 1) == b"x"
        await store.delete("a/1")
        put, *others = server.requests
    assert {name: value for name, value in put.headers.items() if name.startswith(SSE)} == sent
    assert not [name for each in others for name in each.headers if name.startswith(SSE)]


@pytest.mark.s3
async def test_a_real_server_encrypts_and_reads_back(real_s3: RealS3) -> None:
    store = opened(f"s3://{BUCKET}/sse", dict(real_s3.environment), StoreSettings(sse="AES256"))
    body = bytes(range(256)) * 1000
    await store.put_new("a/1", [body])
    assert await store.get_range("a/1", 100, 100_000) == body[100:100_000]
    assert await store.get_suffix("a/1", 300) == body[-300:]
    assert (await store.head("a/1")).size_bytes == len(body)
