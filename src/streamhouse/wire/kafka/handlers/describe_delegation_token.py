"""DescribeDelegationToken, API key 41, versions 1-3: which tokens there are.

Behaviour   DELEGATION_TOKEN_AUTH_DISABLED, as Kafka answers where tokens are not configured
Left out    delegation tokens
Versions    v2 flexible · v3 owner
"""

from streamhouse.model.needs import OPEN
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_delegation_token import (
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)


@handles(DescribeDelegationTokenRequest, (1, 3), needs=OPEN)
async def handle(context: Context, request: DescribeDelegationTokenRequest) -> HandlerResult:
    return DescribeDelegationTokenResponse(error_code=context.count_error(ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED))
