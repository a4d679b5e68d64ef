"""Code exchange: the console's login at an OpenID provider, with an authorization code and PKCE (RFC 7636).

Data path   routes.login -> **code_exchange** -> the provider's token endpoint
Owns        the request to the provider: https only, no redirects, no compression, a deadline, a limit
            of bytes
Leaves      whether a token is valid to `token_issuer`, at the token's first use

The browser makes the verifier and sends it with the code, so a stolen code is useless. The agent asks the
provider: the pages' content security policy allows connections to the agent only.
"""

import asyncio
import ssl
from collections.abc import Mapping, Sequence
from typing import Final
from urllib.parse import urlsplit

import httpx
import msgspec

from streamhouse.config import SecuritySettings
from streamhouse.errors import Misconfigured, NotAuthenticated, Unavailable
from streamhouse.wire.http.issuer_keys import ACCEPTED, read_limited

TOKENS: Final = ("access_token", "id_token")
"""In the order in which they are tried."""


def has_code_flow(settings: SecuritySettings) -> bool:
    return bool(settings.oauth_issuer and settings.oauth_client_id)


def check_code_flow(settings: SecuritySettings) -> None:
    """Raise `Misconfigured` if the provider's addresses are missing."""
    for name in ("oauth_authorize_url", "oauth_token_url"):
        if urlsplit(getattr(settings, name)).scheme != "https":
            raise Misconfigured(f"security.oauth_client_id needs security.{name}, an https:// address")


class CodeExchange:
    def __init__(self, settings: SecuritySettings) -> None:
        check_code_flow(settings)
        self._settings = settings
        self._turns = asyncio.Semaphore(settings.max_logins)
        self._waiting = 0
        try:
            self._tls = ssl.create_default_context(cafile=settings.oauth_ca or None)
        except OSError as error:
            raise Misconfigured(f"security.oauth_ca can't be used; path={settings.oauth_ca} why={error}") from None

    def __repr__(self) -> str:
        return f"<CodeExchange {self._settings.oauth_token_url}>"

    async def tokens(self, *, code: str, verifier: str, redirect_uri: str) -> Sequence[str]:
        """The tokens that the provider gives for a code; raises `NotAuthenticated` if it refuses, and `Unavailable`."""
        form = {
            "grant_type": "authorization_code",
            "client_id": self._settings.oauth_client_id,
            "code": code,
            "code_verifier": verifier,
            "redirect_uri": redirect_uri,
        }
        if self._waiting >= self._settings.max_waiting_logins:
            raise Unavailable("too many logins at once; setting=security.max_waiting_logins")
        self._waiting += 1
        try:
            async with self._turns:
                response = await self._post(form)
        finally:
            self._waiting -= 1
        return [token for name in TOKENS if isinstance(token := response.get(name), str)]

    async def _post(self, form: Mapping[str, str]) -> Mapping[str, object]:
        settings = self._settings
        try:
            async with (
                asyncio.timeout(settings.oauth_timeout_s),
                httpx.AsyncClient(verify=self._tls, trust_env=False, follow_redirects=False) as client,
                client.stream("POST", settings.oauth_token_url, data=form, headers=ACCEPTED) as response,
            ):
                data = await read_limited(response, settings.oauth_max_bytes)
                status = response.status_code
        except TimeoutError:
            raise Unavailable(f"the provider didn't answer in {settings.oauth_timeout_s:g} s") from None
        except (httpx.HTTPError, httpx.InvalidURL, OSError) as error:
            raise Unavailable(f"the provider can't be reached; why={type(error).__name__}") from None
        if 400 <= status < 500:
            raise NotAuthenticated("the provider refused the login; log in again")
        if status != httpx.codes.OK:
            raise Unavailable(f"the provider answered with status {status}")
        try:
            return msgspec.json.decode(data, type=dict[str, object])
        except msgspec.DecodeError:
            raise Unavailable("the provider's answer is no JSON object") from None
