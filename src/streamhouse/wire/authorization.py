"""Authorization: what one request of the HTTP and gRPC interfaces may do.

Owns        the checks of one request, and repeating them while it lasts
Leaves      decisions to `broker.security`, who the caller is to each interface's authentication, the declaration of
            needed rights to the operations (`model.needs`)

A request that lasts (a stream, an upload, a long poll) is looked at again every `CHECK_S`: it ends when the caller's
rights or credentials end.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from contextlib import AbstractContextManager, asynccontextmanager
from typing import Final

from streamhouse.broker.security.audit import Acts
from streamhouse.broker.security.quotas import Quotas
from streamhouse.broker.security.security import Security
from streamhouse.errors import Rejected, Retriable, StreamhouseError
from streamhouse.model.access import ANY, CLUSTER, Caller, Operation, Resource, ResourceType
from streamhouse.model.needs import Needs

CHECK_S: Final = 0.5
"""How often the rights of a request in progress are checked again."""


Renew = Callable[[], Awaitable[None]]
"""Check the credentials of a request again; raises `NotAuthenticated`."""


class RequestAccess:
    """The rights of one request. What `require` allowed is checked again while the request lasts."""

    def __init__(
        self, security: Security, caller: Caller, renew: Renew | None = None, *, since: int = 0, client_id: str = ""
    ) -> None:
        """`since` is the generation of users in which the credentials, which `renew` checks, began to be checked;
        `client_id` is the one that the request has, for quotas."""
        self._security = security
        self._renew = renew
        self._generation = since
        self._required: dict[tuple[Operation, Resource], None] = {}
        self.caller = caller
        self.client_id = client_id
        self.on_end: Callable[[StreamhouseError], None] | None = None
        """Set by a stream that ends by itself when the rights end."""

    def __repr__(self) -> str:
        return f"<RequestAccess {self.caller} required={len(self._required)}>"

    def acting_as(self, caller: Caller) -> "RequestAccess":
        """The rights of another caller, for whom the request is made."""
        return RequestAccess(self._security, caller, client_id=self.client_id)

    @property
    def quotas(self) -> Quotas:
        return self._security.quotas

    @property
    def is_unrestricted(self) -> bool:
        return self.caller.is_unrestricted

    @property
    def is_limited(self) -> bool:
        """Whether there is anything that the caller might not do, or credentials that might end."""
        return not self.caller.is_unrestricted or self._renew is not None

    def allows(self, operation: Operation, kind: ResourceType, name: str) -> bool:
        return self._security.access.may(self.caller, operation, Resource(kind, name))

    def allows_topic(self, operation: Operation, topic: str) -> bool:
        return self.allows(operation, ResourceType.TOPIC, topic)

    def allows_cluster(self, operation: Operation) -> bool:
        return self._security.access.may(self.caller, operation, CLUSTER)

    def allows_any(self, operation: Operation, kind: ResourceType) -> bool:
        return self._security.access.allows_any(self.caller, operation, kind)

    def check(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `AccessDenied` unless the caller may do this now."""
        self._security.access.check(self.caller, operation, Resource(kind, name))

    def require(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """Raise `AccessDenied` unless the caller may do this, now and while the request lasts."""
        self.check(operation, kind, name)
        self._required[operation, Resource(kind, name)] = None

    def require_topic(self, operation: Operation, topic: str) -> None:
        self.require(operation, ResourceType.TOPIC, topic)

    def require_cluster(self, operation: Operation) -> None:
        self.require(operation, CLUSTER.type, CLUSTER.name)

    def require_each(self, operation: Operation, kind: ResourceType, names: Iterable[str]) -> None:
        """`require` this of each of them. Who names none needs the right to some resource of the type."""
        for name in (named := tuple(names)):
            self.require(operation, kind, name)
        if not named and not self.allows_any(operation, kind):
            self.require(operation, kind, ANY)

    def require_early(self, needs: Needs, name_of: Callable[[str], object]) -> None:
        """`require` what can be checked before the body is read; `name_of` finds what a parameter names."""
        for need in needs.early:
            for operation, kind, named_by in need.rights:
                self.require(operation, kind, str(name_of(named_by)) if named_by else CLUSTER.name)
            if not need.rights:
                self.require_process(*need.processes)

    def require_process(self, *kinds: str) -> None:
        self._security.access.check_process(self.caller, *kinds)

    def charge_mutations(self, partitions: int) -> None:
        """Count partitions that the caller creates or deletes; raise `QuotaExceeded` while it is above its limit."""
        if not self.caller.is_agent:
            self.quotas.charge_mutations(partitions, user=self.caller.principal.name, client_id=self.client_id)

    def acts(self, request: str) -> AbstractContextManager[Acts]:
        """Collect the administrative acts of the request, whose name the interface gives."""
        return self._security.audit.acts(request)

    def forget(self, operation: Operation, kind: ResourceType, name: str) -> None:
        """The request does this no longer."""
        self._required.pop((operation, Resource(kind, name)), None)

    def recheck(self) -> None:
        """Raise `NotAuthenticated` or `AccessDenied` if what was allowed is so no longer."""
        self._security.check_unexpired(self.caller)
        for operation, resource in self._required:
            if not self._security.access.may(self.caller, operation, resource):
                self._security.access.check(self.caller, operation, resource)

    async def renew(self) -> None:
        """`recheck`, and check the credentials again if users or keys have changed."""
        self.recheck()
        generation = self._security.users.generation
        if self._renew is not None and generation != self._generation:
            try:
                await self._renew()
            except Retriable:
                return  # the metadata store is unavailable: what was known holds
            self._generation = generation

    @asynccontextmanager
    async def watched(self) -> AsyncIterator[None]:
        """Run the body while the rights last; then raise the error, unless `on_end` takes care of it."""
        if not self.is_limited:
            yield
            return
        watch = _Watch(self)
        try:
            async with asyncio.timeout(None) as timeout:
                watch.start(lambda: timeout.reschedule(asyncio.get_running_loop().time()))
                try:
                    yield
                finally:
                    watch.stop()
        except TimeoutError:
            if watch.ended_by is not None and timeout.expired():
                raise watch.ended_by from None
            raise


class _Watch:
    """Renews the rights of a request every `CHECK_S`. A timer, not a task: most requests are over before the first."""

    def __init__(self, access: RequestAccess) -> None:
        self._access = access
        self._timer: asyncio.TimerHandle | None = None
        self._renewing: asyncio.Task[None] | None = None
        self._cancel: Callable[[], None] = lambda: None
        self.ended_by: StreamhouseError | None = None

    def start(self, cancel: Callable[[], None]) -> None:
        self._cancel = cancel
        self._timer = asyncio.get_running_loop().call_later(CHECK_S, self._look)

    def stop(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
        if self._renewing is not None:
            self._renewing.cancel()

    def _look(self) -> None:
        self._renewing = asyncio.get_running_loop().create_task(self._renew(), name="request-access")

    async def _renew(self) -> None:
        try:
            await self._access.renew()
        except Rejected as error:
            self.ended_by = error
            if self._access.on_end is not None:
                self._access.on_end(error)
            else:
                self._cancel()
        else:
            self.start(self._cancel)
