"""Opening the object store that a URL names.

Data path   none; called once at the start
Owns        which URLs there are, and which wrappers stand around every store
Leaves      each kind of bucket to its own module
"""

from pathlib import Path
from typing import Final
from urllib.parse import unquote, urlsplit

from prometheus_client import CollectorRegistry

from streamhouse.clock import Clock, Ids
from streamhouse.errors import Misconfigured
from streamhouse.stores.objects.base import ObjectStore
from streamhouse.stores.objects.folder import FolderObjectStore
from streamhouse.stores.objects.memory import MemoryObjectStore
from streamhouse.stores.objects.metered import MeteredStore
from streamhouse.stores.objects.retrying import RetryingStore

SUPPORTED: Final = "file:///absolute/path, memory:"


def open_object_store(url: str, *, clock: Clock, ids: Ids, registry: CollectorRegistry) -> ObjectStore:
    """The store behind the URL, with metrics and retries; raise `Misconfigured` when there is none."""
    return RetryingStore(MeteredStore(_bucket(url, clock), registry, clock), clock, ids)


def _bucket(url: str, clock: Clock) -> ObjectStore:
    parts = urlsplit(url)
    absolute = parts.path.startswith("/") and parts.path.strip("/")
    if url == "memory:":
        return MemoryObjectStore(clock)
    if parts.scheme == "file" and absolute and not (parts.netloc or parts.query or parts.fragment):
        return FolderObjectStore(Path("/" + unquote(parts.path).lstrip("/")), clock)
    raise Misconfigured(f"not an object store; url={url!r} supported={SUPPORTED}")
