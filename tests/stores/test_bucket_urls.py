"""Addresses as other tools write them: the same bucket where they can mean nothing else, or the right form by name."""

import pytest
from prometheus_client import CollectorRegistry

from streamhouse.clock import Ids, SystemClock
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.bucket_urls import canonical, hint_for
from streamhouse.stores.objects.open import open_object_store
from tests.contracts.object_store import keys_below
from tests.support.fake_s3 import FakeS3

R2 = "AWS_REGION=auto AWS_ENDPOINT_URL=https://{}.r2.cloudflarestorage.com"


def opened(url: str, environ: dict[str, str] | None = None) -> ObjectStore:
    return open_object_store(
        url, clock=SystemClock(), ids=Ids(), registry=CollectorRegistry(), environ={} if environ is None else environ
    )


@pytest.mark.parametrize(
    ("written", "ours"),
    [
        ("s3a://bucket/a/b", "s3://bucket/a/b"),
        ("s3n://bucket", "s3://bucket"),
        ("gcs://bucket/a", "gs://bucket/a"),
        ("azure://container/a", "az://container/a"),
        ("s3://bucket/s3a", "s3://bucket/s3a"),
        ("file:///gcs/a", "file:///gcs/a"),
        ("memory:", "memory:"),
        ("", ""),
    ],
)
def test_another_spelling_of_a_scheme_is_the_same_address(written: str, ours: str) -> None:
    assert canonical(written) == ours
    assert canonical(ours) == ours


async def test_records_written_under_one_spelling_are_read_under_the_other() -> None:
    async with FakeS3() as server:
        await opened("s3a://bucket/x", server.environment).put_new("a/1", [b"hello"])
        assert await keys_below(opened("s3://bucket/x", server.environment), "a/") == ["a/1"]
        assert set(server.objects) == {"x/a/1"}


@pytest.mark.parametrize(
    ("written", "advice"),
    [
        ("r2://bucket/a", f"write s3://bucket/a and set {R2.format('ACCOUNT')}"),
        ("https://0ab1.r2.cloudflarestorage.com/bucket", f"write s3://bucket and set {R2.format('0ab1')}"),
        (
            "https://0ab1.eu.r2.cloudflarestorage.com/bucket/a/b/",
            f"write s3://bucket/a/b and set {R2.format('0ab1.eu')}",
        ),
        ("https://bucket.s3.eu-west-1.amazonaws.com/a", "write s3://bucket/a and set AWS_REGION=eu-west-1"),
        ("https://s3.eu-west-1.amazonaws.com/bucket/a", "write s3://bucket/a and set AWS_REGION=eu-west-1"),
        ("https://storage.googleapis.com/bucket/a", "write gs://bucket/a"),
        ("https://storage.cloud.google.com/bucket", "write gs://bucket"),
        ("https://bucket.storage.googleapis.com/a", "write gs://bucket/a"),
        ("https://acc.blob.core.windows.net/box/a", "write az://box/a and set AZURE_STORAGE_ACCOUNT_NAME=acc"),
        ("abfss://box@acc.dfs.core.windows.net/a", "write az://box/a and set AZURE_STORAGE_ACCOUNT_NAME=acc"),
        ("wasb://box@acc.blob.core.windows.net", "write az://box and set AZURE_STORAGE_ACCOUNT_NAME=acc"),
        ("abfs://box/a", "write az://box/a and set AZURE_STORAGE_ACCOUNT_NAME=ACCOUNT"),
        ("http://127.0.0.1:9000/bucket/a", "write s3://bucket/a and set AWS_ENDPOINT_URL=http://127.0.0.1:9000"),
        ("https://minio.example.com/bucket", "write s3://bucket and set AWS_ENDPOINT_URL=https://minio.example.com"),
    ],
)
def test_an_address_of_another_tool_is_answered_with_the_right_form(written: str, advice: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        opened(written)
    assert str(refused.value) == f"not an object store; url={written!r} do={advice}"


@pytest.mark.parametrize("url", ["ftp://bucket/a", "https://minio.example.com", "bucket/a", "hdfs://name:8020/a"])
def test_an_address_that_nobody_knows_is_answered_with_those_that_there_are(url: str) -> None:
    assert hint_for(url) is None
    with pytest.raises(Misconfigured, match=r"supported=s3://bucket/prefix, gs://bucket/prefix"):
        opened(url)


@pytest.mark.parametrize(
    "url",
    [
        "https://acc.blob.core.windows.net/box?sp=rw&sig=top-secret",
        "https://key:top-secret@minio.example.com/bucket",
        "r2://key:top-secret@bucket/a",
    ],
)
def test_what_is_secret_in_such_an_address_is_not_repeated(url: str) -> None:
    with pytest.raises(Misconfigured, match="not an object store") as refused:
        opened(url)
    assert "top-secret" not in str(refused.value)
