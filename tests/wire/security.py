"""A broker with access control, users with exactly the rights that a test gives them, and ways to log in."""

from base64 import b64encode
from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Final

import httpx
from prometheus_client import CollectorRegistry

from streamhouse.broker.broker import Broker
from streamhouse.broker.security.audit import AuditLog
from streamhouse.config import HttpSettings, SecuritySettings
from streamhouse.config.fields import Address
from streamhouse.config.listener_spec import ListenerProtocol, ListenerSpec
from streamhouse.config.secrets import Secrets
from streamhouse.model.access import INTERNAL, USER, Acl, AclFilter, Operation, Principal, ResourceType
from streamhouse.model.needs import Needs, Right
from streamhouse.wire.authorization import RequestAccess
from streamhouse.wire.http.app import make_app
from streamhouse.wire.http.scope import LISTENER
from tests.broker.conftest import MakeWorld
from tests.broker.support import World
from tests.contracts.clocks import ManualClock

ADMIN: Final = "admin"
PASSWORD: Final = "correct horse"
CLUSTER_SECRET: Final = "a secret of the whole cluster"
LOGIN_LISTENER: Final = ListenerSpec(
    name="PUBLIC", bind=Address("127.0.0.1", 8080), protocol=ListenerProtocol.SASL_PLAINTEXT
)
SETTINGS: Final = SecuritySettings(authorization="acls", bootstrap_user=ADMIN, failed_login_delay_s=0)

Headers = Mapping[str, str]


def basic(user: str, password: str = PASSWORD) -> Headers:
    return {"authorization": "Basic " + b64encode(f"{user}:{password}".encode()).decode()}


def bearer(token: str) -> Headers:
    return {"authorization": f"Bearer {token}"}


@dataclass(frozen=True, slots=True, kw_only=True)
class SecureWorld:
    world: World
    broker: Broker

    async def user(self, name: str, *rights: tuple[Operation, ResourceType, str]) -> Headers:
        """A user with these rights and no others, and the headers with which it logs in."""
        await self.broker.security.users.create(name, PASSWORD, is_new=False)
        await self.grant(name, *rights)
        return basic(name)

    async def grant(self, name: str, *rights: tuple[Operation, ResourceType, str]) -> None:
        principal = Principal(USER, name)
        await self.broker.security.access.add_acls(
            [Acl(resource_type=kind, name=on, principal=principal, operation=what) for what, kind, on in rights]
        )

    async def revoke(self, name: str) -> None:
        """Take all rights of a user."""
        await self.broker.security.access.delete_acls([AclFilter(principal=Principal(USER, name))])

    async def key(self, name: str, *, ttl_s: float | None = None) -> str:
        _, text = await self.broker.security.users.create_key(Principal(USER, name), ttl_s=ttl_s)
        return text

    def token(self, kind: str, name: str = "1") -> str:
        assert self.broker.security.tokens is not None
        return self.broker.security.tokens.make(Principal(kind, name))


async def secure_world(make_world: MakeWorld, **sections: Any) -> SecureWorld:
    unhurried = HttpSettings(failures_per_s=100_000)
    world = await make_world(**{"security": SETTINGS, "http": unhurried, **sections})
    secrets = Secrets(cluster_secret=CLUSTER_SECRET, bootstrap_password=PASSWORD)
    broker = Broker(world.dependencies(secrets=secrets))
    await broker.start()
    return SecureWorld(world=world, broker=broker)


@asynccontextmanager
async def serving(
    broker: Broker, *, listener: ListenerSpec = LOGIN_LISTENER, host: str = "127.0.0.1"
) -> AsyncIterator[httpx.AsyncClient]:
    """A client of the broker's HTTP routes on such a listener, without a socket."""
    app = make_app(broker, CollectorRegistry(), cluster_id="cluster-1")

    async def listening(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, LISTENER: listener}, receive, send)

    transport = httpx.ASGITransport(listening, client=(host, 40_000))
    async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
        yield client


def without(rights: Iterable[Any], left_out: Any) -> list[Any]:
    return [each for each in rights if each != left_out]


def unrestricted() -> RequestAccess:
    """The rights of a request that may do everything."""
    security: Any = SimpleNamespace(users=SimpleNamespace(generation=0), quotas=SimpleNamespace(is_active=False))
    security.audit = AuditLog(SecuritySettings(), clock=ManualClock())
    return RequestAccess(security, INTERNAL)


def enough(needs: Needs) -> list[Right]:
    """Rights that together are enough for an operation: the first of each alternative."""
    return [need.rights[0] for need in needs.all_of if need.rights]
