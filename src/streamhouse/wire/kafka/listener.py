"""KafkaListener: one of the sockets that Kafka clients connect to, and what is told to those who come through it."""

import socket
import ssl
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from streamhouse.config import Address
from streamhouse.config.listener_spec import DEFAULT_NAME, ListenerSpec
from streamhouse.model.cluster import Session


@dataclass(frozen=True, slots=True, kw_only=True)
class KafkaListener:
    """`tls` is there where the protocol has TLS; `user_of` names the user of a client's certificate, if any."""

    listening: socket.socket
    spec: ListenerSpec
    tls: ssl.SSLContext | None = None
    user_of: Callable[[Mapping[str, Any] | None], str | None] = lambda _: None
    bound: Address = field(init=False)
    """The address that is listened on."""

    def __post_init__(self) -> None:
        object.__setattr__(self, "bound", Address(*self.listening.getsockname()[:2]))

    @classmethod
    def plain(cls, listening: socket.socket, advertised: Address | None = None) -> "KafkaListener":
        """The only listener of an agent, without TLS and login."""
        bind = Address(*listening.getsockname()[:2])
        return cls(listening=listening, spec=ListenerSpec(name=DEFAULT_NAME, bind=bind, advertised=advertised))

    def address_of(self, agent: Session) -> Address:
        """Where clients of this listener reach another agent."""
        return agent.kafka
