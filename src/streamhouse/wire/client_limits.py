"""Limits for clients that all protocols share: rates, connections, and repeated requests that fail.

`TokenBuckets` limit how often a client address sends requests or connects. Each protocol decides whether to reject or
to wait; Kafka clients are limited by bytes in flight instead.

`ConnectionLimits` decide whether a client may connect, and when. A connection above a limit is rejected. One above the
rate waits, unread, which costs a socket; it is rejected only if it would wait for longer than `MAX_WAIT_S`. Clients on
the same machine count only in the limit of all connections unless an override names their address: they are tests,
tools and sidecars, many of them behind one address.

`RejectionBackoff` delays error responses to a client that repeats failing requests without a pause. A client that waits
between its retries is never delayed: `per_s` errors a second are allowed forever, and a second's worth at once.
Requests that were sent before the client received its last error are not delayed and count little: all requests that a
producer had in flight to a leader that has moved fail at once. The time of a delay does not count as a pause, so the
delays of a client that continues grow up to `max_delay_s`; they end within moments after it stops.
"""

import ipaddress
import logging
from collections import Counter, OrderedDict
from collections.abc import Mapping
from typing import Final, NamedTuple, Protocol

from streamhouse.config import is_loopback
from streamhouse.errors import Misconfigured
from streamhouse.telemetry import RateLimitedLog


class _Bucket(NamedTuple):
    turns: float
    at: float


class TokenBuckets:
    """One token bucket per client: `per_s` tokens a second, at most one second's worth. Beyond `clients` addresses the
    longest inactive are dropped, and start with a full bucket again."""

    def __init__(self, per_s: float, *, clients: int) -> None:
        self.per_s = per_s
        self._limit = clients
        self._buckets: OrderedDict[str, _Bucket] = OrderedDict()

    def __repr__(self) -> str:
        return f"<TokenBuckets per_s={self.per_s:g} clients={len(self._buckets)}>"

    def __len__(self) -> int:
        return len(self._buckets)

    def take(self, client: str, now: float) -> float:
        """Take a token and return 0, or return the time until there is one."""
        turns = self._turns(client, now)
        granted = turns >= 1
        self._keep(client, turns - 1 if granted else turns, now)
        return 0.0 if granted else (1 - turns) / self.per_s

    def reserve(self, client: str, now: float, *, within_s: float) -> float | None:
        """Take the next token, which may be a future one, and return the time until it is due; None without taking one
        if that exceeds `within_s`."""
        turns = self._turns(client, now)
        wait_s = max(0.0, (1 - turns) / self.per_s)
        is_soon = wait_s <= within_s
        self._keep(client, turns - 1 if is_soon else turns, now)
        return wait_s if is_soon else None

    def _turns(self, client: str, now: float) -> float:
        most = max(1.0, self.per_s)
        bucket = self._buckets.pop(client, None) or _Bucket(most, now)
        return min(most, bucket.turns + (now - bucket.at) * self.per_s)

    def _keep(self, client: str, turns: float, now: float) -> None:
        self._buckets[client] = _Bucket(turns, now)
        if len(self._buckets) > self._limit:
            self._buckets.popitem(last=False)


log = logging.getLogger(__name__)

MAX_WAIT_S: Final = 5.0
ALL: Final = ""
"""The key of the rate of all clients together."""


class LimitSettings(Protocol):
    """The connection limits of a listener's settings."""

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


class Rejection(NamedTuple):
    """Why a connection is rejected: a label for the metric, a text for the log."""

    why: str
    text: str


class ConnectionLimits:
    """The connections of one listener. Each connection admitted by `admit` must call `leave` at its end."""

    def __init__(self, settings: LimitSettings, *, section: str) -> None:
        self._section = section
        self._overrides = parse_overrides(settings.max_connections_per_ip_overrides, section=section)
        self._all = TokenBuckets(settings.connections_per_s, clients=1)
        self._each = TokenBuckets(settings.connections_per_s_per_ip, clients=settings.rate_clients)
        self._open: Counter[str] = Counter()
        self._total = 0
        self._refused = RateLimitedLog(log, "connections rejected")
        self._delayed = RateLimitedLog(log, "connections are delayed")

    def __repr__(self) -> str:
        return f"<ConnectionLimits {self._section} open={self._total} addresses={len(self._open)}>"

    def admit(self, host: str, limits: LimitSettings, now: float) -> float | Rejection:
        """Admit a connection and return the delay before it is read, or return the rejection."""
        decided = self._surplus(host, limits) or self._turn(host, limits, now)
        if isinstance(decided, Rejection):
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

    def _surplus(self, host: str, limits: LimitSettings) -> Rejection | None:
        """The rejection if there are too many connections, in total or of this address."""
        limit = self._overrides.get(host, limits.max_connections_per_ip)
        if self._is_limited(host) and self._open[host] >= limit:
            setting = f"{self._section}.max_connections_per_ip"
            return Rejection(
                "connections_per_ip", f"too many connections of one address; limit={limit} setting={setting}"
            )
        if self._total >= (limit := limits.max_connections):
            setting = f"{self._section}.max_connections"
            return Rejection("connections", f"too many connections; limit={limit} setting={setting}")
        return None

    def _turn(self, host: str, limits: LimitSettings, now: float) -> float | Rejection:
        if not self._is_limited(host):
            return 0.0
        self._each.per_s, self._all.per_s = limits.connections_per_s_per_ip, limits.connections_per_s
        # The limit of the address first, so that rejected connections take no tokens of other clients.
        own_s = self._each.reserve(host, now, within_s=MAX_WAIT_S)
        wait_s = None if own_s is None else self._all.reserve(ALL, now, within_s=MAX_WAIT_S)
        if own_s is None or wait_s is None:
            setting = f"{self._section}.connections_per_s" + ("_per_ip" if own_s is None else "")
            return Rejection("connection_rate", f"too many new connections; setting={setting}")
        return max(own_s, wait_s)

    def _is_limited(self, host: str) -> bool:
        return host in self._overrides or not is_loopback(host)


def parse_overrides(text: str, *, section: str) -> Mapping[str, int]:
    """Parse `10.0.0.7:5000,::1:20` to limits by address; raises `Misconfigured`."""
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


UNKNOWING: Final = 1 / 16
"""The cost of a request that was sent before the client received its last error."""


class _Attempts(NamedTuple):
    left: float
    rejected_at: float


class RejectionBackoff:
    """The clients with recent error responses, by connection; beyond `clients` the longest inactive are dropped."""

    def __init__(self, per_s: float, *, max_delay_s: float, clients: int) -> None:
        self._per_s = per_s
        self._most = max(1.0, per_s)
        self._max_delay_s = max_delay_s
        self._limit = clients
        self._tries: OrderedDict[str, _Attempts] = OrderedDict()

    def __repr__(self) -> str:
        return f"<RejectionBackoff per_s={self._per_s:g} max_delay_s={self._max_delay_s:g} clients={len(self._tries)}>"

    def __len__(self) -> int:
        return len(self._tries)

    def delay_s(self, client: str, *, received_at: float, now: float) -> float:
        """Count an error response and return its delay. Times are monotonic."""
        known = self._tries.pop(client, None) or _Attempts(self._most, -1.0)
        if received_at < known.rejected_at:
            self._tries[client] = _Attempts(self._bounded(known.left - UNKNOWING), known.rejected_at)
            return 0.0
        left = self._bounded(min(self._most, known.left + max(0.0, now - known.rejected_at) * self._per_s) - 1)
        delay_s = max(0.0, -left / self._per_s)
        self._tries[client] = _Attempts(left, now + delay_s)
        if len(self._tries) > self._limit:
            self._tries.popitem(last=False)
        return delay_s

    def _bounded(self, left: float) -> float:
        return max(left, -self._max_delay_s * self._per_s)

    def forget(self, client: str) -> None:
        """Drop the state of a closed connection."""
        self._tries.pop(client, None)


class FailedLogins:
    """Delays of failed logins: those of one address wait for each other, so that more connections guess no faster. Of
    more than `clients` addresses those whose last failure is oldest are forgotten."""

    def __init__(self, delay_s: float, *, max_wait_s: float, clients: int) -> None:
        self._delay_s = delay_s
        self._max_wait_s = max_wait_s
        self._limit = clients
        self._turns: OrderedDict[str, float] = OrderedDict()

    def __repr__(self) -> str:
        return f"<FailedLogins addresses={len(self._turns)}>"

    def wait_s(self, host: str, now: float) -> float:
        """How long the answer to a failed login has to wait."""
        turn = max(self._turns.pop(host, 0.0), now) + self._delay_s
        self._turns[host] = min(turn, now + self._max_wait_s)
        if len(self._turns) > self._limit:
            self._turns.popitem(last=False)
        return self._turns[host] - now
