"""ExpireDelegationToken, API key 40, versions 1-2: a token is no longer valid.

Behaviour   DELEGATION_TOKEN_AUTH_DISABLED, as Kafka answers where tokens are not configured
Left out    delegation tokens
Versions    v2 flexible
"""

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.expire_delegation_token import (
    ExpireDelegationTokenRequest,
    ExpireDelegationTokenResponse,
)


@handles(ExpireDelegationTokenRequest, (1, 2), needs=OPEN)
async def handle(context: Context, request: ExpireDelegationTokenRequest) -> HandlerResult:
    return ExpireDelegationTokenResponse(
        error_code=context.count_error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED), expiry_timestamp_ms=-1
    )
