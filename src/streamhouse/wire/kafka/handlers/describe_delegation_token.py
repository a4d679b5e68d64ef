"""DescribeDelegationToken, API key 41, versions 1-3: list delegation tokens.

Behaviour   the tokens that the caller owns or may renew, and those that rules let it describe; with owners, only theirs
            as in Kafka, the response has the HMAC of every token that the caller may describe
            a caller without a login, or with one by token, is DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
Left out    nothing
Versions    v2 flexible · v3 requester
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import Operation, Principal, ResourceType
from streamhouse.model.credentials import DelegationToken
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.delegation_tokens import is_owner_or_renewer, usable_tokens
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.describe_delegation_token import (
    DescribedDelegationToken,
    DescribedDelegationTokenRenewer,
    DescribeDelegationTokenRequest,
    DescribeDelegationTokenResponse,
)

REQUESTER_SINCE: Final = 3


@handles(
    DescribeDelegationTokenRequest,
    (1, 3),
    needs=all_of(
        need(
            (Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN),
            (Operation.DESCRIBE_TOKENS, ResourceType.USER),
            when="for tokens of others",
        )
    ),
)
async def handle(context: Context, request: DescribeDelegationTokenRequest) -> HandlerResult:
    tokens = usable_tokens(context)
    if isinstance(tokens, ErrorCode):
        return DescribeDelegationTokenResponse(error_code=context.count_error(tokens))
    owners = None
    if request.owners is not None:
        owners = {Principal(each.principal_type, each.principal_name) for each in request.owners}
    try:
        known = await tokens.list()
    except StreamhouseError as error:
        return DescribeDelegationTokenResponse(error_code=context.count_error(error))
    return DescribeDelegationTokenResponse(
        tokens=[
            _described(token, tokens.hmac_of(token.token_id), context.version)
            for token in known
            if (owners is None or token.owner in owners) and _may_describe(context, token)
        ]
    )


def _may_describe(context: Context, token: DelegationToken) -> bool:
    return (
        is_owner_or_renewer(context.caller.principal, token)
        or context.allows(Operation.DESCRIBE, ResourceType.DELEGATION_TOKEN, token.token_id)
        or context.allows(Operation.DESCRIBE_TOKENS, ResourceType.USER, str(token.owner))
    )


def _described(token: DelegationToken, hmac: bytes, version: int) -> DescribedDelegationToken:
    return DescribedDelegationToken(
        principal_type=token.owner.kind,
        principal_name=token.owner.name,
        token_requester_principal_type=token.requester.kind if version >= REQUESTER_SINCE else "",
        token_requester_principal_name=token.requester.name if version >= REQUESTER_SINCE else "",
        issue_timestamp=token.issued_at_ms,
        expiry_timestamp=token.expires_at_ms,
        max_timestamp=token.max_at_ms,
        token_id=token.token_id,
        hmac=hmac,
        renewers=[
            DescribedDelegationTokenRenewer(principal_type=each.kind, principal_name=each.name)
            for each in token.renewers
        ],
    )
