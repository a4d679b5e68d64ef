"""Login: who is at the other end of a connection, from its first byte on, and how long that holds.

Data path   SaslHandshake chooses a mechanism -> SaslAuthenticate brings its messages -> **login** -> `caller`
Owns        what a client may ask before it has logged in; the order of messages; when it must log in again (KIP-368)
Leaves      the mechanisms to `exchanges`, passwords and tokens to `broker.security`

Invariants  the principal of a connection never changes once it is known, also not when the client logs in again
            after a failed login the connection is closed, and its answer is delayed a password, key or token that is
            revoked during a login with it fails that login what could not be checked (the metadata store is
            unavailable, too many logins) closes the connection without an error, because clients take a failed login
            for final

Agents log in with tokens of the cluster on every listener, also where others need not.
"""

from collections.abc import Sequence
from typing import Final

from streamhouse.clock import Clock
from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured, NotAuthenticated, Rejected, Retriable
from streamhouse.model.access import Caller
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.sasl.exchanges import EXCHANGES, OAUTHBEARER, Exchange, LoginOrigin, Step

API_VERSIONS: Final = 18
SASL_HANDSHAKE: Final = 17
SASL_AUTHENTICATE: Final = 36
BEFORE_LOGIN: Final = frozenset({API_VERSIONS, SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The APIs that are served to a client that has not logged in."""
TO_LOG_IN: Final = frozenset({SASL_HANDSHAKE, SASL_AUTHENTICATE})
"""The APIs that are served to a client whose session has ended."""

CHALLENGE_S: Final = 0.005
"""A challenge takes so long at least: reading a user who is there takes some microseconds more than one who isn't."""

FAILED: Final = "login failed; user, password or token is wrong"


class LoginFailed(Rejected):
    """A login failed: the client gets the code, then the connection is closed."""

    def __init__(self, code: ErrorCode, text: str) -> None:
        super().__init__(text)
        self.code = code


class Login:
    """`caller` is None until the client has logged in, if the listener requires it."""

    __slots__ = (
        "_clock",
        "_ends_at",
        "_exchange",
        "_generation",
        "_is_required",
        "_mechanism",
        "_origin",
        "_settings",
        "caller",
        "expects_raw",
        "is_by_delegation_token",
        "is_over",
    )

    def __init__(
        self, origin: LoginOrigin, settings: SecuritySettings, clock: Clock, *, caller: Caller, is_required: bool
    ) -> None:
        self._origin = origin
        self._settings = settings
        self._clock = clock
        self._is_required = is_required
        self._exchange: Exchange | None = None
        self._generation = 0
        """The revision of the users when the login began."""
        self._mechanism = ""
        self._ends_at: float | None = None
        self.caller = None if is_required else caller
        self.expects_raw = False
        """Whether the next frame is a message of the mechanism without a header (after SaslHandshake v0)."""
        self.is_by_delegation_token = False
        self.is_over = False
        """Whether the connection is to be closed after the response that is in progress."""

    def __repr__(self) -> str:
        return f"<Login {self.caller or 'anonymous'} {self._mechanism}>"

    @property
    def mechanism(self) -> str:
        """The mechanism that the client has chosen; empty: none yet."""
        return self._mechanism

    def is_expired(self) -> bool:
        """Whether the session has ended: the client must log in again before anything else."""
        return self._ends_at is not None and self._clock.monotonic() >= self._ends_at

    def begin(self, mechanism: str, *, is_raw: bool) -> Sequence[str]:
        """Begin a login, or a new one; returns the mechanisms that there are. Raise `LoginFailed`."""
        offered = self._offered()
        if not offered or (not self._is_required and mechanism not in offered):
            raise LoginFailed(ErrorCode.ILLEGAL_SASL_STATE, "this listener has no login")
        if self._exchange is not None:
            raise self._failure(ErrorCode.ILLEGAL_SASL_STATE, "a login is in progress")
        if mechanism not in offered:
            raise self._failure(ErrorCode.UNSUPPORTED_SASL_MECHANISM, "mechanism is not offered")
        if self._mechanism and mechanism != self._mechanism:
            raise self._failure(ErrorCode.ILLEGAL_SASL_STATE, "a client logs in again by the same mechanism")
        self._mechanism, self._exchange = mechanism, EXCHANGES[mechanism](self._origin)
        self._generation = self._origin.security.users.generation
        self.expects_raw = is_raw
        return offered

    async def advance(self, message: bytes) -> bytes:
        """Take a message of the mechanism; returns the answer. Raise `LoginFailed`, or `Retriable` if the login can't
        be judged now."""
        if (exchange := self._exchange) is None:
            self.is_over = self.caller is None
            raise LoginFailed(ErrorCode.ILLEGAL_SASL_STATE, "SaslAuthenticate comes after SaslHandshake")
        if len(message) > self._settings.login_token_bytes:
            raise self._failure(ErrorCode.SASL_AUTHENTICATION_FAILED, "message is too long")
        began = self._clock.monotonic()
        try:
            step = await exchange.step(message)
            if step.caller is not None:
                await self._origin.security.check_kept(step.caller, since=self._generation)
        except NotAuthenticated:
            raise self._failure(ErrorCode.SASL_AUTHENTICATION_FAILED, FAILED) from None
        except Retriable:
            self.is_over = True
            raise
        if step.caller is not None:
            self._finish(step, step.caller)
        elif (wait_s := began + CHALLENGE_S - self._clock.monotonic()) > 0:
            await self._clock.sleep(wait_s)
        return step.reply

    def session_lifetime_ms(self) -> int:
        """How long the login holds from now on; 0: for as long as the connection does."""
        return 0 if self._ends_at is None else max(0, round((self._ends_at - self._clock.monotonic()) * 1000))

    def _finish(self, step: Step, caller: Caller) -> None:
        known = self.caller
        if known is not None and self._was_proven and known.principal != caller.principal:
            raise self._failure(ErrorCode.SASL_AUTHENTICATION_FAILED, "the principal of a connection can't change")
        self._ends_at = self._session_end(caller)
        self.caller, self._exchange, self.expects_raw = caller, None, False
        self._origin.security.audit.login(caller, self._mechanism)
        self._is_required = True  # from now on the caller is one who has logged in
        self.is_by_delegation_token = step.is_by_delegation_token

    @property
    def _was_proven(self) -> bool:
        """Whether the caller has logged in before; without logins, it need not have."""
        return self._is_required

    def _session_end(self, caller: Caller) -> float | None:
        """When the client must log in again. Processes of the cluster have proven that they know its secret, which
        stays the same, so their tokens' short lives don't end their connections."""
        ends = [self._settings.max_reauth_s] if self._settings.max_reauth_s else []
        if caller.expires_at_ms is not None and not caller.is_process:
            ends.append(max(0.0, (caller.expires_at_ms - self._clock.now_ms()) / 1000))
        return self._clock.monotonic() + min(ends) if ends else None

    def _offered(self) -> Sequence[str]:
        if self._is_required:
            return enabled_mechanisms(self._settings)
        return (OAUTHBEARER,) if self._origin.security.tokens is not None else ()

    def _failure(self, code: ErrorCode, text: str) -> LoginFailed:
        self.is_over = True
        self._exchange = None
        return LoginFailed(code, text)


def enabled_mechanisms(settings: SecuritySettings) -> Sequence[str]:
    """The mechanisms in `security.sasl_mechanisms`; raise `Misconfigured`."""
    named = [name.strip() for name in settings.sasl_mechanisms.split(",") if name.strip()]
    if unknown := [name for name in named if name not in EXCHANGES]:
        raise Misconfigured(
            f"no such mechanism; setting=security.sasl_mechanisms value={unknown[0]!r} allowed={', '.join(EXCHANGES)}"
        )
    return named
