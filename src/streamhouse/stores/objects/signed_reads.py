"""Signed reads: URLs with which a client without credentials can read a range of an object for a short time.

Data path   read plans -> **signed reads** -> executors of Spark -> a bucket
Owns        signing GETs for S3 and compatible servers (presigned URLs, SigV4)
Leaves      who may read which range to `broker.fetch.read_plans`

The range is part of what is signed: an object has records of many topics, and the URL is refused for any other bytes.
"""

import asyncio
from collections.abc import Mapping
from typing import Any, Final, NamedTuple, Protocol
from urllib.parse import quote, urlencode, urlsplit

from streamhouse.clock import Clock
from streamhouse.errors import Unavailable
from streamhouse.stores.aws import (
    ALGORITHM,
    AwsCredentials,
    Scope,
    find_credentials,
    has_credentials,
    region_of,
    signature,
    signed_names,
)
from streamhouse.stores.objects.base import check_key, check_range
from streamhouse.stores.objects.bucket_urls import canonical, parse_bucket, s3_endpoint

CREDENTIALS_S: Final = 60.0
"""How long credentials of the container's service are used before they are fetched again; it replaces them long before
they expire."""
FETCH_TIMEOUT_S: Final = 5.0
UNSIGNED: Final = "UNSIGNED-PAYLOAD"


class SignedRead(NamedTuple):
    """A GET that any client may send, with exactly these headers."""

    url: str
    headers: Mapping[str, str]

    def __repr__(self) -> str:
        return "<SignedRead>"  # who has it may read


class ReadSigner(Protocol):
    async def sign(self, key: str, start: int, end: int) -> SignedRead:
        """Sign a read of bytes [start, end), which are not empty; raises `Unavailable`."""
        ...


def open_signer(url: str, environ: Mapping[str, str], clock: Clock, *, valid_s: float) -> ReadSigner | None:
    """The signer of the store of this URL; None if the store knows no signed URLs, or the credentials aren't known:
    obstore finds more kinds of them than `stores.aws`, and doesn't expose them."""
    url = canonical(url)
    if urlsplit(url).scheme != "s3" or not has_credentials(environ):
        return None
    return S3ReadSigner(url, environ, clock, valid_s=valid_s)


class S3ReadSigner:
    def __init__(self, url: str, environ: Mapping[str, str], clock: Clock, *, valid_s: float) -> None:
        self._base = _base_url(url, environ)
        self._region = region_of(environ)
        self._environ = environ
        self._clock = clock
        self._credentials: AwsCredentials | None = None
        self._fetched_at = float("-inf")
        self._fetching = asyncio.Lock()
        self._valid_s = valid_s

    def __repr__(self) -> str:
        return f"<S3ReadSigner {self._base} valid_s={self._valid_s:g}>"

    async def sign(self, key: str, start: int, end: int) -> SignedRead:
        check_key(key)
        check_range(start, end)
        credentials = await self._current_credentials()
        scope = Scope.at(self._clock.now_ms(), self._region, "s3")
        url = urlsplit(f"{self._base}/{key}")
        headers = {"host": url.netloc, "range": f"bytes={start}-{end - 1}"}
        values = {
            "X-Amz-Algorithm": ALGORITHM,
            "X-Amz-Credential": f"{credentials.access_key}/{scope}",
            "X-Amz-Date": scope.stamp,
            "X-Amz-Expires": str(round(self._valid_s)),
            "X-Amz-SignedHeaders": signed_names(headers),
        }
        if credentials.session_token:
            values["X-Amz-Security-Token"] = credentials.session_token
        query = urlencode(sorted(values.items()), quote_via=quote, safe="~")
        path = quote(url.path, safe="/~")
        signed = signature(
            credentials.secret_key,
            scope,
            method="GET",
            path=path,
            query=query,
            headers=headers,
            payload_hash=UNSIGNED,
        )
        address = f"{url.scheme}://{url.netloc}{path}?{query}&X-Amz-Signature={signed}"
        return SignedRead(address, {"range": headers["range"]})

    async def _current_credentials(self) -> AwsCredentials:
        async with self._fetching:
            if self._credentials is None or self._clock.monotonic() >= self._fetched_at + CREDENTIALS_S:
                self._credentials = await find_credentials(self._environ, _fetch)
                self._fetched_at = self._clock.monotonic()
        assert self._credentials is not None  # `open_signer` has looked
        return self._credentials


def _base_url(url: str, environ: Mapping[str, str]) -> str:
    """The address of the bucket and prefix, as obstore makes it."""
    parts, endpoint = parse_bucket(url), s3_endpoint(environ).rstrip("/")
    bucket, prefix = parts.netloc, parts.path.rstrip("/")
    if environ.get("AWS_VIRTUAL_HOSTED_STYLE_REQUEST", "").lower() == "true":
        return (endpoint or f"https://{bucket}.s3.{region_of(environ)}.amazonaws.com") + prefix
    return f"{endpoint or f'https://s3.{region_of(environ)}.amazonaws.com'}/{bucket}{prefix}"


async def _fetch(url: str, headers: Mapping[str, str]) -> Mapping[str, Any]:
    """The answer of the container's service; what it says is in no error."""
    import httpx  # agents without such a service don't load it to start

    try:
        async with httpx.AsyncClient(trust_env=False, timeout=FETCH_TIMEOUT_S) as client:
            response = await client.get(url, headers=dict(headers))
            found: Mapping[str, Any] = response.raise_for_status().json()
            return found
    except (httpx.HTTPError, httpx.InvalidURL, ValueError) as error:
        raise Unavailable(f"the container's credentials can't be fetched; why={type(error).__name__}") from None
