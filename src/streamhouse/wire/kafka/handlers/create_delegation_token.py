"""CreateDelegationToken, API key 38, versions 1-3: a token by which others may log in.

Behaviour   DELEGATION_TOKEN_AUTH_DISABLED, as Kafka answers where tokens are not configured
Left out    delegation tokens
Versions    v2 flexible · v3 owner
"""

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)


@handles(CreateDelegationTokenRequest, (1, 3), needs=OPEN)
async def handle(context: Context, request: CreateDelegationTokenRequest) -> HandlerResult:
    return CreateDelegationTokenResponse(error_code=context.count_error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
