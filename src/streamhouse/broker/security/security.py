"""Security: the parts of access control that wires call, built and kept up to date by the broker."""

import asyncio
import logging
from collections.abc import Callable
from dataclasses import replace

from streamhouse.broker.dependencies import Dependencies
from streamhouse.broker.security.access_control import AccessControl
from streamhouse.broker.security.audit import AuditLog, Publish
from streamhouse.broker.security.delegation_tokens import DelegationTokens
from streamhouse.broker.security.quotas import Quotas
from streamhouse.broker.security.tenants import tenants_of_listeners
from streamhouse.broker.security.users import Users
from streamhouse.errors import NotAuthenticated
from streamhouse.model.access import ANONYMOUS, USER, Caller, CredentialKind, CredentialRef, Principal
from streamhouse.model.cluster import Change, ChangeKind
from streamhouse.model.cluster_tokens import PREFIX, ClusterTokens
from streamhouse.model.credentials import KEY_PREFIX, DelegationToken
from streamhouse.model.scram import ScramCredential
from streamhouse.model.tenant import qualified, tenant_of

log = logging.getLogger(__name__)


class Security:
    """`access` decides and keeps the rules, `users` keeps users and keys, `tokens` signs what processes show."""

    def __init__(self, dependencies: Dependencies) -> None:
        self._dependencies = dependencies
        self._settings = dependencies.settings.security
        self.audit = AuditLog(self._settings, clock=dependencies.clock)
        self.access = AccessControl(dependencies, self.audit)
        self.users = Users(dependencies)
        self.quotas = Quotas(dependencies)
        secret = dependencies.secrets.cluster_secret
        self.tokens = ClusterTokens(secret, clock=dependencies.clock) if secret else None
        self.delegation_tokens = DelegationTokens(dependencies, secret) if secret else None
        self._tenants = tenants_of_listeners(dependencies.settings)
        self._unsubscribe: Callable[[], None] = lambda: None

    def __repr__(self) -> str:
        return f"<Security {self.access!r} {self.users!r}>"

    @property
    def is_off(self) -> bool:
        """Whether there is no access control, and agents have no credentials of the cluster."""
        return self.tokens is None and not self.access.is_enabled

    async def start(self) -> None:
        """Read the rules, and create the bootstrap user if there is none."""
        user, password = self._settings.bootstrap_user, self._dependencies.secrets.bootstrap_password
        if user and password and await self.users.bootstrap(user, password):
            log.info("bootstrap user created", extra={"user": user})
        self._unsubscribe = self._dependencies.metadata.subscribe(self._on_change)
        await self.access.load()
        await self.quotas.load()

    async def run(self, publish_audit: Publish) -> None:
        """Follow changes that other agents make, and write audit events, until cancelled."""
        agent = str(self._dependencies.kafka)
        async with asyncio.TaskGroup() as loops:
            loops.create_task(self.access.run(), name="access-rules")
            loops.create_task(self._forget_unheard(), name="credentials")
            loops.create_task(self.quotas.run(), name="quotas")
            loops.create_task(self.audit.run(publish_audit, agent=agent), name="audit")
            if self._dependencies.issuer is not None:
                loops.create_task(self._dependencies.issuer.run(), name="issuer-keys")

    def close(self) -> None:
        self._unsubscribe()
        self.users.close()

    async def _forget_unheard(self) -> None:
        """While notifications can't be received, reload users and keys at intervals."""
        while True:
            await self._dependencies.clock.sleep(self._settings.refresh_s)
            if not self._dependencies.metadata.is_listening:
                self.users.forget()

    def _on_change(self, change: Change) -> None:
        if change.kind in (ChangeKind.SECURITY, ChangeKind.EVERYTHING):
            self.users.forget()
            self.access.on_change()
            self.quotas.on_change()

    # --- who is there

    def anonymous(self, *, host: str, listener: str) -> Caller:
        """The caller of a listener without login."""
        return self._placed(Caller(principal=self._user_at(listener, ANONYMOUS)), host=host, listener=listener)

    def certified(self, name: str, *, host: str, listener: str) -> Caller:
        """The caller whom a client's certificate names."""
        user = self._user_at(listener, Principal(USER, name))
        return self._placed(Caller(principal=user), host=host, listener=listener)

    def user_name(self, listener: str, name: str) -> str:
        """The stored name of the user who logs in by this name on a listener: one of the tenant's on a tenant's."""
        return self._user_at(listener, Principal(USER, name)).name

    def is_of_listener(self, listener: str, user: Principal) -> bool:
        """Whether this user may come through a listener: on a tenant's, only who belongs to that tenant."""
        tenant = self._tenants.get(listener)
        return tenant is None or (user.kind == USER and tenant_of(user.name) == tenant)

    def proven(self, name: str, credential: ScramCredential, *, host: str, listener: str) -> Caller:
        """The caller who has proven with SCRAM that it knows the password of the user who is stored by this name."""
        shown = CredentialRef(CredentialKind.PASSWORD, name, credential.version)
        return self._placed(Caller(principal=Principal(USER, name), credential=shown), host=host, listener=listener)

    def delegated(self, token: DelegationToken, *, host: str, listener: str) -> Caller:
        """The caller who has proven with SCRAM that it knows a delegation token: it acts as the owner."""
        shown = CredentialRef(CredentialKind.DELEGATION_TOKEN, token.token_id)
        caller = Caller(principal=token.owner, expires_at_ms=token.expires_at_ms, credential=shown)
        return self._placed(caller, host=host, listener=listener)

    def remembers(self, name: str, password: str, *, listener: str) -> bool:
        """Whether this password was verified a moment ago: checking it again costs nothing."""
        return self.users.remembers(self.user_name(listener, name), password)

    def remembers_token(self, token: str) -> bool:
        """Whether checking this bearer token costs next to nothing: an API key that wasn't verified a moment ago is
        looked up in the database."""
        return not token.startswith(KEY_PREFIX) or self.users.remembers_key(token)

    async def log_in(self, name: str, password: str, *, host: str, listener: str) -> Caller:
        """The caller with a password (SASL PLAIN, HTTP Basic); raise `NotAuthenticated`."""
        name = self.user_name(listener, name)
        try:
            shown = await self.users.check_password(name, password)
        except NotAuthenticated:
            self.audit.failed_login(name, "password", host=host, listener=listener)
            raise
        return self._placed(Caller(principal=Principal(USER, name), credential=shown), host=host, listener=listener)

    async def log_in_with_token(self, token: str, *, host: str, listener: str) -> Caller:
        """The caller with a bearer token (SASL OAUTHBEARER, HTTP, gRPC): a cluster token, an API key, or one of the
        issuer's; raise `NotAuthenticated`."""
        if len(token) > self._settings.login_token_bytes:
            raise NotAuthenticated("the token is too long; see security.login_token_bytes")
        try:
            return self._placed(await self._caller_of(token, listener), host=host, listener=listener)
        except NotAuthenticated:
            self.audit.failed_login("", "token", host=host, listener=listener)
            raise

    async def _caller_of(self, token: str, listener: str) -> Caller:
        if token.startswith(KEY_PREFIX):
            key = await self.users.check_key(token)
            shown = CredentialRef(CredentialKind.KEY, key.key_id)
            return Caller(principal=key.principal, expires_at_ms=key.expires_at_ms, credential=shown)
        if token.startswith(PREFIX) and self.tokens is not None:
            return self.tokens.verify(token)
        if self._dependencies.issuer is not None:
            caller = await self._dependencies.issuer.verify(token)
            return replace(caller, principal=self._user_at(listener, caller.principal))
        raise NotAuthenticated("the token is neither an API key nor a token that this cluster accepts")

    async def holds(self, shown: CredentialRef) -> bool:
        """Whether a credential that was shown is still there, and still the same."""
        if shown.kind is not CredentialKind.DELEGATION_TOKEN:
            return await self.users.holds(shown)
        tokens = self.delegation_tokens
        return tokens is not None and await tokens.find(shown.name) is not None

    async def check_kept(self, caller: Caller, *, since: int) -> None:
        """Raise `NotAuthenticated` if the credential that a caller has shown went while it logged in. `since` is the
        generation of users in which the login began; later changes end what the caller does."""
        while (shown := caller.credential) is not None and self.users.generation != since:
            since = self.users.generation
            if not await self.holds(shown):
                self.audit.failed_login(shown.name, shown.kind, host=caller.host, listener=caller.listener)
                raise NotAuthenticated("the credentials are gone")

    def check_unexpired(self, caller: Caller) -> None:
        """Raise `NotAuthenticated` once the caller's credentials are over."""
        if caller.expires_at_ms is not None and self._dependencies.clock.now_ms() >= caller.expires_at_ms:
            raise NotAuthenticated("the credentials have expired")

    def _placed(self, caller: Caller, *, host: str, listener: str) -> Caller:
        if not self.is_of_listener(listener, caller.principal):
            raise NotAuthenticated("this listener is a tenant's, and the credentials are not of that tenant")
        tenant = tenant_of(caller.principal.name) if caller.principal.kind == USER else ""
        return replace(
            caller,
            host=caller.host or host,
            listener=listener,
            groups=tuple(_group_of(tenant, each) for each in caller.groups) if tenant else caller.groups,
            is_unrestricted=not tenant and (caller.is_agent or not self.access.is_enabled),
            tenant=tenant,
        )

    def _user_at(self, listener: str, user: Principal) -> Principal:
        """The principal of a user who is identified by name only: on a tenant's listener, one of the tenant's."""
        tenant = self._tenants.get(listener)
        return user if tenant is None else Principal(user.kind, qualified(tenant, user.name))


def _group_of(tenant: str, group: Principal) -> Principal:
    """A group that a token claims, as rules of the user's tenant name it: no rules of others are about it."""
    return group if tenant_of(group.name) == tenant else Principal(group.kind, qualified(tenant, group.name))
