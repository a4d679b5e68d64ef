"""ExpireDelegationToken, API key 40, versions 1-2: change when a token expires, or delete it.

Behaviour   for the owner and the renewers of a token; others are DELEGATION_TOKEN_OWNER_MISMATCH
            a negative time deletes it: it can't be used for new logins, while existing ones stay logged in
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
from streamhouse.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, (1, 2), needs=LOGGED_IN)
async def handle(context: Context, request: ExpireDelegationTokenRequest) -> HandlerResult:
    tokens = usable_tokens(context)
    if isinstance(tokens, ErrorCode):
        return _rejection(context, tokens)
    try:
        token = await token_to_change(context, tokens, bytes(request.hmac))
        if isinstance(token, ErrorCode):
            return _rejection(context, token)
        period_ms = request.expiry_time_period_ms
        ended_at_ms = await (tokens.delete(token) if period_ms < 0 else tokens.prolong(token, period_ms))
        if ended_at_ms is None:
            return _rejection(context, ErrorCode.DELEGATION_TOKEN_NOT_FOUND)
        return ExpireDelegationTokenResponse(expiry_timestamp_ms=ended_at_ms)
    except StreamhouseError as error:
        return _rejection(context, context.count_error(error))


def _rejection(context: Context, code: ErrorCode) -> ExpireDelegationTokenResponse:
    return ExpireDelegationTokenResponse(error_code=context.count_error(code), expiry_timestamp_ms=-1)
