"""What the APIs of delegation tokens share: who may request one, and which token a client refers to."""

from streamhouse.broker.security.delegation_tokens import DelegationTokens
from streamhouse.model.access import USER, Principal, is_anonymous
from streamhouse.model.credentials import DelegationToken
from streamhouse.wire.kafka.context import Context
from streamhouse.wire.kafka.errors import ErrorCode


def usable_tokens(context: Context) -> DelegationTokens | ErrorCode:
    """The tokens of the cluster; an error code for clients that may not use them.

    As in Kafka, those who have not proven who they are may not, nor those who have logged in with such a token; nor
    those whose login is over before a token is.
    """
    if (tokens := context.broker.security.delegation_tokens) is None:
        return ErrorCode.DELEGATION_TOKEN_AUTH_DISABLED
    caller = context.caller
    is_user = caller.principal.kind == USER and not is_anonymous(caller.principal)
    if not is_user or not caller.may_make_credentials or context.login.is_by_delegation_token:
        return ErrorCode.DELEGATION_TOKEN_REQUEST_NOT_ALLOWED
    return tokens


async def token_to_change(context: Context, tokens: DelegationTokens, given: bytes) -> DelegationToken | ErrorCode:
    """The token that the caller may renew and expire, because it is the owner or a renewer."""
    token = await tokens.find_by_hmac(given)
    if token is None:
        return ErrorCode.DELEGATION_TOKEN_NOT_FOUND
    if not is_owner_or_renewer(context.caller.principal, token):
        return ErrorCode.DELEGATION_TOKEN_OWNER_MISMATCH
    return ErrorCode.DELEGATION_TOKEN_EXPIRED if tokens.is_expired(token) else token


def is_owner_or_renewer(principal: Principal, token: DelegationToken) -> bool:
    return principal == token.owner or principal in token.renewers
