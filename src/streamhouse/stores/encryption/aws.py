"""AwsKeys: data keys wrapped by AWS KMS.

Credentials are those that `stores.aws` finds; a container's own service is asked for them before each request.
"""

import base64
import hashlib
import json
from collections.abc import Mapping
from typing import Any, Final
from urllib.parse import urlsplit

from streamhouse.clock import Clock
from streamhouse.config import EncryptionSettings
from streamhouse.errors import DataKeyUnavailable, Misconfigured
from streamhouse.stores.aws import (
    ALGORITHM,
    AwsCredentials,
    Scope,
    find_credentials,
    region_of,
    signature,
    signed_names,
)
from streamhouse.stores.encryption.base import WrappedKey
from streamhouse.stores.encryption.http import KeyServiceHttp, decoded

CONTEXT: Final = {"streamhouse": "data key"}
"""AWS's encryption context: shown in its audit log, and needed for decrypting."""
_TYPE: Final = "application/x-amz-json-1.1"


class AwsKeys:
    """A `KeyService`. Ids are the ARNs that KMS answers; its own rotation needs nothing here."""

    def __init__(
        self, settings: EncryptionSettings, http: KeyServiceHttp, environ: Mapping[str, str], clock: Clock
    ) -> None:
        if not settings.key:
            raise Misconfigured("encryption.kms=aws needs encryption.key: the key's id, alias or ARN")
        arn = settings.key.split(":")
        from_arn = arn[3] if len(arn) > 5 and arn[0] == "arn" else ""
        self._region = from_arn or region_of(environ)
        self._url = settings.url.rstrip("/") or f"https://kms.{self._region}.amazonaws.com"
        self._key = settings.key
        self._http = http
        self._environ = environ
        self._clock = clock

    def __repr__(self) -> str:
        return f"<AwsKeys {self._key} at {self._url}>"

    async def wrap(self, key: bytes) -> WrappedKey:
        body = {"KeyId": self._key, "Plaintext": base64.b64encode(key).decode(), "EncryptionContext": CONTEXT}
        response = await self._call("Encrypt", body, key_id=self._key)
        return WrappedKey(str(response.get("KeyId") or self._key), decoded(response.get("CiphertextBlob")))

    async def unwrap(self, wrapped: WrappedKey) -> bytes:
        blob = base64.b64encode(wrapped.wrapped).decode()
        body = {"KeyId": wrapped.key_id, "CiphertextBlob": blob, "EncryptionContext": CONTEXT}
        return decoded((await self._call("Decrypt", body, key_id=wrapped.key_id)).get("Plaintext"))

    async def _call(self, operation: str, body: Mapping[str, Any], *, key_id: str) -> Mapping[str, Any]:
        data, target = json.dumps(body).encode(), f"TrentService.{operation}"
        credentials = await self._credentials()
        scope = Scope.at(self._clock.now_ms(), self._region, "kms")
        headers = sign(self._url, data, target=target, scope=scope, credentials=credentials)
        return await self._http.request("POST", self._url + "/", headers, data, key_id=key_id)

    async def _credentials(self) -> AwsCredentials:
        async def fetch(url: str, headers: Mapping[str, str]) -> Mapping[str, Any]:
            return await self._http.request("GET", url, headers, key_id=self._key)

        if (found := await find_credentials(self._environ, fetch)) is None:
            why = "no credentials; do=set AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or use a container's role"
            raise DataKeyUnavailable("data key", key_id=self._key, why=why)
        return found

    async def aclose(self) -> None:
        await self._http.aclose()


def sign(url: str, body: bytes, *, target: str, scope: Scope, credentials: AwsCredentials) -> dict[str, str]:
    """The headers of a request to KMS, with AWS's signature of version 4."""
    headers = {"content-type": _TYPE, "host": urlsplit(url).netloc, "x-amz-date": scope.stamp, "x-amz-target": target}
    if credentials.session_token:
        headers["x-amz-security-token"] = credentials.session_token
    signed = signature(
        credentials.secret_key,
        scope,
        method="POST",
        path="/",
        headers=headers,
        payload_hash=hashlib.sha256(body).hexdigest(),
    )
    authorization = (
        f"{ALGORITHM} Credential={credentials.access_key}/{scope}, SignedHeaders={signed_names(headers)}, "
        f"Signature={signed}"
    )
    return {**headers, "authorization": authorization}
