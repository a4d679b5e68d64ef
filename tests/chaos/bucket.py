"""Bucket: where the records of a run lie, in an S3 server of the run's own or in one that somebody names.

Data path   cluster -> **bucket** -> tunnels and the agents' environment
Owns        how another server than ours is named: `STREAMHOUSE_TEST_STORE=s3://bucket/prefix` and S3's usual variables
Leaves      starting a server of our own to `cluster`; what lies in somebody's bucket after the run, to them
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Final
from urllib.parse import urlsplit

from streamhouse.dev.processes import LOOPBACK

VARIABLE: Final = "STREAMHOUSE_TEST_STORE"


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """A place in an S3 server on this machine, so that each agent can have a tunnel to it."""

    url: str
    port: int
    environment: Mapping[str, str]


def named_bucket(environ: Mapping[str, str], *, run: str) -> Bucket | None:
    """The bucket that somebody names, and a prefix of this run's own in it; nothing when nobody does."""
    url = environ.get(VARIABLE, "").rstrip("/")
    if not url:
        return None
    endpoint = urlsplit(environ.get("AWS_ENDPOINT_URL", ""))
    if not url.startswith("s3://") or (endpoint.scheme, endpoint.hostname) != ("http", LOOPBACK) or not endpoint.port:
        raise SystemExit(f"{VARIABLE} must be s3://…, and AWS_ENDPOINT_URL its server at http://{LOOPBACK}:PORT")
    keys = {name: value for name, value in environ.items() if name.startswith("AWS_")}
    return Bucket(url=f"{url}/chaos-{run}", port=endpoint.port, environment=keys)
