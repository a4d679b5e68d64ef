"""DescribeUserScramCredentials, API key 50, versions 0-0: which users can log in with SCRAM.

Behaviour   nobody: all users (null or none named) are an empty list, a user that is named is RESOURCE_NOT_FOUND, one
            that is named twice DUPLICATE_RESOURCE
Left out    SASL
Versions    v0 flexible
"""

from collections import Counter

from streamhouse.limits import iterate_fairly
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_user_scram_credentials import (
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, (0, 0))
async def handle(context: Context, request: DescribeUserScramCredentialsRequest) -> HandlerResult:
    counts = Counter(user.name for user in request.users or ())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[_absent(context, user, twice=count > 1) async for user, count in iterate_fairly(counts.items())],
    )


def _absent(context: Context, user: str, *, twice: bool) -> DescribeUserScramCredentialsResult:
    code = ErrorCode.DUPLICATE_RESOURCE if twice else ErrorCode.RESOURCE_NOT_FOUND
    text = "user is named twice in the request" if twice else "user has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(user=user, error_code=context.count_error(code), error_message=text)
