"""RenewDelegationToken, API key 39, versions 1-2: prolong a token.

Behaviour   for owner and renewers of a token, up to its longest life; others are DELEGATION_TOKEN_OWNER_MISMATCH
            a negative time means `security.delegation_token_renew_s`
            an unknown token is DELEGATION_TOKEN_NOT_FOUND, an expired one DELEGATION_TOKEN_EXPIRED
Left out    nothing
Versions    v2 flexible
"""

from streamhouse.errors import StreamhouseError
from streamhouse.model.needs import LOGGED_IN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.delegation_tokens import token_to_change, usable_tokens
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.renew_delegation_token import (
    RenewDelegationTokenRequest,
    RenewDelegationTokenResponse,
)


@handles(RenewDelegationTokenRequest, (1, 2), needs=LOGGED_IN)
async def handle(context: Context, request: RenewDelegationTokenRequest) -> HandlerResult:
    tokens = usable_tokens(context)
    if isinstance(tokens, ErrorCode):
        return _rejection(context, tokens)
    try:
        token = await token_to_change(context, tokens, bytes(request.hmac))
        if isinstance(token, ErrorCode):
            return _rejection(context, token)
        period_ms = request.renew_period_ms if request.renew_period_ms >= 0 else tokens.renewal_ms
        if (expires_at_ms := await tokens.prolong(token, period_ms)) is None:
            return _rejection(context, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return RenewDelegationTokenResponse(expiry_timestamp_ms=expires_at_ms)
    except StreamhouseError as error:
        return _rejection(context, context.count_error(error))


def _rejection(context: Context, code: ErrorCode) -> RenewDelegationTokenResponse:
    return RenewDelegationTokenResponse(error_code=context.count_error(code), expiry_timestamp_ms=-1)
