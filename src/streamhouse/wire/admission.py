"""Admission: who may connect, and when a new connection's turn has come.

Data path   listener -> **admission** -> connection
Owns        how many connections are open, in all and of each client address; the rate of new ones; which addresses
            are limited at all; the log lines about those that were refused or had to wait
Leaves      closing and waiting to each wire's `connection`; requests to `rates`, refusals to `failures`

One connection too many is refused. One that comes too soon waits for its turn, unread, which costs a socket and
nothing else; only where so many wait that its turn would be later than `MAX_WAIT_S` it is refused as well. Clients on
the same machine count in the limit of all connections and in no other, unless an override names their address: they
are tests, tools and sidecars, many of them behind one address.
"""

import ipaddress
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from streamhouse.config import is_loopback
from streamhouse.errors import Misconfigured
from streamhouse.wire.rates import Rates
from streamhouse.wire.seldom import Seldom

log = logging.getLogger(__name__)

MAX_WAIT_S: Final = 5.0
ALL: Final = ""
"""Whose rate is that of all clients together."""


class Limits(Protocol):
    """What a listener's settings say about connections."""

    @property
    def max_connections(self) -> int: ...
    @property
    def max_connections_per_ip(self) -> int: ...
    @property
    def max_connections_per_ip_overrides(self) -> str: ...
    @property
    def connections_per_s(self) -> float: ...
    @property
    def connections_per_s_per_ip(self) -> float: ...
    @property
    def rate_clients(self) -> int: ...


class Refusal(NamedTuple):
    """Why somebody may not connect: a word for the metric, a text for the log."""

    why: str
    text: str


class Admission:
    """The connections of one listener. Whoever was let in by `enter` must `leave`."""

    def __init__(self, settings: Limits, *, section: str) -> None:
        self._section = section
        self._overrides = parse_overrides(settings.max_connections_per_ip_overrides, section=section)
        self._all = Rates(settings.connections_per_s, clients=1)
        self._each = Rates(settings.connections_per_s_per_ip, clients=settings.rate_clients)
        self._open: Counter[str] = Counter()
        self._total = 0
        self._refused = Seldom(log, "connections refused")
        self._delayed = Seldom(log, "connections have to wait for their turn")

    def __repr__(self) -> str:
        return f"<Admission {self._section} open={self._total} addresses={len(self._open)}>"

    def enter(self, host: str, limits: Limits, now: float) -> float | Refusal:
        """Let a connection in, and say how long it has to wait before it is read from; or say why not."""
        decided = self._surplus(host, limits) or self._turn(host, limits, now)
        if isinstance(decided, Refusal):
            self._refused.write(now, listener=self._section, client=host, why=decided.text)
            return decided
        if decided:
            self._delayed.write(now, listener=self._section, client=host, wait_s=round(decided, 3))
        self._open[host] += 1
        self._total += 1
        return decided

    def leave(self, host: str) -> None:
        self._total -= 1
        self._open[host] -= 1
        if not self._open[host]:
            del self._open[host]

    def _surplus(self, host: str, limits: Limits) -> Refusal | None:
        """Decides whether there are too many already; an address that has its share leaves room for others."""
        limit = self._overrides.get(host, limits.max_connections_per_ip)
        if self._is_limited(host) and self._open[host] >= limit:
            setting = f"{self._section}.max_connections_per_ip"
            return Refusal(
                "connections_per_ip", f"too many connections of one address; limit={limit} setting={setting}"
            )
        if self._total >= (limit := limits.max_connections):
            setting = f"{self._section}.max_connections"
            return Refusal("connections", f"too many connections; limit={limit} setting={setting}")
        return None

    def _turn(self, host: str, limits: Limits, now: float) -> float | Refusal:
        if not self._is_limited(host):
            return 0.0
        self._each.per_s, self._all.per_s = limits.connections_per_s_per_ip, limits.connections_per_s
        # First its own turn: whoever comes too often takes none of those of others.
        own_s = self._each.reserve_s(host, now, within_s=MAX_WAIT_S)
        wait_s = None if own_s is None else self._all.reserve_s(ALL, now, within_s=MAX_WAIT_S)
        if own_s is None or wait_s is None:
            setting = f"{self._section}.connections_per_s" + ("_per_ip" if own_s is None else "")
            return Refusal("connection_rate", f"too many new connections; setting={setting}")
        return max(own_s, wait_s)

    def _is_limited(self, host: str) -> bool:
        return host in self._overrides or not is_loopback(host)


def parse_overrides(text: str, *, section: str) -> Mapping[str, int]:
    """`10.0.0.7:5000,::1:20` by address; raises `Misconfigured` for what is none."""
    parts = [part.strip().rpartition(":") for part in text.split(",") if part.strip()]
    try:
        return {str(ipaddress.ip_address(host.strip("[]"))): _positive(limit) for host, _, limit in parts}
    except ValueError as error:
        raise Misconfigured(
            f"{section}.max_connections_per_ip_overrides must be ADDRESS:LIMIT with commas between: {error}"
        ) from None


def _positive(text: str) -> int:
    if (number := int(text)) <= 0:
        raise ValueError(f"a limit is above 0, not {number}")
    return number
