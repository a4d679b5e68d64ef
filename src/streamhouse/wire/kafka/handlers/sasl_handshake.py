"""SaslHandshake, API key 17, versions 0-1: choose the login mechanism.

Behaviour   with v1 SaslAuthenticate brings the messages of the mechanism; after v0 they come as frames without a header
            a mechanism that is not offered is UNSUPPORTED_SASL_MECHANISM with those that are, and the connection is
            closed
            also on a connection that has logged in, to log in again (KIP-368), by the same mechanism
            ILLEGAL_SASL_STATE on listeners without login; agents log in there too, with OAUTHBEARER
Left out    GSSAPI, and logins without a handshake
Versions    v1 SaslAuthenticate
"""

from typing import Final

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.sasl_handshake import SaslHandshakeRequest, SaslHandshakeResponse
from streamhouse.wire.kafka.sasl.login import LoginFailed, enabled_mechanisms

AUTHENTICATE_SINCE: Final = 1


@handles(SaslHandshakeRequest, (0, 1), needs=OPEN)
async def handle(context: Context, request: SaslHandshakeRequest) -> HandlerResult:
    try:
        offered = context.login.begin(request.mechanism, is_raw=context.version < AUTHENTICATE_SINCE)
    except LoginFailed as error:
        names = enabled_mechanisms(context.broker.settings.security)
        is_unknown = error.code is ErrorCode.UNSUPPORTED_SASL_MECHANISM
        return SaslHandshakeResponse(error_code=context.count_error(error.code), mechanisms=list(names) * is_unknown)
    return SaslHandshakeResponse(mechanisms=list(offered))
