"""DescribeUserScramCredentials, API key 50, versions 0-0: users and their SCRAM mechanisms.

Behaviour   mechanisms and iterations of the named users, or of all (null or none named); never a key or a salt
            a user without credentials is RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE
Left out    nothing
Versions    v0 flexible
"""

from collections import Counter
from collections.abc import Mapping

from streamhouse.errors import StreamhouseError
from streamhouse.limits import iterate_fairly
from streamhouse.model.access import Operation, ResourceType
from streamhouse.model.credentials import User
from streamhouse.model.needs import needs
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_user_scram_credentials import (
    CredentialInfo,
    DescribeUserScramCredentialsRequest,
    DescribeUserScramCredentialsResponse,
    DescribeUserScramCredentialsResult,
)


@handles(DescribeUserScramCredentialsRequest, (0, 0), needs=needs(Operation.DESCRIBE, ResourceType.CLUSTER))
async def handle(context: Context, request: DescribeUserScramCredentialsRequest) -> HandlerResult:
    try:
        context.check_cluster(Operation.DESCRIBE)
        users = {user.name: user for user in await context.broker.security.users.list() if user.credentials}
    except StreamhouseError as error:
        return DescribeUserScramCredentialsResponse(error_code=context.count_error(error), error_message=str(error))
    counts = Counter(user.name for user in request.users or ()) or Counter(users.keys())
    return DescribeUserScramCredentialsResponse(
        error_message=None,
        results=[
            _result(context, name, users, twice=count > 1) async for name, count in iterate_fairly(counts.items())
        ],
    )


def _result(
    context: Context, name: str, users: Mapping[str, User], *, twice: bool
) -> DescribeUserScramCredentialsResult:
    if not twice and name in users:
        credentials = sorted(users[name].credentials.values(), key=lambda each: each.mechanism.kafka_code)
        infos = [
            CredentialInfo(mechanism=each.mechanism.kafka_code, iterations=each.iterations) for each in credentials
        ]
        return DescribeUserScramCredentialsResult(user=name, error_message=None, credential_infos=infos)
    code = ErrorCode.DUPLICATE_RESOURCE if twice else ErrorCode.RESOURCE_NOT_FOUND
    text = "user is named twice in the request" if twice else "user has no SCRAM credentials"
    return DescribeUserScramCredentialsResult(user=name, error_code=context.count_error(code), error_message=text)
