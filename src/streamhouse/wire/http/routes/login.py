"""How the console logs in.

GET  /v1/login        the ways that there are, and whether the console changes anything
POST /v1/login/code   the tokens for an authorization code of the OpenID provider

Both are open, because clients use them before the login. The tokens are the provider's own; the agent checks them when
they are used."""

from typing import Annotated, Any

import msgspec
from msgspec import Meta
from starlette.responses import Response

from streamhouse.broker.broker import Broker
from streamhouse.model.needs import OPEN
from streamhouse.wire.http.code_exchange import CodeExchange, has_code_flow
from streamhouse.wire.http.errors import Unprocessable
from streamhouse.wire.http.operations import Call, NoQuery, Operation, json_response

Text = Annotated[str, Meta(min_length=1, max_length=4096)]


class ProviderView(msgspec.Struct, frozen=True, kw_only=True):
    """An OpenID provider: where the browser goes, and as which client."""

    authorize_url: str
    client_id: str
    scope: str


class LoginView(msgspec.Struct, frozen=True, kw_only=True):
    """`provider` is null without one. `read_only`: the console offers no changes. `tail_records`: after so many, a live
    tail of the console stops."""

    provider: ProviderView | None
    read_only: bool
    tail_records: int


class CodeView(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """The provider's code, and the verifier whose hash went there."""

    code: Text
    verifier: Annotated[str, Meta(min_length=43, max_length=128)]
    redirect_uri: Text


class Tokens(msgspec.Struct, frozen=True, kw_only=True):
    """Tokens of the provider; the first that the agent accepts is the login."""

    tokens: list[str]


def operations(broker: Broker) -> list[Operation[Any, Any]]:
    settings = broker.settings.security
    exchange = CodeExchange(settings) if has_code_flow(settings) else None
    provider = None
    if exchange is not None:
        provider = ProviderView(
            authorize_url=settings.oauth_authorize_url,
            client_id=settings.oauth_client_id,
            scope=" ".join(dict.fromkeys(["openid", *settings.oauth_scope.split()])),
        )
    http = broker.settings.http
    view = LoginView(provider=provider, read_only=http.console_read_only, tail_records=http.console_tail_records)

    async def get_login(_: Call[NoQuery, None]) -> Response:
        return json_response(view)

    async def exchange_code(call: Call[NoQuery, CodeView]) -> Response:
        if exchange is None:
            raise Unprocessable("there is no OpenID provider here; setting=security.oauth_client_id")
        body = call.body
        tokens = await exchange.tokens(code=body.code, verifier=body.verifier, redirect_uri=body.redirect_uri)
        return json_response(Tokens(tokens=list(tokens)))

    return [
        Operation(
            method="GET",
            path="/v1/login",
            handler=get_login,
            needs=OPEN,
            summary="Login methods of the console",
            tag="security",
            query=NoQuery,
            response=LoginView,
        ),
        Operation(
            method="POST",
            path="/v1/login/code",
            handler=exchange_code,
            needs=OPEN,
            summary="Exchange an authorization code of the OpenID provider for its tokens",
            about="For browsers: the code comes from the provider, the verifier from the authorization request.",
            tag="security",
            query=NoQuery,
            body=CodeView,
            response=Tokens,
            problems=(401,),
        ),
    ]
