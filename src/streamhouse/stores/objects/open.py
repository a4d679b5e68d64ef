"""Opening the object store of a URL.

Data path   none; called once at the start
Owns        the forms of URLs, and the wrappers around every store
Leaves      bucket addresses to `bucket_urls`, buckets to `remote_open`, which is imported only for one
"""

import os
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry

from streamhouse.clock import Clock, Ids
from streamhouse.config import StoreSettings, without_password
from streamhouse.errors import Misconfigured
from streamhouse.stores.encryption.data_keys import DataKeys
from streamhouse.stores.objects.adaptive import AdaptiveStore, ConcurrencySettings
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.bucket_urls import canonical, hint_for, is_remote
from streamhouse.stores.objects.encrypted import EncryptedStore, UnencryptedStore
from streamhouse.stores.objects.folder import FolderObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.metered import MeteredStore
from streamhouse.stores.objects.retrying import RetryingStore, RetrySettings
from streamhouse.stores.objects.wrapping_keys import record_key

SCHEMES: Final = (
    "supported=s3://bucket/prefix, gs://bucket/prefix, az://container/prefix, file:///absolute/path, memory:"
)


def open_object_store(
    url: str,
    *,
    clock: Clock,
    ids: Ids,
    registry: CollectorRegistry,
    settings: StoreSettings | None = None,
    environ: Mapping[str, str] | None = None,
    keys: DataKeys | None = None,
) -> ObjectStore:
    """Open the store of this URL, with metrics and retries; raises `Misconfigured`. Endpoint, region and credentials
    come from `environ`, by default the process's environment. With `keys`, records are encrypted and decrypted."""
    opened = _open(canonical(url), clock, ids, registry, settings or StoreSettings(), environ)
    if keys is None:
        return UnencryptedStore(opened)
    keys.before_use = partial(record_key, opened)
    return EncryptedStore(opened, keys, clock)


def _open(
    url: str,
    clock: Clock,
    ids: Ids,
    registry: CollectorRegistry,
    settings: StoreSettings,
    environ: Mapping[str, str] | None,
) -> ObjectStore:
    if not is_remote(url):
        local = MeteredStore(_local(url, clock), registry, clock)
        return RetryingStore(local, clock, ids, _retries(settings, attempt_timeout_s=settings.request_timeout_s))
    from streamhouse.stores.objects.remote_open import open_remote

    bucket = open_remote(url, settings, clock, os.environ if environ is None else environ)
    paced = AdaptiveStore(MeteredStore(bucket, registry, clock), clock, ids, registry, _concurrency(settings))
    return RetryingStore(paced, clock, ids, _retries(settings, attempt_timeout_s=None))


def _retries(settings: StoreSettings, *, attempt_timeout_s: float | None) -> RetrySettings:
    return RetrySettings(
        attempts=settings.max_retries + 1,
        total_s=settings.retry_total_s,
        attempt_timeout_s=attempt_timeout_s,
        first_wait_s=settings.retry_wait_s,
        max_wait_s=settings.retry_wait_max_s,
    )


def _concurrency(settings: StoreSettings) -> ConcurrencySettings:
    return ConcurrencySettings(
        max_concurrent=settings.max_concurrent,
        max_waiting=settings.max_waiting,
        max_wait_s=settings.max_wait_s,
        first_pause_s=settings.pause_s,
        max_pause_s=settings.pause_max_s,
    )


def _local(url: str, clock: Clock) -> ObjectStore:
    parts = urlsplit(url)
    absolute = parts.path.startswith("/") and parts.path.strip("/")
    if url == "memory:":
        return MemoryObjectStore(clock)
    if parts.scheme == "file" and absolute and not (parts.netloc or parts.query or parts.fragment):
        return FolderObjectStore(Path("/" + unquote(parts.path).lstrip("/")), clock)
    raise Misconfigured(
        f"not an object store; url={_url_text(url)!r} {f'do={say}' if (say := hint_for(url)) else SCHEMES}"
    )


def _url_text(url: str) -> str:
    """The URL without query and user information, which may contain a password or a signature."""
    return without_password(url.partition("?")[0])
