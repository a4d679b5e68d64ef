"""Addresses of buckets: which are ours, which of others mean the same, and what to write instead of the rest.

Data path   none; called once at the start
Owns        the form of an address; the forms that other tools have for it
Leaves      opening what it names to `remote_open`
"""

import re
from typing import Final
from urllib.parse import SplitResult, urlsplit

from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.keys import is_part

SCHEMES: Final = ("s3", "gs", "az")
_SAME: Final = {"s3a": "s3", "s3n": "s3", "gcs": "gs", "azure": "az"}
_BUCKET: Final = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{1,221}")

_PATH: Final = r"(?:/(?P<prefix>[\w./-]*))?(?:\?.*)?"
_IN_PATH: Final = rf"/(?P<bucket>[\w.-]+){_PATH}"
_R2: Final = "AWS_REGION=auto AWS_ENDPOINT_URL=https://{account}.r2.cloudflarestorage.com"
_AZURE: Final = "AZURE_STORAGE_ACCOUNT_NAME={account}"

# What others write, the scheme that it is here, and what belongs into the environment instead. The first one counts.
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
    """The address as we write it, where it can mean nothing else; any other as it is."""
    scheme, found, rest = url.partition("://")
    return f"{_SAME[scheme]}://{rest}" if found and scheme in _SAME else url


def parse_bucket(url: str) -> SplitResult:
    """The bucket and the prefix that a canonical address names; raise `Misconfigured` when it names none."""
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


def advise(url: str) -> str | None:
    """What to write and to set for an address that another tool knows; None: nobody knows it."""
    for form, scheme, variables in _OTHERS:
        if found := re.fullmatch(form, url, re.ASCII):
            named = found.groupdict()
            written = f"{scheme}://{named['bucket']}/{named['prefix'] or ''}".rstrip("/")
            return f"write {written}" + (f" and set {variables.format(**named)}" if variables else "")
    return None
