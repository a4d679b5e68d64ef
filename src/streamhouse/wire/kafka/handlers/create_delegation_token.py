"""CreateDelegationToken, API key 38, versions 1-3: create a token to log in as its owner (KIP-48).

Behaviour   the bearer logs in with SCRAM and the extension tokenauth, the token's id as user and its HMAC in base64
            as password
            a token lives for `security.delegation_token_renew_s`, longer if renewed, never longer than requested
            and than `security.delegation_token_max_s`
            a caller without a login, or with one by token, is DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
            renewers that are no users are INVALID_PRINCIPAL_TYPE
            without a cluster secret, from which tokens are derived, DELEGATION_TOKEN_AUTH_DISABLED
Left out    nothing
Versions    v2 flexible · v3 owner
"""

from typing import Final

from streamhouse.errors import StreamhouseError
from streamhouse.model.access import USER, Operation, Principal, ResourceType
from streamhouse.model.needs import all_of, need
from streamhouse.wire.kafka.api_registry import handles
from streamhouse.wire.kafka.context import Context, HandlerResult
from streamhouse.wire.kafka.delegation_tokens import usable_tokens
from streamhouse.wire.kafka.errors import ErrorCode
from streamhouse.wire.kafka.messages.create_delegation_token import (
    CreateDelegationTokenRequest,
    CreateDelegationTokenResponse,
)

REQUESTER_SINCE: Final = 3


@handles(
    CreateDelegationTokenRequest,
    (1, 3),
    needs=all_of(need((Operation.CREATE_TOKENS, ResourceType.USER), when="for another owner than oneself")),
)
async def handle(context: Context, request: CreateDelegationTokenRequest) -> HandlerResult:
    requester = context.caller.principal
    owner = requester
    if request.owner_principal_name:
        owner = Principal(request.owner_principal_type or USER, request.owner_principal_name)
    tokens = usable_tokens(context)
    if isinstance(tokens, ErrorCode):
        return _rejection(context, tokens, owner, requester)
    renewers = [Principal(each.principal_type, each.principal_name) for each in request.renewers]
    if any(each.kind != USER or not each.name for each in (owner, *renewers)):
        return _rejection(context, ErrorCode.INVALID_PRINCIPAL_TYPE, owner, requester)
    if owner != requester and not context.allows(Operation.CREATE_TOKENS, ResourceType.USER, str(owner)):
        return _rejection(context, ErrorCode.DELEGATION_TOKEN_AUTHORIZATION_FAILED, owner, requester)
    longest = request.max_lifetime_ms if request.max_lifetime_ms > 0 else None
    try:
        token = await tokens.create(owner, requester=requester, renewers=renewers, max_life_ms=longest)
    except StreamhouseError as error:
        return _rejection(context, context.count_error(error), owner, requester)
    return CreateDelegationTokenResponse(
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind if context.version >= REQUESTER_SINCE else "",
        token_requester_principal_name=requester.name if context.version >= REQUESTER_SINCE else "",
        issue_timestamp_ms=token.issued_at_ms,
        expiry_timestamp_ms=token.expires_at_ms,
        max_timestamp_ms=token.max_at_ms,
        token_id=token.token_id,
        hmac=tokens.hmac_of(token.token_id),
    )


def _rejection(
    context: Context, code: ErrorCode, owner: Principal, requester: Principal
) -> CreateDelegationTokenResponse:
    return CreateDelegationTokenResponse(
        error_code=context.count_error(code),
        principal_type=owner.kind,
        principal_name=owner.name,
        token_requester_principal_type=requester.kind if context.version >= REQUESTER_SINCE else "",
        token_requester_principal_name=requester.name if context.version >= REQUESTER_SINCE else "",
        issue_timestamp_ms=-1,
        expiry_timestamp_ms=-1,
        max_timestamp_ms=-1,
    )
