"""SaslAuthenticate, API key 36, versions 0-2: the messages of a login.

Behaviour   SCRAM-SHA-256, SCRAM-SHA-512, PLAIN and OAUTHBEARER, as `security.sasl_mechanisms` says; OAUTHBEARER takes
            tokens of the issuer, API keys and tokens of the cluster
            a failed login is SASL_AUTHENTICATION_FAILED after `security.failed_login_delay_s`, whatever was wrong with
            it, then the connection is closed; failed logins of one address wait for each other
            a session ends after `security.max_reauth_s`, or with the token (v1 tells when): then only a new login is
            served (KIP-368), of the same principal
            while logins can't be checked the connection is closed, and clients try again
Left out    nothing
Versions    v1 session lifetime · v2 flexible
"""

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult, PendingResponse
from streamhouse.wire.kafka.messages.sasl_authenticate import SaslAuthenticateRequest, SaslAuthenticateResponse
from streamhouse.wire.kafka.sasl.login import LoginFailed


@handles(SaslAuthenticateRequest, (0, 2), needs=OPEN)
async def handle(context: Context, request: SaslAuthenticateRequest) -> HandlerResult:
    try:
        reply = await context.login.advance(bytes(request.auth_bytes))
    except LoginFailed as error:
        return FailedLogin(context, error)
    return SaslAuthenticateResponse(
        error_message=None, auth_bytes=reply, session_lifetime_ms=context.login.session_lifetime_ms()
    )


class FailedLogin(PendingResponse):
    """Waits before it says that the login failed, so that passwords can't be tried out quickly."""

    __slots__ = ("_context", "_error")

    def __init__(self, context: Context, error: LoginFailed) -> None:
        self._context = context
        self._error = error

    async def respond(self) -> SaslAuthenticateResponse:
        await self._context.delay_failed_login()
        code = self._context.count_error(self._error.code)
        return SaslAuthenticateResponse(error_code=code, error_message=str(self._error))
