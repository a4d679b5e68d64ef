"""GoogleKeys: data keys wrapped by Google's Cloud KMS.

The access token is `GOOGLE_BEARER_TOKEN`, or signed with the service account's key that
`GOOGLE_APPLICATION_CREDENTIALS` names, or the machine's own (`GCE_METADATA_HOST` names another token service).
"""

import asyncio
import base64
import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Final

from cryptography.hazmat.primitives.asymmetric.padding import PKCS1v15
from cryptography.hazmat.primitives.asymmetric.rsa import RSAPrivateKey
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.serialization import load_pem_private_key

from streamhouse.clock import Clock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured
from streamhouse.stores.encryption.base import WrappedKey
from streamhouse.stores.encryption.http import KeyServiceHttp, decoded

ADDRESS: Final = "https://cloudkms.googleapis.com"
ABOUT: Final = base64.b64encode(b"streamhouse data key").decode()
"""Additional data that Google authenticates with a wrapped key."""
_TOKEN_PATH: Final = "/computeMetadata/v1/instance/service-accounts/default/token"
_TOKEN_LIFE_S: Final = 3600


class GoogleKeys:
    """A `KeyService`. Ids are names of key versions; rotating the key there makes a new one, and old ones unwrap."""

    def __init__(
        self, settings: EncryptionSettings, http: KeyServiceHttp, environ: Mapping[str, str], clock: Clock
    ) -> None:
        if settings.key.count("/") < 7:
            raise Misconfigured(
                "encryption.kms=google needs encryption.key: projects/…/locations/…/keyRings/…/cryptoKeys/…"
            )
        self._key = settings.key
        self._url = settings.url.rstrip("/") or ADDRESS
        self._http = http
        self._environ = environ
        self._clock = clock

    def __repr__(self) -> str:
        return f"<GoogleKeys {self._key} at {self._url}>"

    async def wrap(self, key: bytes) -> WrappedKey:
        body = {"plaintext": base64.b64encode(key).decode(), "additionalAuthenticatedData": ABOUT}
        response = await self._call(self._key, "encrypt", body)
        return WrappedKey(str(response.get("name") or self._key), decoded(response.get("ciphertext")))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        name = wrapped.key_id.partition("/cryptoKeyVersions/")[0]
        blob = base64.b64encode(wrapped.wrapped).decode()
        response = await self._call(name, "decrypt", {"ciphertext": blob, "additionalAuthenticatedData": ABOUT})
        return decoded(response.get("plaintext"))

    async def _call(self, name: str, operation: str, body: Mapping[str, str]) -> Mapping[str, Any]:
        headers = {"authorization": f"Bearer {await self._token()}", "content-type": "application/json"}
        url = f"{self._url}/v1/{name}:{operation}"
        return await self._http.request("POST", url, headers, json.dumps(body).encode(), key_id=name)

    async def _token(self) -> str:
        environ = self._environ
        if token := environ.get("GOOGLE_BEARER_TOKEN"):
            return token
        if path := environ.get("GOOGLE_APPLICATION_CREDENTIALS"):
            return await asyncio.to_thread(self._signed_token, Path(path))
        host = environ.get("GCE_METADATA_HOST", "metadata.google.internal")
        headers = {"metadata-flavor": "Google"}
        response = await self._http.request("GET", f"http://{host}{_TOKEN_PATH}", headers, key_id=self._key)
        return str(response.get("access_token", ""))

    def _signed_token(self, path: Path) -> str:
        """A token that the service account signs itself, without a token service."""
        try:
            account = json.loads(path.read_bytes())
            key = load_pem_private_key(str(account["private_key"]).encode(), password=None)
            email, key_id = str(account["client_email"]), str(account.get("private_key_id", ""))
        except (OSError, ValueError, KeyError, TypeError) as error:
            why = f"the service account's file can't be used; path={path} why={type(error).__name__}"
            raise DataKeyUnavailable("data key", key_id=self._key, why=why) from None
        if not isinstance(key, RSAPrivateKey):
            raise DataKeyUnavailable("data key", key_id=self._key, why="the service account's key is not an RSA key")
        now_s = self._clock.now_ms() // 1000
        claims = {"iss": email, "sub": email, "aud": f"{ADDRESS}/", "iat": now_s, "exp": now_s + _TOKEN_LIFE_S}
        signed = f"{_part({'alg': 'RS256', 'typ': 'JWT', 'kid': key_id})}.{_part(claims)}"
        return f"{signed}.{_text(key.sign(signed.encode(), PKCS1v15(), SHA256()))}"

    async def aclose(self) -> None:
        await self._http.aclose()


def _part(content: Mapping[str, object]) -> str:
    return _text(json.dumps(content).encode())


def _text(data: bytes) -> str:
    return base64.urlsafe_b64encode(data).rstrip(b"=").decode()
