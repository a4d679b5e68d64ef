"""Listeners: what `kafka.listen`, `kafka.advertise` and `kafka.protocol` (or http's, grpc's) add up to.

One listener is `HOST:PORT`. Several have names, as Kafka's `listeners` do: `INTERNAL://0.0.0.0:9092,PUBLIC://[::]:9094`.
`advertise` then has those with another advertised address; `protocol` is one word for all, or NAME:WORD pairs.
"""

import platform
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import Final

from streamhouse.config.fields import Address, is_loopback, parse_address
from streamhouse.errors import Misconfigured

DEFAULT_NAME: Final = "DEFAULT"
"""The name of the only listener where none is given."""

_NAME: Final = re.compile(r"[A-Z][A-Z0-9_]{0,49}")
_ORDINAL: Final = re.compile(r"-(\d+)$")


class ListenerProtocol(StrEnum):
    """Kafka's words: SSL is TLS, SASL a login. On HTTP and gRPC a login is Basic, a bearer token or an API key."""

    PLAINTEXT = "PLAINTEXT"
    SSL = "SSL"
    SASL_PLAINTEXT = "SASL_PLAINTEXT"
    SASL_SSL = "SASL_SSL"

    @property
    def has_tls(self) -> bool:
        return self in (ListenerProtocol.SSL, ListenerProtocol.SASL_SSL)

    @property
    def has_login(self) -> bool:
        return self in (ListenerProtocol.SASL_PLAINTEXT, ListenerProtocol.SASL_SSL)


@dataclass(frozen=True, slots=True, kw_only=True)
class ListenerSpec:
    name: str
    bind: Address
    advertised: Address | None = None
    """The address that clients connect to; None: the one that is listened on."""
    protocol: ListenerProtocol = ListenerProtocol.PLAINTEXT

    @property
    def is_exposed(self) -> bool:
        """Whether other machines can reach it."""
        return not is_loopback(self.bind.host)


def listeners_of(section: str, listen: str, advertise: str, protocol: str) -> tuple[ListenerSpec, ...]:
    """`parse_listeners` with the name of this machine."""
    return parse_listeners(listen, advertise, protocol, section=section, host=platform.node())


def parse_listeners(listen: str, advertise: str, protocol: str, *, section: str, host: str) -> tuple[ListenerSpec, ...]:
    """The listeners of one interface, in the order in which they are written; empty for an empty `listen`.

    `{host}` and `{ordinal}` in an advertised address stand for this machine's name (`host`) and for the number at its
    end, so that pods of a StatefulSet can share one configuration.
    """
    binds = _addresses(listen, f"{section}.listen")
    advertised_by_name = _addresses(_filled(advertise, host, section), f"{section}.advertise")
    protocols = _protocols(protocol, binds, f"{section}.protocol")
    for name in (*advertised_by_name, *protocols):
        if name not in binds:
            raise Misconfigured(
                f"no listener has this name; where={section} name={name} listeners={', '.join(binds) or 'none'}"
            )
    return tuple(
        ListenerSpec(name=name, bind=bind, advertised=advertised_by_name.get(name), protocol=protocols[name])
        for name, bind in binds.items()
    )


def is_list_of_listeners(text: str) -> bool:
    """Whether an address is more than HOST:PORT."""
    return "://" in text or "," in text or "{" in text


def _addresses(text: str, where: str) -> dict[str, Address]:
    addresses: dict[str, Address] = {}
    for part in filter(None, (each.strip() for each in text.split(","))):
        name, separator, address = part.rpartition("://")
        name = name if separator else DEFAULT_NAME
        if not _NAME.fullmatch(name):
            raise Misconfigured(f"a listener's name has capital letters, digits and _; where={where} name={name!r}")
        if name in addresses:
            raise Misconfigured(
                f"listeners need a name each, as in INTERNAL://127.0.0.1:9092; where={where} name={name} given twice"
            )
        try:
            addresses[name] = parse_address(address)
        except ValueError:
            raise Misconfigured(f"not an address; where={where} value={part!r} allowed=HOST:PORT") from None
    return addresses


def _protocols(text: str, names: Mapping[str, Address], where: str) -> dict[str, ListenerProtocol]:
    parts = [part.strip() for part in text.split(",") if part.strip()] or [ListenerProtocol.PLAINTEXT.value]
    if len(parts) == 1 and ":" not in parts[0]:
        return dict.fromkeys(names, _protocol(parts[0], where))
    chosen = dict.fromkeys(names, ListenerProtocol.PLAINTEXT)
    for part in parts:
        name, _, word = part.partition(":")
        chosen[name] = _protocol(word, where)
    return chosen


def _protocol(word: str, where: str) -> ListenerProtocol:
    try:
        return ListenerProtocol(word.upper())
    except ValueError:
        raise Misconfigured(
            f"no such protocol; where={where} value={word!r} allowed={', '.join(ListenerProtocol)}"
        ) from None


def _filled(advertise: str, host: str, section: str) -> str:
    if "{ordinal}" in advertise:
        ordinal = _ORDINAL.search(host)
        if ordinal is None:
            raise Misconfigured(
                f"the machine's name has no number at its end for {{ordinal}}; where={section}.advertise host={host}"
            )
        advertise = advertise.replace("{ordinal}", ordinal[1])
    return advertise.replace("{host}", host)
