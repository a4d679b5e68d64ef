"""AWS: credentials of the environment, and signatures of version 4 (SigV4), for requests that obstore doesn't make.

Owns        which credentials are used; the string that is signed, and the key that signs it
Leaves      requests to `encryption.aws` and `objects.signed_reads`

Credentials come from `AWS_ACCESS_KEY_ID`, `AWS_SECRET_ACCESS_KEY` and `AWS_SESSION_TOKEN`, or from the container's own
service (`AWS_CONTAINER_CREDENTIALS_FULL_URI`: ECS, EKS Pod Identity).
"""

import hashlib
import hmac
from collections.abc import Awaitable, Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Final, NamedTuple

from streamhouse.errors import Unavailable

DEFAULT_REGION: Final = "us-east-1"
ALGORITHM: Final = "AWS4-HMAC-SHA256"
_CONTAINER: Final = "http://169.254.170.2"

Fetch = Callable[[str, Mapping[str, str]], Awaitable[Mapping[str, Any]]]
"""GET a URL with these headers; returns its JSON."""


class AwsCredentials(NamedTuple):
    access_key: str
    secret_key: str
    session_token: str = ""

    def __repr__(self) -> str:
        return f"<AwsCredentials {self.access_key}>"


def region_of(environ: Mapping[str, str]) -> str:
    return environ.get("AWS_REGION") or environ.get("AWS_DEFAULT_REGION") or DEFAULT_REGION


def has_credentials(environ: Mapping[str, str]) -> bool:
    """Whether `find_credentials` knows where to look."""
    return _of_environment(environ) is not None or bool(_container_url(environ))


async def find_credentials(environ: Mapping[str, str], fetch: Fetch) -> AwsCredentials | None:
    """The credentials of the environment, or those that the container's service gives now; None: there are none."""
    if (known := _of_environment(environ)) is not None:
        return known
    if not (url := _container_url(environ)):
        return None
    response = await fetch(url, _container_headers(environ))
    return AwsCredentials(*(str(response.get(name, "")) for name in ("AccessKeyId", "SecretAccessKey", "Token")))


def _of_environment(environ: Mapping[str, str]) -> AwsCredentials | None:
    if environ.get("AWS_ACCESS_KEY_ID") and environ.get("AWS_SECRET_ACCESS_KEY"):
        token = environ.get("AWS_SESSION_TOKEN", "")
        return AwsCredentials(environ["AWS_ACCESS_KEY_ID"], environ["AWS_SECRET_ACCESS_KEY"], token)
    return None


def _container_url(environ: Mapping[str, str]) -> str:
    if url := environ.get("AWS_CONTAINER_CREDENTIALS_FULL_URI", ""):
        return url
    path = environ.get("AWS_CONTAINER_CREDENTIALS_RELATIVE_URI", "")
    return _CONTAINER + path if path else ""


def _container_headers(environ: Mapping[str, str]) -> Mapping[str, str]:
    token = environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN", "")
    if path := environ.get("AWS_CONTAINER_AUTHORIZATION_TOKEN_FILE"):
        try:
            token = Path(path).read_text().strip()
        except OSError as error:
            raise Unavailable(f"the container's token can't be read; path={path} why={error.strerror}") from None
    return {"authorization": token} if token else {}


class Scope(NamedTuple):
    """When, where and for which service a signature counts."""

    stamp: str
    region: str
    service: str

    @classmethod
    def at(cls, now_ms: int, region: str, service: str) -> "Scope":
        return cls(datetime.fromtimestamp(now_ms / 1000, UTC).strftime("%Y%m%dT%H%M%SZ"), region, service)

    def __str__(self) -> str:
        return f"{self.stamp[:8]}/{self.region}/{self.service}/aws4_request"


def signature(
    secret_key: str,
    scope: Scope,
    *,
    method: str,
    path: str,
    query: str = "",
    headers: Mapping[str, str],
    payload_hash: str,
) -> str:
    """The signature of a request, whose `headers` (names in lower case) are all part of it."""
    lines = "".join(f"{name}:{headers[name]}\n" for name in sorted(headers))
    canonical = f"{method}\n{path}\n{query}\n{lines}\n{signed_names(headers)}\n{payload_hash}"
    text = f"{ALGORITHM}\n{scope.stamp}\n{scope}\n{hashlib.sha256(canonical.encode()).hexdigest()}"
    key = f"AWS4{secret_key}".encode()
    for part in str(scope).split("/"):
        key = hmac.digest(key, part.encode(), "sha256")
    return hmac.digest(key, text.encode(), "sha256").hex()


def signed_names(headers: Mapping[str, str]) -> str:
    return ";".join(sorted(headers))
