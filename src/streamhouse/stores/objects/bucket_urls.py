"""Bucket URLs: ours, and equivalent forms of other tools.

Owns        the form of bucket URLs, without the client library, whose import takes memory that an agent with a folder
            needs not
Leaves      opening to `remote_open`
"""

import re
from collections.abc import Mapping
from typing import Final
from urllib.parse import SplitResult, urlsplit

from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import is_part

SCHEMES: Final = ("s3", "gs", "az")
_S3_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")

_PATH: Final = r"(?:/(?P<prefix>[\w./-]*))?(?:\?.*)?"
_IN_PATH: Final = rf"/(?P<bucket>[\w.-]+){_PATH}"
_R2: Final = "AWS_REGION=auto AWS_ENDPOINT_URL=https://{account}.r2.cloudflarestorage.com"
_AZURE: Final = "AZURE_STORAGE_ACCOUNT_NAME={account}"

# Forms of other tools, our scheme for them, and what belongs into the environment instead. The first match counts.
_OTHERS: Final = (
    (rf"r2://(?P<bucket>[\w.-]+){_PATH}", "s3", _R2.format(account="ACCOUNT")),
    (rf"https://(?P<account>[\w.-]+)\.r2\.cloudflarestorage\.com{_IN_PATH}", "s3", _R2),
    (rf"https?://(?P<bucket>[\w.-]+)\.s3[.-](?P<region>[\w-]+)\.amazonaws\.com{_PATH}", "s3", "AWS_REGION={region}"),
    (rf"https?://s3[.-](?P<region>[\w-]+)\.amazonaws\.com{_IN_PATH}", "s3", "AWS_REGION={region}"),
    (rf"https?://storage\.(?:googleapis|cloud\.google)\.com{_IN_PATH}", "gs", ""),
    (rf"https?://(?P<bucket>[\w.-]+)\.storage\.googleapis\.com{_PATH}", "gs", ""),
    (rf"https?://(?P<account>\w+)\.(?:blob|dfs)\.core\.windows\.net{_IN_PATH}", "az", _AZURE),
    (rf"(?:abfs|wasb)s?://(?P<bucket>[\w-]+)@(?P<account>\w+)\.(?:blob|dfs)\.core\.windows\.net{_PATH}", "az", _AZURE),
    (rf"(?:abfs|wasb)s?://(?P<bucket>[\w-]+){_PATH}", "az", _AZURE.format(account="ACCOUNT")),
    (rf"(?P<endpoint>https?://[\w.-]+(?::\d+)?){_IN_PATH}", "s3", "AWS_ENDPOINT_URL={endpoint}"),
)


def canonical(url: str) -> str:
    """Our form of the URL if it is unambiguous; other URLs unchanged."""
    scheme, separator, rest = url.partition("://")
    return f"{_SAME[scheme]}://{rest}" if separator and scheme in _SAME else url


def parse_bucket(url: str) -> SplitResult:
    """Bucket and prefix of a canonical URL; raises `Misconfigured` if it has none."""
    parts = urlsplit(url)
    if "@" in parts.netloc or parts.query:
        raise Misconfigured(
            "credentials and options don't belong in the address of the object store;"
            " do=use the environment, for example AWS_ACCESS_KEY_ID"
        )
    prefix = parts.path.strip("/")
    if not _BUCKET.fullmatch(parts.netloc) or parts.fragment or (prefix and not all(map(is_part, prefix.split("/")))):
        raise Misconfigured(f"not a bucket and prefix; url={url!r} do=write it like {parts.scheme}://bucket/prefix")
    return parts


def hint_for(url: str) -> str | None:
    """What to use instead of another tool's URL; None if it is unknown."""
    for form, scheme, variables in _OTHERS:
        if match := re.fullmatch(form, url, re.ASCII):
            named = match.groupdict()
            written = f"{scheme}://{named['bucket']}/{named['prefix'] or ''}".rstrip("/")
            return f"write {written}" + (f" and set {variables.format(**named)}" if variables else "")
    return None


def is_remote(url: str) -> bool:
    return urlsplit(url).scheme in SCHEMES


def s3_endpoint(environ: Mapping[str, str]) -> str:
    """The custom endpoint of S3; empty: Amazon's own."""
    return next((environ[name] for name in _S3_ENDPOINTS if environ.get(name)), "")
