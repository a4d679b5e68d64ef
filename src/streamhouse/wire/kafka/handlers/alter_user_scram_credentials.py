"""AlterUserScramCredentials, API key 51, versions 0-0: users can log in with SCRAM, or no longer.

Behaviour   one result for each user: to add credentials is UNSUPPORTED_SASL_MECHANISM, because nobody could use them;
            to delete them RESOURCE_NOT_FOUND, because there are none
            a user without a name is UNACCEPTABLE_CREDENTIAL, one that is named twice DUPLICATE_RESOURCE
Left out    SASL
Versions    v0 flexible
"""

from collections import Counter

from streamhouse.limits import iterate_fairly
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.alter_user_scram_credentials import (
    AlterUserScramCredentialsRequest,
    AlterUserScramCredentialsResponse,
    AlterUserScramCredentialsResult,
)


@handles(AlterUserScramCredentialsRequest, (0, 0))
async def handle(context: Context, request: AlterUserScramCredentialsRequest) -> HandlerResult:
    named = Counter(
        (each.name, each.mechanism) for changes in (request.deletions, request.upsertions) for each in changes
    )
    repeated = {user for (user, _), count in named.items() if count > 1}
    added = {each.name for each in request.upsertions}
    users = dict.fromkeys(user for user, _ in named)
    return AlterUserScramCredentialsResponse(
        results=[
            _rejection(context, user, twice=user in repeated, added=user in added)
            async for user in iterate_fairly(users)
        ]
    )


def _rejection(context: Context, user: str, *, twice: bool, added: bool) -> AlterUserScramCredentialsResult:
    code, text = ErrorCode.RESOURCE_NOT_FOUND, "user has no SCRAM credentials"
    if not user:
        code, text = ErrorCode.UNACCEPTABLE_CREDENTIAL, "user has no name"
    elif twice:
        code, text = ErrorCode.DUPLICATE_RESOURCE, "user is named twice in the request"
    elif added:
        code, text = ErrorCode.UNSUPPORTED_SASL_MECHANISM, "this agent asks nobody to log in"
    return AlterUserScramCredentialsResult(user=user, error_code=context.count_error(code), error_message=text)
