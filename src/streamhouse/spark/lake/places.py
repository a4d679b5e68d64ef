"""Places: where a lake table is, a folder or a bucket, and how each library gets there.

Data path   options of a table -> **places** -> file systems of Arrow, properties of PyIceberg, options of Delta
Owns        which locations there are; which variables of the environment say where a bucket is and who may use it
Leaves      bytes to the libraries

The variables are those that agents and executors read for the bucket of the log (`stores.objects.remote_open`), and
nothing of them is ever an option of a table: locations travel, credentials don't.
"""

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import unquote, urlsplit

import pyarrow.fs as fs

from streamhouse.errors import Misconfigured

_ENDPOINTS: Final = ("AWS_ENDPOINT_URL_S3", "AWS_ENDPOINT_URL", "AWS_ENDPOINT")
_REGIONS: Final = ("AWS_REGION", "AWS_DEFAULT_REGION")
REGION: Final = "us-east-1"
"""Where the environment names none: servers of one's own don't care, but requests are signed with one."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """`root` is an absolute path, or `s3://bucket/prefix`; neither ends with a slash."""

    root: str

    @property
    def is_bucket(self) -> bool:
        return self.root.startswith("s3://")

    @property
    def url(self) -> str:
        return self.root if self.is_bucket else f"file://{self.root}"

    def under(self, *names: str) -> str:
        return "/".join([self.root, *names])

    def files(self) -> fs.FileSystem:
        return opened(self.root)


def place_of(location: str) -> Place:
    """`/lake/orders`, `file:///lake/orders` or `s3://bucket/lake/orders`; raises `Misconfigured` for the rest."""
    parts = urlsplit(location)
    if parts.scheme == "s3" and parts.netloc and not (parts.query or parts.fragment or "@" in parts.netloc):
        return Place(root=location.rstrip("/"))
    path = unquote(parts.path) if parts.scheme == "file" and not parts.netloc else location
    if os.path.isabs(path) and path.strip("/"):
        return Place(root=os.path.normpath(path))
    raise Misconfigured(
        f"no place for a lake table; location={location}"
        " do=an absolute folder that all of Spark sees, or s3://bucket/prefix"
    )


def opened(path: str) -> fs.FileSystem:
    """The file system of a path or URL; paths within it are what `within` says."""
    return _bucket(os.environ) if path.startswith("s3://") else fs.LocalFileSystem()


def within(path: str) -> str:
    """A path as its file system names it."""
    if path.startswith("s3://"):
        return path.removeprefix("s3://")
    return unquote(urlsplit(path).path) if path.startswith("file:") else path


def _bucket(environ: Mapping[str, str]) -> fs.FileSystem:
    endpoint = urlsplit(_first(environ, _ENDPOINTS))
    given: dict[str, Any] = {"region": _first(environ, _REGIONS) or REGION}
    if endpoint.netloc:
        given |= {"endpoint_override": endpoint.netloc, "scheme": endpoint.scheme}
    if environ.get("AWS_ACCESS_KEY_ID"):
        given |= {"access_key": environ["AWS_ACCESS_KEY_ID"], "secret_key": environ.get("AWS_SECRET_ACCESS_KEY", "")}
        given |= {"session_token": environ["AWS_SESSION_TOKEN"]} if environ.get("AWS_SESSION_TOKEN") else {}
    return fs.S3FileSystem(**given)


def endpoint_of(environ: Mapping[str, str] | None = None) -> str:
    """The address that replaces the cloud's own; empty: none."""
    return _first(os.environ if environ is None else environ, _ENDPOINTS)


def iceberg_properties(environ: Mapping[str, str] | None = None) -> dict[str, str]:
    """What PyIceberg must be told of the environment; it is never stored in a table."""
    found = os.environ if environ is None else environ
    told = {
        "py-io-impl": "pyiceberg.io.pyarrow.PyArrowFileIO",
        "s3.endpoint": _first(found, _ENDPOINTS),
        "s3.region": _first(found, _REGIONS) or REGION,
        "s3.access-key-id": found.get("AWS_ACCESS_KEY_ID", ""),
        "s3.secret-access-key": found.get("AWS_SECRET_ACCESS_KEY", ""),
        "s3.session-token": found.get("AWS_SESSION_TOKEN", ""),
    }
    return {name: value for name, value in told.items() if value}


def delta_options(place: Place, environ: Mapping[str, str] | None = None) -> dict[str, str] | None:
    """What delta-rs must be told; the rest it reads from the environment itself."""
    if not place.is_bucket:
        return None
    found = os.environ if environ is None else environ
    endpoint = _first(found, _ENDPOINTS)
    told = {
        "AWS_ENDPOINT_URL": endpoint,
        "AWS_REGION": _first(found, _REGIONS) or REGION,
        "AWS_ALLOW_HTTP": "true" if endpoint.startswith("http://") else "",
        "aws_conditional_put": "etag",  # commits are files that only one writer can make
    }
    return {name: value for name, value in told.items() if value}


def _first(environ: Mapping[str, str], names: tuple[str, ...]) -> str:
    return next((environ[name] for name in names if environ.get(name)), "")
