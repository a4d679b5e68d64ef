"""The URL of a PostgreSQL database, with one or more hosts.

Data path   none; read once at the start
Owns        which hosts there are, and how the database is named in texts: without user and password
Leaves      the rest of the URL to the driver
"""

from dataclasses import dataclass, field
from typing import Final
from urllib.parse import parse_qs, urlsplit

from streamhouse.errors import Misconfigured

SCHEMES: Final = ("postgresql", "postgres")
EXAMPLE: Final = "postgresql://user:password@host:5432,host2:5432/database"


@dataclass(frozen=True, slots=True, kw_only=True)
class PostgresUrl:
    where: str
    hosts: tuple[str, ...] = field(repr=False)  # a URL for each host, to be tried in this order


def parse_url(url: str) -> PostgresUrl:
    """Raise `Misconfigured`, without repeating the URL, which may hold a password, unless it names a database."""
    parts = urlsplit(url)
    login, at, hosts = parts.netloc.rpartition("@")
    database = parts.path.removeprefix("/")
    if parts.scheme not in SCHEMES or not database or "/" in database or parts.fragment:
        raise Misconfigured(
            f"the metadata URL can't be read; do=write it like {EXAMPLE} and "
            "percent-encode what is special in the password (%40 for @, %2F for /, %23 for #, %3F for ?)"
        )
    query = parse_qs(parts.query)
    wanted = parts.query if "target_session_attrs" in query else f"{parts.query}&target_session_attrs=read-write"
    return PostgresUrl(
        where=f"{hosts or ','.join(query.get('host', ['localhost']))}/{database}",
        hosts=tuple(f"postgresql://{login}{at}{host}/{database}?{wanted.lstrip('&')}" for host in hosts.split(",")),
    )
