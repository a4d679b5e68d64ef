"""Opens a bucket: from a URL and the environment to a client library with our limits.

Owns        environment variables; the library's timeouts, and that it never retries; ending its threads before Python
            exits
Leaves      the form of URLs to `bucket_urls`; credentials and the rest of the environment to the library, which knows
            each cloud's usual variables
"""

import atexit
import threading
from collections.abc import Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Final
from urllib.parse import SplitResult

from obstore.exceptions import BaseError
from obstore.store import AzureStore, GCSStore, S3Store
from obstore.store import ObjectStore as Client

from streamhouse.clock import Clock
from streamhouse.config import StoreSettings, without_password
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.bucket_urls import parse_bucket, s3_endpoint
from streamhouse.stores.objects.remote import MAX_PUT_BYTES, RemoteObjectStore

if TYPE_CHECKING:
    from obstore.store import ClientConfig, GCSConfig, RetryConfig, S3Config

_REST_S: Final = 0.1
_PASSED_OPTIONS: Final = {
    "AWS_ACCESS_KEY_ID": "access_key_id",
    "AWS_SECRET_ACCESS_KEY": "secret_access_key",
    "AWS_SESSION_TOKEN": "session_token",
    "AWS_DEFAULT_REGION": "default_region",
    "AWS_REGION": "region",
    "AWS_SERVER_SIDE_ENCRYPTION": "server_side_encryption",
    "AWS_SSE_KMS_KEY_ID": "sse_kms_key_id",
    "AWS_SSE_BUCKET_KEY_ENABLED": "sse_bucket_key_enabled",
}


def open_remote(url: str, settings: StoreSettings, clock: Clock, environ: Mapping[str, str]) -> RemoteObjectStore:
    """Open the bucket of this URL without a request; raises `Misconfigured`."""
    parts = parse_bucket(url)
    endpoint = _endpoint(parts.scheme, environ)
    _rest_at_exit()
    try:
        client = _client(parts, settings, environ, endpoint)
    except (BaseError, ValueError) as error:
        raise Misconfigured(f"the object store's settings are not usable; why={_message(error)}") from None
    location = f"{parts.scheme}://{parts.netloc}{parts.path.rstrip('/')}"
    if endpoint:
        location += f" at {without_password(endpoint)}"
    return RemoteObjectStore(client, settings, clock, location=location, has_suffixes=parts.scheme != "az")


@cache
def _rest_at_exit() -> None:
    """Let Python wait a moment before it ends.

    A thread of the client that has just handed over an answer still needs Python's lock to come back from it. When
    Python ends in between, it ends that thread, which aborts the process; the client doesn't show whether it is done.
    """
    atexit.register(threading.Event().wait, _REST_S)


def _endpoint(scheme: str, environ: Mapping[str, str]) -> str:
    """The custom endpoint; empty: the cloud's own."""
    if scheme == "s3":
        return s3_endpoint(environ)
    if scheme == "az":
        return environ.get("AZURE_STORAGE_ENDPOINT", "")
    return _emulator(environ) or environ.get("GOOGLE_BASE_URL", "").rstrip("/")


def _emulator(environ: Mapping[str, str]) -> str:
    """The address of Google's emulator; empty: none."""
    emulator = environ.get("STORAGE_EMULATOR_HOST", "").rstrip("/")
    return f"http://{emulator}" if emulator and "://" not in emulator else emulator  # Google's tools accept both forms


def _client(parts: SplitResult, settings: StoreSettings, environ: Mapping[str, str], endpoint: str) -> Client:
    bucket, prefix = parts.netloc, parts.path.strip("/") or None
    options, retries = _options(settings, environ, endpoint), _no_retries()
    if parts.scheme == "s3" and environ.get("AWS_CA_BUNDLE") and not endpoint.startswith("http://"):
        options["root_certificate"] = _certificates(environ["AWS_CA_BUNDLE"])
    if parts.scheme == "gs":
        google = _google_config(endpoint, is_emulator=bool(_emulator(environ)))
        return GCSStore(bucket, prefix=prefix, config=google, client_options=options, retry_config=retries)
    if parts.scheme == "az":
        return AzureStore(bucket, prefix=prefix, client_options=options, retry_config=retries)
    config = _s3_config(settings, environ, endpoint)
    return S3Store(bucket, prefix=prefix, config=config, client_options=options, retry_config=retries)


def _google_config(endpoint: str, *, is_emulator: bool) -> "GCSConfig":
    """An emulator needs no credentials, and gets none of the environment's.

    A token is given all the same: without one the client looks for it at the machine's own service, even when told
    not to sign.
    """
    if is_emulator:
        return {"base_url": endpoint, "bearer_token": "emulator"}
    return {"base_url": endpoint} if endpoint else {}


def _s3_config(settings: StoreSettings, environ: Mapping[str, str], endpoint: str) -> "S3Config":
    """S3 options that are always set, and those with several environment variables."""
    config: dict[str, object] = {"conditional_put": "etag", "disable_bulk_delete": True}
    config |= {option: environ[name] for name, option in _PASSED_OPTIONS.items() if environ.get(name)}
    if settings.sse:
        config["server_side_encryption"] = settings.sse
    if settings.sse_kms_key_id:
        config["sse_kms_key_id"] = settings.sse_kms_key_id
    if settings.sse_bucket_key:
        config["sse_bucket_key_enabled"] = True
    if endpoint:
        config["endpoint"] = endpoint
    return config  # type: ignore[return-value]


def _options(settings: StoreSettings, environ: Mapping[str, str], endpoint: str) -> "ClientConfig":
    """The deadline of a call is ours (`RemoteObjectStore`); the client's own deadline is longer."""
    longest_s = settings.request_timeout_s + MAX_PUT_BYTES / settings.min_bytes_per_s
    return {
        "timeout": timedelta(seconds=longest_s),
        "connect_timeout": timedelta(seconds=settings.connect_timeout_s),
        "pool_idle_timeout": timedelta(seconds=settings.idle_timeout_s),
        "allow_http": endpoint.startswith("http://") or environ.get("AZURE_STORAGE_USE_EMULATOR") == "true",
    }


def _certificates(path: str) -> bytes:
    """Certificates of an authority, trusted besides those of the system. For any cloud, and instead: the client's
    SSL_CERT_FILE."""
    try:
        certificates, why = Path(path).read_bytes(), "it holds none in PEM"
    except OSError as error:
        certificates, why = b"", error.strerror or "unknown"
    if b"BEGIN CERTIFICATE" not in certificates:
        raise Misconfigured(f"the certificates can't be read; path={path} why={why} do=correct AWS_CA_BUNDLE")
    return certificates


def _no_retries() -> "RetryConfig":
    return {"max_retries": 0, "retry_timeout": timedelta(seconds=1)}


def _message(error: Exception) -> str:
    first_line = str(error).partition("\n")[0][:200]
    if "service account" in first_line:
        first_line += " do=correct GOOGLE_APPLICATION_CREDENTIALS or GOOGLE_SERVICE_ACCOUNT_KEY"
    return first_line
